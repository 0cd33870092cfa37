"""What surrounds the sending of a reply: refused before it, never undone after it."""

from asyncio import CancelledError
from typing import Any

import pytest

from tests.reconciling import lapse
from tests.stores import Stores, assistant, begin, calling, result
from turnledger.checkpoint import AlreadyRunning, TurnBlocked, Turns
from turnledger.store import InvalidInput, Message
from turnledger.workers.reconciler import Reconciler


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
def test_a_reply_that_was_interrupted_is_never_sent_again(
    stores: Stores, node: Turns, reconciler: Reconciler, error: BaseException
) -> None:
    """It may have gone out: the turn is let go, blocked, and its work is not begun anew (DL-5)."""
    turn = begin(node, work_key="k")

    def send() -> str:
        raise error

    with pytest.raises(type(error)):
        turn.deliver(send, reply="Hi", steps=[assistant("Hi")])
    lapse(stores, turn)
    node._services.leases.round()
    reconciler.sweep()
    with pytest.raises(TurnBlocked, match="delivery_unknown"):
        stores.node().resume(turn.turn_id)
    with pytest.raises(AlreadyRunning):
        begin(node, work_key="k")
    assert stores.entries() == []


def test_the_vendor_s_number_of_the_reply_is_kept(stores: Stores, node: Turns) -> None:
    """As text: the message is found again when the vendor sends it back (EV-11, DL-4)."""
    begin(node).deliver(lambda: 1718, reply="Hi")
    stores.drain()
    assert stores.entries()[0]["reply"]["receipt"] == "1718"
    again = begin(node, messages=[Message("1718", "Hi")])
    assert stores.texts() == ["Hi"]
    assert stores.types(again.turn_id) == ["turn_started"]
