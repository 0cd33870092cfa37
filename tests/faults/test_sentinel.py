"""The master of Redis is killed under running turns, its tail unreplicated, and sentinels promote the replica."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import check_all_there, check_ledgers, wait_until
from tests.processes import Process, Processes
from tests.recovering import Recovery
from tests.sentinels import Deployment, sentinels
from tests.stores import user
from turnledger.checkpoint import AlreadyHandled, Turn

NOBODY = 1  # a port on which no Redis listens
FAILED_OVER_S = 30
QUICK: dict[str, Any] = {"renew_s": 0.5, "lease_s": 30.0, "redis_connect_timeout_s": 0.5, "redis_reply_timeout_s": 1.0}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with sentinels(tmp_path) as running:
        yield running


@pytest.fixture
def engine(database_url: str, deployment: Deployment) -> Iterator[Engine]:
    node = Engine(database_url, deployment.url, **QUICK)
    yield node
    node.close()


@pytest.fixture
def workers(engine: Engine, processes: Processes) -> list[Process]:
    """A worker and a clock, once they have committed something."""
    started = [start(processes, engine.environment()) for start in (start_worker, start_clock)]
    engine.play("jira:OK-1")
    wait_until(lambda: _assert_there(engine), seconds=FAILED_OVER_S)
    return started


def test_a_failover_that_lost_a_tail_loses_and_doubles_no_turn(
    engine: Engine, deployment: Deployment, workers: list[Process], recovery: Recovery
) -> None:
    """Live handles submit again, a turn that is history is not resumed, the rest goes on (FL-2, FL-3, FL-8)."""
    saved, committed, failed_on = (engine.start(f"jira:{name}-1") for name in ("SAVED", "COMMITTED", "OLD"))
    saved.save(steps=[user("one")])
    tail = [engine.start(f"jira:TAIL-{number}") for number in range(3)]
    deployment.follow(deployment.second, master=NOBODY)
    saved.save(steps=[user("two")])
    engine.complete(committed)
    wait_until(lambda: _assert_there(engine), seconds=FAILED_OVER_S)
    for process in workers:
        process.signal(SIGSTOP)
    for turn in tail:
        engine.complete(turn)
    deployment.first.kill()
    for process in workers:
        process.signal(SIGCONT)
    with recovery.of("the master of Redis killed, 1 s until sentinels call it down"):
        engine.play("jira:MEANWHILE-1")
        wait_until(lambda: deployment.assert_role(deployment.second, "master"), seconds=FAILED_OVER_S)
        wait_until(lambda: _assert_saved(saved), seconds=FAILED_OVER_S)
        engine.complete(saved)
        engine.play("jira:AFTER-1")
        wait_until(lambda: _assert_there(engine), seconds=FAILED_OVER_S)
    assert workers[1].running
    with pytest.raises(AlreadyHandled):
        engine.turns.resume(committed.turn_id)
    deployment.first.start()
    wait_until(lambda: deployment.assert_role(deployment.first, "slave", link="up"))
    engine.complete(failed_on)
    wait_until(lambda: _assert_there(engine), seconds=FAILED_OVER_S)
    check_ledgers(engine.database_url, deployment.second.url, told=engine.told)


def _assert_saved(turn: Turn) -> None:
    """A save brings what the last ones could not."""
    turn.save(steps=[])
    assert turn.checkpoint_error is None


def _assert_there(engine: Engine) -> None:
    check_all_there(engine.database_url, told=engine.told)
