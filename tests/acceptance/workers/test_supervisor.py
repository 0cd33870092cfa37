"""A pool of workers that is kept at its size, and stopped with one signal."""

import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.engine import Engine, start_clock, within
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor


@pytest.fixture
def supervisor(engine: Engine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    """In this process, over commands that the test names; its children end with the test."""
    for name, value in engine.environment().items():
        monkeypatch.setenv(name, value)
    supervised = Supervisor(request.param, settings=WorkerSettings(grace_s=10))
    yield supervised
    supervised.end()


@pytest.mark.parametrize("supervisor", [[["worker"], ["worker"]]], indirect=True)
def test_a_killed_worker_is_replaced(engine: Engine, supervisor: Supervisor) -> None:
    """(OP-8)"""
    wait_until(lambda: _assert_workers(engine, 2), seconds=20)
    victim, other = supervisor.process_ids
    psutil.Process(victim).kill()
    wait_until(lambda: _assert_replaced(supervisor, victim), seconds=10)
    assert other in supervisor.process_ids
    engine.play()
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told, seconds=20)


@pytest.mark.parametrize("supervisor", [[["no-such-command"]]], indirect=True)
def test_a_command_that_dies_at_once_is_started_after_longer_and_longer_pauses(supervisor: Supervisor) -> None:
    """(OP-8)"""
    pauses = [_pause_after_death(supervisor) for _ in range(2)]
    assert pauses[0] >= 1
    assert pauses[1] >= 2


def _pause_after_death(supervisor: Supervisor) -> float:
    """For how long no process was there before the next one was started."""
    with within(30):
        while supervisor.process_ids:
            time.sleep(0.01)
        died_at = time.monotonic()
        while not supervisor.process_ids:
            supervisor.tend()
            time.sleep(0.01)
    return time.monotonic() - died_at


def test_one_signal_stops_a_pool_and_everything_in_it(engine: Engine, processes: Processes) -> None:
    """(OP-6, OP-8)"""
    start_clock(processes, engine.environment())
    pool = processes.command("worker", "--processes", "2", environment=engine.environment())
    wait_until(lambda: _assert_workers(engine, 2), seconds=20)
    children = psutil.Process(pool.pid).children()
    for number in range(20):
        engine.play(f"jira:POC-{number % 4}")
    pool.signal(signal.SIGTERM)
    assert pool.wait(seconds=30) == 0, pool.output
    assert not [child for child in children if child.is_running()]
    assert engine.redis.scard("rq:workers") == 0
    assert [key for key in engine.redis.scan_iter("rq:*") if ":wip:" in key or key.endswith(":intermediate")] == []


@pytest.mark.parametrize("supervisor", [[["worker"]]], indirect=True)
def test_a_worker_that_does_not_stop_is_killed_after_the_grace(engine: Engine, supervisor: Supervisor) -> None:
    """(OP-6)"""
    wait_until(lambda: _assert_workers(engine, 1), seconds=20)
    (frozen,) = supervisor.process_ids
    psutil.Process(frozen).suspend()
    supervisor._settings = WorkerSettings(grace_s=0.5)
    assert supervisor.end() == 1
    assert not psutil.pid_exists(frozen)


def _assert_workers(engine: Engine, number: int) -> None:
    assert engine.redis.scard("rq:workers") == number


def _assert_replaced(supervisor: Supervisor, victim: int) -> None:
    supervisor.tend()
    assert len(supervisor.process_ids) == 2
    assert victim not in supervisor.process_ids
