"""One ledger that is held for long, and what the others notice of it."""

import time

import pytest

from tests.engine import Engine, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes

HELD_S = 4.0
NOTICED_S = 1.5  # a turn of another ledger is history by then, on a busy machine too
HELD = "SELECT 1 FROM turnledger.ledger WHERE conversation_key = 'jira:HELD-1' FOR UPDATE"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_ledger_that_is_held_holds_up_no_other(engine: Engine, processes: Processes, workers: int) -> None:
    """(QU-13)"""
    for _ in range(workers):
        start_worker(processes, engine.environment())
    wait_until(lambda: _assert_workers(engine, workers), seconds=10)
    held = [engine.start("jira:HELD-1") for _ in range(10)]
    with engine.connected() as connection, connection.transaction():
        connection.execute(HELD)
        for turn in held:
            engine.complete(turn)
        waited = _complete_others(engine, seconds=HELD_S)
    assert max(waited) < NOTICED_S, f"others waited {max(waited):.2f} s"
    assert len(waited) > HELD_S / NOTICED_S
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told, seconds=20)


def _assert_workers(engine: Engine, number: int) -> None:
    assert engine.redis.scard("rq:workers") == number


def _complete_others(engine: Engine, *, seconds: float) -> list[float]:
    """One turn after the other, each waited for; how long each took to become history."""
    waited: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        turn = engine.start(f"jira:FREE-{len(waited) % 3}")
        engine.complete(turn)
        began = time.monotonic()
        turn.wait()
        waited.append(time.monotonic() - began)
    return waited
