"""A take-over that Postgres did not answer is not one."""

import pytest

from tests.engine import Engine
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
