"""`turnledger acl`: the access control lines of each role, for Redis."""

import sys
from typing import get_args

from turnledger.checkpoint import CheckpointSettings
from turnledger.store import read_settings
from turnledger.workers.cli.output import Output, print_json
from turnledger.workers.redis_rights import Role, acl_line

NO_SERVER = "redis://-"  # the lines follow from the prefixes alone; none is asked


def run_acl(*, output: Output) -> None:
    """Print a line of an ACL file for each role, without a password: until one is added, nobody can log in by it."""
    settings = read_settings(CheckpointSettings, redis_url=NO_SERVER)
    lines = {role: acl_line(role, settings=settings) for role in get_args(Role)}
    if output == "json":
        print_json(lines)
        return
    for role, line in lines.items():
        sys.stdout.write(f"user turnledger-{role} {line}\n")
