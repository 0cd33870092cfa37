"""A direct message is one conversation however it is threaded: from the payload to the block."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.stores import Stores
from turnledger.checkpoint import Turn, Turns
from turnledger.store import LedgerName, Message, Replied, conversations, work_key
from turnledger.store.conversations import partition_key

Payload = Mapping[str, Any]

# As the vendors send them, less what nobody here looks at.
SLACK_OUTSIDE: Payload = {
    "event_id": "Ev1",
    "event": {
        "type": "message",
        "channel": "D4",
        "channel_type": "im",
        "user": "U1",
        "ts": "1719.5",
        "text": "Book Oslo",
    },
}
SLACK_THREAD: Payload = {
    "event_id": "Ev2",
    "event": {
        "type": "message",
        "channel": "D4",
        "channel_type": "im",
        "user": "U1",
        "ts": "1720.1",
        "thread_ts": "1717.2",
        "text": "And a hotel",
    },
}
MATTERMOST_OUTSIDE: Payload = {
    "event": "posted",
    "data": {"channel_type": "D", "sender_name": "@ada"},
    "post": {"id": "p1", "channel_id": "c1", "root_id": "", "message": "Book Oslo"},
}
MATTERMOST_THREAD: Payload = {
    "event": "posted",
    "data": {"channel_type": "D", "sender_name": "@ada"},
    "post": {"id": "p3", "channel_id": "c1", "root_id": "p0", "message": "And a hotel"},
}


def _slack(payload: Payload) -> tuple[str | None, str | None, Message]:
    event = payload["event"]
    key = conversations.slack(
        event["channel"],
        channel_type=event.get("channel_type"),
        thread_root=event.get("thread_ts"),
        ts=event["ts"],
    )
    return key, event.get("thread_ts"), Message(event["ts"], event["text"], event["user"])


def _mattermost(payload: Payload) -> tuple[str | None, str | None, Message]:
    post = payload["post"]
    key = conversations.mattermost(
        post["channel_id"],
        channel_type=payload["data"]["channel_type"],
        root_id=post["root_id"],
        post_id=post["id"],
    )
    return key, post["root_id"], Message(post["id"], post["message"], payload["data"]["sender_name"])


READERS = {"slack": _slack, "mattermost": _mattermost}
PAYLOADS = {
    "slack": (SLACK_OUTSIDE, SLACK_THREAD),
    "mattermost": (MATTERMOST_OUTSIDE, MATTERMOST_THREAD),
}


def _start(node: Turns, source: str, payload: Payload) -> Turn:
    key, _, message = READERS[source](payload)
    assert key is not None
    return node.start(
        agent="lead",
        conversation=key,
        work_key=work_key([message.message_id]),
        triggered_by=message.text,
        messages=[message],
    )


@pytest.mark.parametrize("state", ["committed", "completed"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["then its thread", "then outside"])
@pytest.mark.parametrize("source", READERS)
def test_a_turn_in_a_direct_thread_sees_the_turn_outside(
    stores: Stores, source: str, order: tuple[int, int], state: str
) -> None:
    """On another node, whichever came first, committed or not (BL-12, ID-3)."""
    first, second = (PAYLOADS[source][place] for place in order)
    turn = _start(stores.node(), source, first)
    turn.complete(reply=Replied("It is booked."))
    if state == "committed":
        stores.drain()
    assert stores.state(turn.turn_id) == state
    later = _start(stores.node(), source, second)
    assert later.ledger == turn.ledger
    assert f"(turn {turn.turn_id})" in later.earlier
    assert f"Triggered by: {READERS[source](first)[2].text}\n" in later.earlier
    assert later.earlier.endswith("You replied: It is booked.")


@pytest.mark.parametrize("source", READERS)
def test_an_inbox_keeps_them_apart(source: str) -> None:
    """The thread is coalesced by itself, although the conversation is one (ID-3)."""
    partitions = set()
    for payload in PAYLOADS[source]:
        key, root, message = READERS[source](payload)
        assert key is not None
        partitions.add(partition_key(key, thread_root=root, own_id=message.message_id))
    assert len(partitions) == 2


def test_threads_of_a_shared_channel_stay_apart(stores: Stores, node: Turns) -> None:
    """The rule is one of direct messages (ID-2, BL-12)."""
    shared = [{**each, "event": {**each["event"], "channel": "C9", "channel_type": "channel"}}
              for each in PAYLOADS["slack"]]  # fmt: skip
    _start(node, "slack", shared[0]).complete(reply=Replied("It is booked."))
    other = _start(node, "slack", shared[1])
    assert other.earlier == ""
    assert other.ledger == LedgerName("lead", "slack:C9:1717.2")
