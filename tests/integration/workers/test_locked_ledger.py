"""One ledger that is held for long, and what the others notice of it."""

import time
from statistics import median

import pytest

from tests.engine import Engine, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import PATIENCE_S, Processes

OTHERS = 12
NOTICED_S = 1.5  # most turns of other ledgers are history by then, on a busy machine too
HELD = "SELECT 1 FROM turnledger.ledger WHERE conversation_key = 'jira:HELD-1' FOR UPDATE"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_ledger_that_is_held_holds_up_no_other(engine: Engine, processes: Processes, workers: int) -> None:
    """(QU-13)"""
    for _ in range(workers):
        start_worker(processes, engine.environment())
    wait_until(lambda: _assert_workers(engine, workers))
    held = [engine.start("jira:HELD-1") for _ in range(10)]
    with engine.connected() as connection, connection.transaction():
        connection.execute(HELD)
        for turn in held:
            engine.complete(turn)
        waited = [_seconds_to_history(engine, number) for number in range(OTHERS)]
    assert median(waited) < NOTICED_S, f"others waited {sorted(waited)} s"
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _assert_workers(engine: Engine, number: int) -> None:
    assert engine.redis.scard("rq:workers") == number


def _seconds_to_history(engine: Engine, number: int) -> float:
    """How long after its completion a turn of another ledger became history."""
    turn = engine.start(f"jira:FREE-{number % 3}")
    engine.complete(turn)
    began = time.monotonic()
    turn.wait(timeout_s=PATIENCE_S)
    return time.monotonic() - began
