"""How long a completed turn waits for its commit while turns come in at half of what a worker can do."""

import time
from dataclasses import dataclass

from tests.bench import draining, engine
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig, wait_until
from tests.bench.timing import percentile
from tests.processes import Processes

SECONDS, MOST_ENGINES = 10.0, 3
SETTLED = 0.97  # of the wanted rate: engines that come this close keep up
GOAL_MS = 100.0
_ENGINE = "from tests.bench.engine import main; main()"


@dataclass(frozen=True, slots=True)
class _Load:
    """One load and what became of it."""

    engines: int
    rate: float
    waits_ms: list[int]


def measure(rig: Rig) -> Report:
    """An open loop of engine processes beside one worker, at half of the rate that the worker drains at."""
    wanted = draining.one_worker_rate(rig) / 2
    loads = []
    for engines in range(1, MOST_ENGINES + 1):
        loads.append(_load(rig, engines=engines, rate=wanted))
        if loads[-1].rate >= SETTLED * wanted:
            break
    load = max(loads, key=lambda load: load.rate)
    results = [
        Result(f"p50 at {load.rate:,.0f} turns/s", _share(load, 0.50), "ms", "bound", GOAL_MS),
        Result(f"p99 at {load.rate:,.0f} turns/s", _share(load, 0.99), "ms", "bound", GOAL_MS, Goal("at most", 1)),
    ]
    return Report("d. From complete to commit", _how(load, wanted), results)


def _share(load: _Load, share: float) -> float:
    return percentile(load.waits_ms, share=share)


def _load(rig: Rig, *, engines: int, rate: float) -> _Load:
    rig.empty()
    each = round(rate * SECONDS / engines)
    with Processes(rig.environment) as started:
        draining.start_worker(started)
        running = [
            started.snippet(_ENGINE, str(number * each), str(each), str(rate / engines)) for number in range(engines)
        ]
        for process in running:
            process.wait_for_line(engine.READY, seconds=120)
        rig.settle()
        rig.redis.set(engine.GO, repr(time.time() + 0.5))
        lines = [process.wait_for_line(engine.DONE, seconds=10 * SECONDS) for process in running]
        wait_until(lambda: draining.backlog(rig) == 0, seconds=60)
    draining.check_committed(rig, turns=each * engines)
    seconds = max(float(line.split()[1]) for line in lines)
    return _Load(engines, each * engines / seconds, _waits_ms(rig))


def _waits_ms(rig: Rig) -> list[int]:
    """By the clock of Redis alone: when the turn was completed, and when its record was told of the commit."""
    keys = list(rig.redis.scan_iter(f"{rig.records.keys.turn_prefix}*[0-9]", count=1_000))
    with rig.redis.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hmget(key, "completed_at", "touched_at")
        times = pipeline.execute()
    return [int(committed) - int(completed) for completed, committed in times]


def _how(load: _Load, wanted: float) -> str:
    missed = (
        ""
        if load.rate >= SETTLED * wanted
        else (" This is the most that engines, worker and both servers reach together on this machine.")
    )
    return (
        f"Open loop for {SECONDS:g} s: {load.engines} engine process(es) complete turns that were started before, "
        f"every turn of a ledger of its own, at half of one worker's rate ({wanted:,.0f} turns/s wanted, "
        f"{load.rate:,.0f} reached).{missed} One worker commits. The wait of a turn is from its `completed_at` to the "
        "moment at which its record says committed, which is after the commit in Postgres; both are milliseconds of "
        "Redis's clock. Every turn counts, none is left out."
    )
