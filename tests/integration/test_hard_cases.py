"""Orders of events that the state machine found: each was a loss, a repeat, or a refusal of somebody who might."""

import pytest

from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import Turn, TurnEnded, Turns
from turnledger.store import Message, Replied


class ChatError(Exception):
    """The chat did not take the reply."""


@pytest.fixture
def node(stores: Stores) -> Turns:
    return stores.node()


def fail_to_deliver(turn: Turn) -> None:
    def send() -> str:
        raise ChatError

    with pytest.raises(ChatError):
        turn.deliver(send, reply="nobody got this", steps=[assistant("nobody got this")])


def test_a_failed_delivery_on_its_way_answers_nothing(stores: Stores, node: Turns) -> None:
    """Its work and its messages are free before it is committed as well (ST-4, ST-7, DL-1)."""
    message = Message("m-1", "Hello")
    fail_to_deliver(begin(node, work_key="k", messages=[message]))
    again = begin(node, work_key="k", messages=[message])
    assert (again.handled, again.earlier.count("did NOT reply")) == ((), 1)
    again.complete(reply=Replied("here"), steps=[assistant("here")])
    stores.drain()
    assert stores.run(again.turn_id) == "completed"


def test_a_failed_delivery_is_nobodys_first_run(stores: Stores, node: Turns) -> None:
    """Another open run of its work is no duplicate of it, and can be resumed (ST-5, DL-1)."""
    first = begin(node, work_key="k")
    stores.redis.delete(stores.keys.open(first.ledger))  # an index: without it two runs of one work may be open
    other = begin(node, work_key="k")
    other.park(reason="waiting", steps=[user("q")])
    fail_to_deliver(first)
    answer = stores.node().resume(other.turn_id).complete(reply=Replied("here"), steps=[assistant("here")])
    stores.drain()
    assert not answer.duplicate
    assert (stores.run(first.turn_id), stores.run(other.turn_id)) == ("failed", "completed")


def test_a_failed_delivery_is_not_work_that_is_done(stores: Stores, node: Turns) -> None:
    """Whoever starts or resumes that very run again is told that it failed, committed or not (ST-4, DL-1)."""
    turn = begin(node, work_key="k")
    fail_to_deliver(turn)
    for _ in range(2):
        with pytest.raises(TurnEnded, match="failed"):
            begin(node, work_key="k", turn_id=turn.turn_id)
        with pytest.raises(TurnEnded, match="failed"):
            node.resume(turn.turn_id)
        stores.drain()
