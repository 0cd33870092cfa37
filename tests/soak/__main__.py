"""`python -m tests.soak --seconds N`: load from several nodes while everything is killed in turn, then the count.

Exit code 0: nothing lost, nothing doubled, every recovery under 60 s; 1: otherwise.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.engine import QUICK
from tests.soak.chaos import Chaos
from tests.soak.recovery import Watch, pending_turns
from tests.soak.report import MOST_RECOVERY_S, print_report, recovered_in_time
from tests.soak.stage import Stage, spool_settings, stage
from tests.soak.told import read_acknowledged, read_lines
from tests.soak.verdict import judge
from turnledger.checkpoint import Turns
from turnledger.workers.cli.stopping import unwind_on_stop
from turnledger.workers.embedded import EmbeddedServers

NODES = 3
POLL_S = 0.2
BETWEEN_KILLS_S = {"real": (2.0, 8.0), "quick": (0.7, 2.0)}
# A lease that is renewed right before its node dies must have lapsed, and been found, within 60 s.
REAL = {"TURNLEDGER_LEASE_S": "45", "TURNLEDGER_RENEW_S": "10", "SOAK_CONVERSATIONS": "40"}
PACES = {"real": REAL, "quick": {**QUICK, "SOAK_CONVERSATIONS": "10"}}
FIRST_KILL_S = 3.0
SETTLE_S = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--pace", choices=list(PACES), default="real", help="quick: all times of the product cut short")
    given = parser.parse_args()
    unwind_on_stop()
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"seed {given.seed}, {given.seconds:g} s, times of the product: {given.pace}")
    with tempfile.TemporaryDirectory(prefix="turnledger-soak-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with stage(folder, settings=PACES[given.pace], nodes=NODES, seed=given.seed) as (running, servers):
            watches = _play(console, running, servers, seconds=given.seconds, pace=given.pace, seed=given.seed)
            return _count(console, running, watches)


def _play(
    console: Console, running: Stage, servers: EmbeddedServers, *, seconds: float, pace: str, seed: int
) -> list[Watch]:
    """Load and kills for so long; then load alone, until every trace of the kills is gone."""
    chaos, chance, watches = Chaos(running, servers, seed=seed), random.Random(seed), list[Watch]()
    began = time.monotonic()
    next_kill = began + FIRST_KILL_S
    with _progress(console) as progress:
        task = progress.add_task("", total=seconds, kills=0, open=0)
        while (now := time.monotonic()) < began + seconds:
            _look(running, watches)
            if now >= next_kill:
                watches.append(chaos.strike())
                next_kill = time.monotonic() + chance.uniform(*BETWEEN_KILLS_S[pace])
            progress.update(task, completed=now - began, kills=len(watches), open=_open(watches))
            time.sleep(POLL_S)
        _wait(lambda: not _open(watches), running=running, watches=watches, seconds=MOST_RECOVERY_S)
    return watches


def _count(console: Console, running: Stage, watches: list[Watch]) -> int:
    running.stop_nodes()
    for seat in running.nodes:  # as the node's next start would
        checkpoint, store = spool_settings(seat)
        turns = Turns.from_settings(checkpoint=checkpoint, store=store)
        turns.recover()
        turns.close()
    _wait(lambda: not pending_turns(running.records), running=running, watches=watches, seconds=SETTLE_S)
    files = [seat.told for seat in running.nodes]
    counts = Counter(str(line["counts"]) for path in files for line in read_lines(path) if "counts" in line)
    verdict = judge(read_acknowledged(files), database=running.database, records=running.records)
    left = pending_turns(running.records)
    if left:
        verdict.problems.append(f"{len(left)} turns are still pending")
    print_report(console, verdict, watches, counts)
    return 0 if verdict.right and recovered_in_time(watches) else 1


def _wait(condition: Callable[[], bool], *, running: Stage, watches: list[Watch], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        _look(running, watches)
        time.sleep(POLL_S)


def _look(running: Stage, watches: list[Watch]) -> None:
    running.tend()
    for watch in watches:
        watch.look(running.records)


def _open(watches: list[Watch]) -> int:
    return sum(watch.took_s is None for watch in watches)


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        TextColumn("{task.fields[kills]} kills, {task.fields[open]} not yet recovered"),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,
        transient=True,
    )


if __name__ == "__main__":
    sys.exit(main())
