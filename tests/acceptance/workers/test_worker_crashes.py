"""A worker that is killed at each step of the commit."""

import signal
import time

import pytest

from tests.engine import SCALE, Engine, start_clock, start_worker
from tests.ledger_checks import check_committed, check_ledgers, wait_for_invariants, wait_until
from tests.processes import Processes
from turnledger.store.crash_points import CRASH_POINTS

POINTS = [point for point in CRASH_POINTS if point.startswith("commit.")]
RECOVERED_S = 60 / SCALE
MACHINE_S = 10.0  # what a busy machine may add: shortened pauses do not make the work itself faster


def _killed_at(engine: Engine, processes: Processes, point: str) -> float:
    """A worker dies at this point with some turns of two ledgers in hand; when it died."""
    worker = start_worker(processes, engine.environment(TURNLEDGER_CRASH_AT=point))
    wait_until(lambda: _assert_registered(engine))
    first = engine.start("jira:POC-0", work_key="same")
    second = engine.start_again(first)
    for turn in (first, second):
        engine.complete(turn)
    for number in range(4):
        engine.play(f"jira:POC-{number % 2}")
    assert worker.wait() == -signal.SIGKILL
    return time.monotonic()


def _assert_registered(engine: Engine) -> None:
    assert engine.redis.scard("rq:workers") == 1


@pytest.mark.parametrize("point", POINTS)
def test_the_clock_commits_what_a_killed_worker_left_within_a_minute(
    engine: Engine, processes: Processes, point: str
) -> None:
    """(FL-7, QU-4)"""
    start_clock(processes, engine.environment())
    died_at = _killed_at(engine, processes, point)
    wait_until(lambda: check_committed(engine.redis_url, engine.told))
    assert time.monotonic() - died_at < RECOVERED_S + MACHINE_S
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


@pytest.mark.parametrize("point", POINTS)
def test_another_worker_alone_takes_over_from_a_killed_one(engine: Engine, processes: Processes, point: str) -> None:
    """(FL-7, QU-4)"""
    died_at = _killed_at(engine, processes, point)
    start_worker(processes, engine.environment())
    wait_until(lambda: check_committed(engine.redis_url, engine.told))
    assert time.monotonic() - died_at < RECOVERED_S + MACHINE_S
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
