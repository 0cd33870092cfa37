"""A take-over that Postgres did not answer is not one."""

import pytest

from tests.engine import Engine
from turnledger.checkpoint import AlreadyHandled
from turnledger.store import StoreBusy


def test_a_resume_that_failed_does_not_count_as_one(database_url: str, redis_url: str) -> None:
    """(CK-10)"""
    engine = Engine(database_url, redis_url, lock_timeout_ms=20, slices=2)
    turn = engine.start()
    turn.park(reason="later")
    with engine.connected() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM turnledger.ledger FOR UPDATE")
        for _ in range(4):
            with pytest.raises(StoreBusy):
                engine.turns.resume(turn.turn_id)
    assert engine.turns.resume(turn.turn_id).slice == 2
    engine.close()


def test_a_resume_that_finds_its_work_done_says_so_while_the_ledger_is_held(engine: Engine) -> None:
    """(CK-11)"""
    first = engine.start(work_key="same")
    second = engine.start_again(first)
    for turn in (first, second):
        turn.park(reason="later")
    engine.complete(engine.turns.resume(first.turn_id))
    with engine.connected() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM turnledger.ledger FOR UPDATE")
        with pytest.raises(AlreadyHandled) as refusal:
            engine.turns.resume(second.turn_id)
    assert refusal.value.turn_id == first.turn_id
