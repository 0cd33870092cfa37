"""What surrounds the sending of a reply: refused before it, never undone after it."""

from asyncio import CancelledError
from typing import Any

import pytest

from tests.stores import Stores, assistant, begin, calling, result
from turnledger.checkpoint import Turns
from turnledger.store import InvalidInput, Message


@pytest.mark.parametrize("receipt", [True, {"ok": True}, b"r-1", "r" * 600])
def test_a_reply_is_delivered_whatever_the_vendor_calls_it(stores: Stores, node: Turns, receipt: Any) -> None:
    """A receipt that names nothing is no failure to deliver (DL-2)."""
    turn = begin(node)
    turn.deliver(lambda: receipt, reply="Hi", steps=[assistant("Hi")])
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
    assert stores.entries()[0]["reply"] == {"kind": "replied", "text": "Hi"}
    assert stores.texts() == ["Hi"]


@pytest.mark.parametrize(
    "bad",
    [
        {"reply": 5},
        {"decision": "Done!"},
        {"blocked_on": "x"},
        {"calls": ["x"]},
        {"steps": ["x"]},
        {"steps": [result("c9")]},
    ],
    ids=str,
)
def test_what_is_refused_is_refused_before_anything_is_sent(stores: Stores, node: Turns, bad: dict[str, Any]) -> None:
    """And the turn goes on (DL-1, CK-4)."""
    turn = begin(node)
    sent: list[str] = []
    with pytest.raises(InvalidInput):
        turn.deliver(lambda: sent.append("x"), **{"reply": "Hi", **bad})
    assert sent == []
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "delivery") is None
    turn.save(steps=[calling("c1"), result("c1")])
    turn.deliver(lambda: sent.append("x"), reply="Hi")
    assert sent == ["x"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError(), SystemExit(3)], ids=repr)
def test_a_send_that_is_interrupted_ends_the_turn_too(stores: Stores, node: Turns, error: BaseException) -> None:
    """The process may live on and hold the turn for ever: nobody would hear of it (DL-1)."""
    turn = begin(node, work_key="k")

    def send() -> str:
        raise error

    with pytest.raises(type(error)):
        turn.deliver(send, reply="Hi", steps=[assistant("Hi")])
    stores.drain()
    assert stores.types(turn.turn_id) == ["turn_started", "turn_failed"]
    assert stores.entries()[0]["reply"] == {"kind": "undelivered", "text": "Hi"}


def test_the_vendor_s_number_of_the_reply_is_kept(stores: Stores, node: Turns) -> None:
    """As text: the message is found again when the vendor sends it back (EV-11, DL-4)."""
    begin(node).deliver(lambda: 1718, reply="Hi")
    stores.drain()
    assert stores.entries()[0]["reply"]["receipt"] == "1718"
    again = begin(node, messages=[Message("1718", "Hi")])
    assert stores.texts() == ["Hi"]
    assert stores.types(again.turn_id) == ["turn_started"]
