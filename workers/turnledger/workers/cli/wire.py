"""`turnledger wire`: what an engine in another language builds upon."""

import json
import sys

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.wire import wire_contract
from turnledger.store import read_settings
from turnledger.workers.cli.acl import NO_SERVER
from turnledger.workers.cli.output import Output, print_json


def run_wire(*, output: Output) -> None:
    """Print the contract, as text with a line a member, so that two releases can be compared line by line."""
    contract = wire_contract(read_settings(CheckpointSettings, redis_url=NO_SERVER))
    if output == "json":
        print_json(contract)
        return
    sys.stdout.write(json.dumps(contract, indent=2) + "\n")
