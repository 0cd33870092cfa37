"""`python -m tests.machine [--dice] [--examples 2000] [--seed N]`: play the state machine for long, in rounds.

Each round has a seed of its own, which is printed, so that a round that failed can be played again. With dice every
example has one, and a failure is minimised and told with it: `--dice --seed N --examples 1` plays that one again.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import structlog
from rich.console import Console

from tests.machine import dice, running
from tests.machine.minimising import minimised
from tests.machine.world import World, world
from turnledger.store import Database, migrate
from turnledger.workers.embedded import Durability, embedded_servers

ROUND = 50
_SEEDS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--dice", action="store_true", help="throw dice instead of asking hypothesis")
    parser.add_argument("--examples", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=dice.STEPS)
    parser.add_argument("--seed", type=int, default=random.randrange(_SEEDS))
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console = Console(soft_wrap=True, markup=False, highlight=False)
    with embedded_servers(durability=Durability.SCRATCH) as servers, tempfile.TemporaryDirectory() as folder:
        database = Database.from_settings(database_url=servers.database_url)
        migrate(database)
        database.close()
        with world(database_url=servers.database_url, redis_url=servers.redis_url, folder=Path(folder)) as played:
            return (_throw if given.dice else _search)(console, played, given)


def _search(console: Console, played: World, given: argparse.Namespace) -> int:
    for number in range(0, given.examples, ROUND):
        seed, began = given.seed + number // ROUND, time.monotonic()
        console.print(f"seed {seed}: ", end="")
        running.play(played, seed=seed, examples=min(ROUND, given.examples - number), steps=given.steps)
        console.print(f"{ROUND} examples hold, {time.monotonic() - began:.1f} s")
    return 0


def _throw(console: Console, played: World, given: argparse.Namespace) -> int:
    kinds = Counter[str]()
    seeds = range(given.seed, given.seed + given.examples)
    for first in range(0, given.examples, ROUND):
        part, began = seeds[first : first + ROUND], time.monotonic()
        failures = dice.play_seeds(played, part, steps=given.steps)
        rate = len(part) / (time.monotonic() - began)
        console.print(f"from seed {part[0]}: {len(part) - len(failures)} of {len(part)} hold, {rate:.1f} a second")
        for seed, failure in failures.items():
            kinds[failure.kind] += 1
            if kinds[failure.kind] == 1:
                _tell(console, played, failure, seed=seed)
    _sum_up(console, played, kinds, examples=given.examples)
    return 1 if kinds else 0


def _tell(console: Console, played: World, failure: dice.Failure, *, seed: int) -> None:
    tally = Counter(played.tally)
    console.print(f"seed {seed}: {minimised(played, failure)}")
    played.tally = tally  # what was played to make it smaller does not count


def _sum_up(console: Console, played: World, kinds: Counter[str], *, examples: int) -> None:
    at: Counter[str] = Counter()
    for name, times in played.tally.items():
        if name.startswith("at "):
            at[name.removeprefix("at ").partition(":")[0]] += times
    points: Sequence[str] = [f"{point} {times}" for point, times in sorted(at.items())]
    console.print(f"{examples} examples, {at.total()} calls interrupted: {', '.join(points)}")
    for kind, times in kinds.most_common():
        console.print(f"{times} times: {kind}")


if __name__ == "__main__":
    sys.exit(main())
