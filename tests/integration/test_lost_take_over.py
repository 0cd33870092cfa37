"""A Redis that went back, or came back empty, and knows no more who has a turn: Postgres is asked, and nothing is sent
twice.
"""

from collections.abc import Callable, Iterable

import pytest

from tests.failover import fail_over, replica_of
from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import StaleTurn, Turn, Turns
from turnledger.store import Replied, Step

Loss = Callable[[Stores, Turn], None]


def _texts(steps: Iterable[Step]) -> list[str]:
    return [step.value["content"] for step in steps]


def _taken_over(stores: Stores, turn: Turn) -> None:
    """Somebody else has taken it, of which Redis has lost the record."""
    stores.execute("UPDATE ledger_turn SET epoch = epoch + 1 WHERE turn_id = %s", turn.turn_id)
    stores.redis.delete(stores.keys.record(turn.turn_id), stores.keys.steps(turn.turn_id))


def _answered(stores: Stores, turn: Turn) -> None:
    """Redis came back empty, and another run of the same triggers has answered them."""
    stores.redis.flushdb()
    other = begin(stores.node(), work_key=turn.work_key, turn_id="other")
    other.complete(reply=Replied("Done already."))
    stores.drain()


def _fenced(stores: Stores, turn: Turn) -> None:
    """Redis lost the take-over alone: the record is the former holder's, whose lease is over."""
    stores.execute("UPDATE ledger_turn SET epoch = epoch + 1 WHERE turn_id = %s", turn.turn_id)
    turn._session._owned_until = 0.0


@pytest.mark.parametrize("loss", [_taken_over, _answered, _fenced])
def test_nothing_is_sent_a_second_time(stores: Stores, node: Turns, loss: Loss) -> None:
    """However sure the holder is by its own clock (DL-2, FL-6, FL-8)."""
    turn = begin(node, work_key="k", turn_id="mine")
    turn.save(steps=[user("ask")])
    loss(stores, turn)
    sent: list[str] = []
    with pytest.raises(StaleTurn, match="nothing was sent"):
        turn.deliver(lambda: sent.append("reply"), reply="Done.", steps=[assistant("Done.")])
    assert sent == []


def test_a_save_of_a_turn_that_was_taken_over_and_forgotten_is_refused(stores: Stores, node: Turns) -> None:
    """Its holder slept for longer than ended turns are kept (CK-5, FL-8)."""
    turn = begin(node, work_key="k")
    _taken_over(stores, turn)
    with pytest.raises(StaleTurn):
        turn.save(steps=[user("ask")])


def test_a_turn_that_is_committed_is_submitted_again_without_harm(stores: Stores, node: Turns) -> None:
    """Its completion is lost in Redis alone; the record follows what Postgres has (FL-8)."""
    turn = begin(node, work_key="k")
    turn.save(steps=[user("ask")])
    before = replica_of(stores.redis_url)
    turn.save(steps=[assistant("Done.")])
    turn.complete(reply=Replied("Done."))
    stores.drain()
    fail_over(stores.redis_url, to=before)
    turn.submit_again()
    assert stores.run(turn.turn_id) == "completed"
    assert stores.records.states([turn.turn_id]) == ["committed"]
    assert len(stores.entries()) == 1


def test_a_message_that_was_brought_to_the_lost_park_is_not_written_over(stores: Stores, node: Turns) -> None:
    """What Redis has now is not a part of what the holder has (CK-5, FL-8)."""
    turn = begin(node, work_key="k")
    turn.save(steps=[user("one")])
    before = replica_of(stores.redis_url)
    turn.save(steps=[user("two")])
    turn.save(steps=[user("three")])
    fail_over(stores.redis_url, to=before)
    stores.redis.rpush(stores.keys.steps(turn.turn_id), '{"role":"user"}\n[]\n"a message of somebody"')
    with pytest.raises(StaleTurn):
        turn.save(steps=[user("four")])
    assert stores.redis.llen(stores.keys.steps(turn.turn_id)) == 2


def test_what_redis_lost_is_brought_again(stores: Stores, node: Turns) -> None:
    """Nobody has taken the turn over: every step is there once, in order (FL-8)."""
    turn = begin(node, work_key="k")
    turn.save(steps=[user("one")])
    before = replica_of(stores.redis_url)
    turn.save(steps=[user("two")])
    fail_over(stores.redis_url, to=before)
    turn.save(steps=[user("three")])
    assert _texts(node.read(turn.turn_id).steps) == ["one", "two", "three"]


def test_a_replacement_that_redis_can_be_told_nothing_of_stands(stores: Stores) -> None:
    """Redis came back without the record: the engine is not told that nothing was replaced (HV-4, FL-6)."""
    off = stores.node(store=stores.section(enabled=False))
    turn = begin(off, work_key="k")
    turn.save(steps=[user("one")])
    stores.redis.flushdb()
    turn.compact(turn.history_to_replace(), steps=[user("so far")], model="m")
    assert turn.checkpoint_error is not None
    assert _texts(turn.history()) == ["so far"]
