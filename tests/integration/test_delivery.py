"""The reply on its way out: sent once, and on record whatever fails around it."""

import time
from collections.abc import Callable

import pytest

from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import Completion, StaleTurn, TurnBlocked, Turns
from turnledger.store import Message, Replied, StoreBusy


class VendorError(Exception):
    """The vendor did not take the message."""


def sender(sent: list[str], *, receipt: str | None = "r-1") -> Callable[[], str | None]:
    def send() -> str | None:
        sent.append("sent")
        return receipt

    return send


def test_a_delivered_reply_is_on_record_with_its_receipt(stores: Stores, node: Turns) -> None:
    """Before deliver returns, and the next block shows it (DL-4, EV-11)."""
    sent: list[str] = []
    turn = begin(node, messages=[Message("m-1", "Hello")])
    answer = turn.deliver(sender(sent), reply="Hi", steps=[assistant("Hi")], decision="done")
    assert answer == Completion(turn.turn_id, turn.entry_id)
    assert stores.pending() == [turn.turn_id]
    assert "You replied: Hi" in begin(node).earlier
    stores.drain()
    assert stores.entries()[0]["reply"] == {"kind": "replied", "text": "Hi", "receipt": "r-1"}
    assert stores.texts() == ["Hello", "Hi"]


def test_a_second_deliver_does_not_send_again(stores: Stores, node: Turns) -> None:
    """The first answer stands (DL-2)."""
    sent: list[str] = []
    turn = begin(node)
    first = turn.deliver(sender(sent), reply="Hi")
    assert turn.deliver(sender(sent), reply="Hi") == first
    assert sent == ["sent"]


def test_the_final_steps_join_the_record_only_after_send_returned(stores: Stores, node: Turns) -> None:
    """While it is being sent the turn is marked and its reply is not history (DL-1)."""
    turn = begin(node)
    turn.save(steps=[user("q")])
    seen: list[object] = []

    def send() -> str:
        record = stores.redis.hgetall(stores.keys.record(turn.turn_id))
        assert isinstance(record, dict)
        seen.extend([record["delivery"], record["state"], stores.redis.llen(stores.keys.steps(turn.turn_id))])
        return "r-1"

    turn.deliver(send, reply="Hi", steps=[assistant("Hi")])
    assert seen == ["delivering", "running", 1]


def test_a_send_that_raises_ends_the_turn_as_undelivered(stores: Stores, node: Turns) -> None:
    """An entry says so, the last words are no history, the work may be tried again (DL-1, EN-12)."""
    turn = begin(node, work_key="k", messages=[Message("m-1", "Hello")])
    turn.save(steps=[user("q")])

    def send() -> str:
        raise VendorError("no")

    with pytest.raises(VendorError):
        turn.deliver(send, reply="Hi", steps=[assistant("Hi")])
    assert "You did NOT reply" in begin(node).earlier
    stores.drain()
    assert stores.types(turn.turn_id) == ["message", "turn_started", "agent_step", "turn_failed"]
    (terminal,) = [event for event in stores.events() if event.type == "turn_failed"]
    assert (terminal.payload.code, terminal.payload.ordinal) == ("delivery_failed", 1)
    assert stores.entries()[0]["reply"] == {"kind": "undelivered", "text": "Hi"}
    again = begin(node, work_key="k", messages=[Message("m-1", "Hello")])
    assert again.handled == ()


def test_a_turn_whose_delivery_is_unknown_is_never_resumed_by_itself(stores: Stores) -> None:
    """Its holder died between the vendor's yes and ours (DL-5)."""
    holder = begin(stores.node(lease_s=0.05, renew_s=60))
    holder._mark_delivering()
    time.sleep(0.1)
    for _ in range(2):
        with pytest.raises(TurnBlocked) as refused:
            stores.node().resume(holder.turn_id)
        assert refused.value.reason == "delivery_unknown"
    holder.complete(reply=Replied("Hi"))  # it was only slow
    assert stores.state(holder.turn_id) == "completed"


def test_no_failure_reply_follows_a_delivered_one(stores: Stores, node: Turns) -> None:
    """Not even when what came after the delivery went wrong (DL-2, DL-3)."""
    notified: list[str] = []
    turn = begin(node)
    turn.deliver(sender([]), reply="Hi")
    with pytest.raises(Exception, match="has ended"):
        turn.fail("agent_run_failed", notify=lambda: notified.append("sorry"))
    assert notified == []


def test_the_failure_reply_is_sent_and_the_failure_recorded(stores: Stores, node: Turns) -> None:
    """Both (DL-3)."""
    notified: list[str] = []
    turn = begin(node)
    turn.fail("model_execution_failed", notify=lambda: notified.append("sorry"))
    assert notified == ["sorry"]
    assert stores.run(turn.turn_id) == "failed"


def test_the_failure_reply_is_sent_although_the_failure_cannot_be_recorded(stores: Stores) -> None:
    """And the persistence error is raised after it (DL-3)."""
    notified: list[str] = []
    turn = begin(stores.node(store={"lock_timeout_ms": 100}))
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        with pytest.raises(StoreBusy):
            turn.fail("agent_run_failed", notify=lambda: notified.append("sorry"))
    assert notified == ["sorry"]
    assert stores.state(turn.turn_id) == "failed"


def test_when_both_fail_the_persistence_error_carries_the_other(stores: Stores) -> None:
    """Nothing is hidden (DL-3)."""
    turn = begin(stores.node(store={"lock_timeout_ms": 100}))

    def notify() -> None:
        raise VendorError("no")

    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        with pytest.raises(StoreBusy) as refused:
            turn.fail("agent_run_failed", notify=notify)
    assert isinstance(refused.value.__cause__, VendorError)


def test_nobody_is_notified_of_a_turn_that_another_node_holds(stores: Stores, node: Turns) -> None:
    """That node will answer (CK-2, DL-3)."""
    notified: list[str] = []
    turn = begin(node)
    turn.park(reason="waiting")
    stores.node().resume(turn.turn_id)
    with pytest.raises(StaleTurn):
        turn.fail("agent_run_failed", notify=lambda: notified.append("sorry"))
    assert notified == []
