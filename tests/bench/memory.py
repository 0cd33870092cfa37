"""Whether a worker that runs for months keeps its size."""

import psutil

from tests.bench.draining import backlog
from tests.bench.payload import sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig, wait_until
from tests.bench.seeding import complete, open_turns
from tests.processes import Process, Processes

BATCH, BATCHES, LEDGERS = 10_000, 10, 200
GIVEN_UP_S = 120.0
_MIB = 1 << 20


def measure(rig: Rig) -> Report:
    """One worker process, its size after a first batch of turns and after 100,000 more."""
    rig.empty()
    with Processes({**rig.environment, "TURNLEDGER_RECYCLE_JOBS": "1000000"}) as started:
        worker = started.command("worker")
        sizes = [_size_after(rig, worker, batch=number) for number in range(1 + BATCHES)]
    goal = Goal("at most", 1.05)
    results = (
        Result(f"after {BATCHES * BATCH:,} more", sizes[-1], "MiB", f"after {BATCH:,} turns", sizes[0], goal),
        Result("the most at any time", max(sizes), "MiB", f"after {BATCH:,} turns", sizes[0]),
    )
    return Report("o. Memory of a worker", _HOW, results)


def _size_after(rig: Rig, worker: Process, *, batch: int) -> float:
    """MiB that are the worker's alone, once it has committed another batch as fast as an engine completes it."""
    samples = sample_turns(BATCH, ledgers=LEDGERS, first=batch * BATCH)
    for turn, sample in zip(open_turns(rig, samples), samples, strict=True):
        complete(turn, sample)
    wait_until(lambda: backlog(rig) == 0, seconds=GIVEN_UP_S)
    assert worker.running, worker.output
    return float(psutil.Process(worker.pid).memory_full_info().uss) / _MIB


_HOW = (
    f"One worker process, never recycled, idle when an engine begins to complete turns: {BATCH:,} in {LEDGERS} "
    f"ledgers, then {BATCHES} times as many in new ledgers, each batch waited for. Its size is what would be free if "
    "it ended (unique set size), read when nothing is pending. The first batch fills its caches and pools."
)
