"""A pool of workers that is kept at its size."""

import time
from collections.abc import Iterator

import psutil
import pytest
from structlog.testing import capture_logs

from tests.engine import Engine, within
from tests.ledger_checks import wait_for_invariants, wait_until
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor


@pytest.fixture
def supervisor(engine: Engine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    """In this process, over commands that the test names; its children end with the test."""
    for name, value in engine.environment(TURNLEDGER_RECYCLE_JOBS="1").items():
        monkeypatch.setenv(name, value)
    supervised = Supervisor(request.param, settings=WorkerSettings(grace_s=10))
    yield supervised
    supervised.end()


@pytest.mark.parametrize("supervisor", [[["worker"], ["worker"]]], indirect=True)
def test_a_killed_worker_is_replaced(engine: Engine, supervisor: Supervisor) -> None:
    """(OP-8)"""
    wait_until(lambda: _assert_workers(engine, 2))
    victim, other = supervisor.process_ids
    psutil.Process(victim).kill()
    wait_until(lambda: _assert_replaced(supervisor, victim))
    assert other in supervisor.process_ids
    engine.play()
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)


@pytest.mark.parametrize("supervisor", [[["worker"]]], indirect=True)
def test_a_worker_that_dies_at_once_is_started_after_longer_and_longer_pauses(supervisor: Supervisor) -> None:
    """(OP-8)"""
    pauses = [_pause_after_death(supervisor) for _ in range(2)]
    assert pauses[0] >= 1
    assert pauses[1] >= 2


def test_a_worker_that_needs_repair_is_told_from_one_that_crashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-8): trying at once cannot help; trying now and then can, once somebody has acted."""
    with capture_logs() as logs:
        supervised = Supervisor([["no-such-command"]], settings=WorkerSettings())
        (child,) = supervised.process_ids
        with within():
            while supervised.process_ids:
                time.sleep(0.01)
        supervised.tend()
    (ended,) = [line for line in logs if line["event"].startswith("process_")]
    assert ended == {
        "event": "process_needs_repair",
        "log_level": "error",
        "child": child,
        "command": "no-such-command",
        "exit_code": 2,
        "next_start_in_s": 30.0,
    }
    assert supervised.process_ids == []


@pytest.mark.parametrize("supervisor", [[["worker"]]], indirect=True)
def test_a_worker_that_has_done_its_share_is_followed_by_another_at_once(
    engine: Engine, supervisor: Supervisor
) -> None:
    """(OP-8): it is no crash, however quickly it did it."""
    (first,) = supervisor.process_ids
    engine.play()
    with capture_logs() as logs:
        wait_until(lambda: _assert_another(supervisor, first))
    (done,) = [line for line in logs if line["event"].startswith("process_")]
    assert done == {
        "event": "process_done",
        "log_level": "info",
        "child": first,
        "command": "worker",
        "exit_code": 0,
        "next_start_in_s": 0.0,
    }
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _assert_another(supervisor: Supervisor, first: int) -> None:
    supervisor.tend()
    assert supervisor.process_ids
    assert first not in supervisor.process_ids


def _pause_after_death(supervisor: Supervisor) -> float:
    """For how long no process was there before the next one was started."""
    for process_id in supervisor.process_ids:
        psutil.Process(process_id).kill()
    with within():
        while supervisor.process_ids:
            time.sleep(0.01)
        died_at = time.monotonic()
        while not supervisor.process_ids:
            supervisor.tend()
            time.sleep(0.01)
    return time.monotonic() - died_at


@pytest.mark.parametrize("supervisor", [[["worker"]]], indirect=True)
def test_a_worker_that_does_not_stop_is_killed_after_the_grace(engine: Engine, supervisor: Supervisor) -> None:
    """(OP-6)"""
    wait_until(lambda: _assert_idle(engine))  # before that the signal would end it
    (frozen,) = supervisor.process_ids
    psutil.Process(frozen).suspend()
    supervisor._settings = WorkerSettings(grace_s=0.5)
    assert supervisor.end() == 1
    assert not psutil.pid_exists(frozen)


def _assert_workers(engine: Engine, number: int) -> None:
    assert engine.redis.scard("rq:workers") == number


def _assert_idle(engine: Engine) -> None:
    assert [engine.redis.hget(worker, "state") for worker in engine.redis.smembers("rq:workers")] == ["idle"]


def _assert_replaced(supervisor: Supervisor, victim: int) -> None:
    supervisor.tend()
    assert len(supervisor.process_ids) == 2
    assert victim not in supervisor.process_ids
