"""`python -m tests.machine [--examples 2000] [--seed N]`: play the state machine for long, in rounds of 50 examples.

Each round has a seed of its own, which is printed, so that a round that failed can be played again.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import structlog
from rich.console import Console

from tests.machine.running import play
from tests.machine.world import world
from turnledger.store import Database, migrate
from turnledger.workers.embedded import Durability, embedded_servers

ROUND = 50
_SEEDS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--examples", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(_SEEDS))
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console = Console()
    with embedded_servers(durability=Durability.SCRATCH) as servers, tempfile.TemporaryDirectory() as folder:
        database = Database.from_settings(database_url=servers.database_url)
        migrate(database)
        database.close()
        with world(database_url=servers.database_url, redis_url=servers.redis_url, folder=Path(folder)) as played:
            for number in range(0, given.examples, ROUND):
                seed, began = given.seed + number // ROUND, time.monotonic()
                console.print(f"seed {seed}: ", end="")
                play(played, seed=seed, examples=min(ROUND, given.examples - number), steps=given.steps)
                console.print(f"{ROUND} examples hold, {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
