"""What a beginner hands over in the place of a list or a function: refused before anything is written or sent."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import Turns
from turnledger.store import InvalidInput, Message, NoReplyOwed, Step

ONE = user("q")


def given_once() -> Iterator[Step]:
    """A generator of two steps."""
    yield user("q")
    yield assistant("Hi")


@pytest.mark.parametrize("steps", [ONE, {"role": "user", "content": "q"}, "q", None])
def test_steps_that_are_no_list(stores: Stores, node: Turns, steps: Any) -> None:
    """The error names the argument, nothing is saved or sent, and the turn goes on (CK-4, DL-1)."""
    turn = begin(node)
    history = turn.history_to_replace()
    sent: list[str] = []
    for call in (
        lambda: turn.save(steps=steps),
        lambda: turn.park(reason="input", steps=steps),
        lambda: turn.complete(reply=NoReplyOwed(), steps=steps),
        lambda: turn.deliver(lambda: sent.append("sent"), reply="Hi", steps=steps),
        lambda: turn.compact(history, steps=steps, model="small-1"),
        lambda: turn.hand_off(history, steps=steps, model="small-1", profile="other"),
        lambda: turn.open_child("writer", steps=steps, model="small-1"),
    ):
        with pytest.raises(InvalidInput, match="steps must be a list, not one"):
            call()
    assert sent == []
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "state") == "running"
    turn.complete(reply=NoReplyOwed())


def test_a_generator_of_steps_is_a_list_of_steps(stores: Stores, node: Turns) -> None:
    """Each of them is there once, also where the call looks at them twice (CK-4, DL-1)."""
    saved = begin(node)
    saved.save(steps=given_once())  # type: ignore[arg-type]  # what beginners write
    assert len(saved.steps) == 2
    saved.complete(reply=NoReplyOwed())
    delivered = begin(node)
    sent: list[str] = []
    delivered.deliver(lambda: sent.append("sent"), reply="Hi", steps=given_once())  # type: ignore[arg-type]  # likewise
    stores.drain()
    assert sent == ["sent"]
    assert [step.role for step in begin(node).history()] == ["user", "assistant"] * 2


def test_a_generator_of_messages_is_a_list_of_messages(stores: Stores, node: Turns) -> None:
    """None of them is lost on the way through the checks (EV-2)."""
    begin(node, messages=(message for message in [Message("m-1", "Hello"), Message("m-2", "Are you there?")]))
    assert stores.texts() == ["Hello", "Are you there?"]


def test_one_message_is_no_list(node: Turns) -> None:
    """The error names the argument (EV-2)."""
    with pytest.raises(InvalidInput, match="messages must be a list, not one Message"):
        begin(node, messages=Message("m-1", "Hello"))


async def post() -> str:
    """Sends, if somebody awaits it."""
    raise AssertionError("nobody awaits it")


def posted_later() -> object:
    """What an async client's method gives where nobody awaits it."""
    return post()


def test_an_async_send_is_refused_before_the_turn_is_marked(stores: Stores, node: Turns) -> None:
    """The turn is not told to be delivered, and can be delivered afterwards (DL-1)."""
    turn = begin(node)
    with pytest.raises(InvalidInput, match="send is asynchronous"):
        turn.deliver(post, reply="Hi")  # type: ignore[arg-type]  # what beginners write
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "delivery") != "delivering"
    turn.deliver(lambda: "r-1", reply="Hi")
    stores.drain()
    assert stores.entries()[0]["reply"] == {"kind": "replied", "text": "Hi", "receipt": "r-1"}


def test_a_send_that_returns_a_coroutine_has_not_sent(stores: Stores, node: Turns) -> None:
    """The entry says that nobody was answered, as for a send that raises (DL-1)."""
    turn = begin(node)
    with pytest.raises(InvalidInput, match="send is asynchronous"):
        turn.deliver(posted_later, reply="Hi")  # type: ignore[arg-type]  # what beginners write
    stores.drain()
    assert stores.entries()[0]["reply"]["kind"] == "undelivered"


def test_an_async_notify_is_refused_before_the_turn_ends(stores: Stores, node: Turns) -> None:
    """Whoever waits would not be told (DL-3)."""
    turn = begin(node)
    with pytest.raises(InvalidInput, match="notify is asynchronous"):
        turn.fail("agent_run_failed", notify=post)
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "state") == "running"
    turn.complete(reply=NoReplyOwed())


def test_input_of_a_wrong_type_leaves_no_message_behind(stores: Stores, node: Turns) -> None:
    """A step that is none is refused before its message is in the log (CK-12)."""
    turn = begin(node)
    turn.park(reason="input")
    with pytest.raises(InvalidInput, match="step must be a Step, not dict"):
        node.append_input(turn.turn_id, message=Message("m-1", "Hello"), step={"role": "user"})  # type: ignore[arg-type]  # what beginners write
    with pytest.raises(InvalidInput, match="message must be a Message, not str"):
        node.append_input(turn.turn_id, message="Hello", step=ONE)  # type: ignore[arg-type]  # likewise
    assert stores.texts() == []


def test_a_history_that_was_not_read_cannot_be_replaced(node: Turns) -> None:
    """The error says where to get it (HV-4)."""
    with pytest.raises(InvalidInput, match=r"what history_to_replace\(\) gave, not NoneType"):
        begin(node).compact(None, steps=[ONE], model="small-1")  # type: ignore[arg-type]  # what beginners write
