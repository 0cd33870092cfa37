"""What an entry says of a turn that went through several rounds, processes and troubles."""

import inspect
from datetime import UTC, datetime

import pytest

from tests.stores import Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import Turn, Turns
from turnledger.checkpoint.turn import AccountFields
from turnledger.store import (
    InvalidInput,
    Message,
    NoReplyOwed,
    Replied,
    Step,
    Undelivered,
    anthropic_step,
    merged_ask,
    openai_step,
)

LONG = "é" * 6_000 + "\n## Task\n```\n\x00 \u202e \ud800 𝄞"
NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)


def finish(stores: Stores, turn: Turn) -> dict[str, object]:
    """Complete it and commit it; the stored entry."""
    turn.complete(reply=NoReplyOwed())
    stores.drain()
    (entry,) = [each for each in stores.entries() if each["turn_id"] == turn.turn_id]
    return dict(entry)


def called(entry: dict[str, object]) -> list[tuple[str, str, str | None]]:
    calls = entry.get("calls")
    assert isinstance(calls, list)
    return [(call["name"], call["outcome"], call.get("kind")) for call in calls]


def test_a_coalesced_ask_is_kept_whole(stores: Stores, node: Turns) -> None:
    """The digest with every message is `triggered_by`, and stands in the next block (EN-2)."""
    messages = [
        Message("m1", LONG, "ada", sent_at=NINE),
        Message("m2", "+1", "ben"),
        Message("m3", "+1", "cleo"),
        Message("m4", "Now, please.", "ada"),
    ]
    ask = merged_ask(messages)
    turn = begin(node, ask, messages=messages)
    assert finish(stores, turn)["triggered_by"] == ask
    block = begin(node).earlier
    assert block.count("\n> > +1\n") == 2
    assert "\n> The latest, from ada:\n> > Now, please.\n" in block
    assert stores.texts() == [LONG, "+1", "+1", "Now, please."]


def test_calls_survive_a_compaction_and_another_process(stores: Stores, node: Turns) -> None:
    """Also those of steps that a replacement of history covers (EN-4)."""
    turn = begin(node)
    turn.save(steps=[user("q"), calling("c1", name="one"), result("c1")])
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m-1")
    turn.save(steps=[calling("c2", name="two"), result("c2", error="no")])
    turn.park(reason="waiting")
    turn = stores.node().resume(turn.turn_id)
    turn.save(steps=[calling("c3", name="three"), result("c3")])
    assert called(finish(stores, turn)) == [
        ("one", "success", None),
        ("two", "error", None),
        ("three", "success", None),
    ]


def test_calls_of_both_vendors_say_whether_they_read(stores: Stores, node: Turns) -> None:
    """A kind that was stated is kept; one that was not is a write (EN-4)."""
    turn = begin(node)
    asked = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "é"}'}}
    turn.save(
        steps=[
            openai_step({"role": "assistant", "content": None, "tool_calls": [asked]}, kinds={"find": "read"}),
            result("c1", "error: this is what was found"),
            anthropic_step(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c2", "name": "book", "input": {"n": 2}}]}
            ),
            anthropic_step(
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": "full"}],
                }
            ),
        ]
    )
    assert called(finish(stores, turn)) == [("find", "success", "read"), ("book", "error", None)]
    earlier = begin(node).earlier
    assert '- find({"q": "é"}) → success (read)\n- book({"n": 2}) → error: full' in earlier
    assert "this is what was found" not in earlier


def test_calls_of_a_turn_that_redis_forgot_are_all_there(stores: Stores, node: Turns) -> None:
    """The handle keeps its steps, so that a commit past the queue is whole (EN-4, FL-3)."""
    turn = begin(node)
    turn.save(steps=[calling("c1", name="one"), result("c1")])
    stores.redis.flushall()
    turn.complete(reply=Replied("Done"), steps=[calling("c2", name="two")])
    (entry,) = stores.entries()
    assert called(entry) == [("one", "success", None), ("two", "unknown", None)]


def test_a_reviewers_notes_have_no_place(node: Turns) -> None:
    """Neither a field to store them in nor an argument to give them (EN-5)."""
    assert sorted(AccountFields.__annotations__) == [
        "blocked_on", "calls", "decision", "fitting", "outcome", "reviewer", "set_out_to"
    ]  # fmt: skip
    assert set(inspect.signature(Turn.complete).parameters) == {"self", "reply", "steps", "account"}


@pytest.mark.parametrize("decision", ["done", "failed", None])
def test_evidence_of_a_blocker_is_kept_whatever_the_decision(stores: Stores, node: Turns, decision: str | None) -> None:
    """And shown to the next turn (EN-6)."""
    turn = begin(node)
    turn.complete(reply=Replied("I need a key."), outcome="blocked", blocked_on="No key", decision=decision)
    stores.drain()
    assert stores.entries()[0]["blocked_on"] == "No key"
    assert "You ended that turn blocked: No key" in begin(node).earlier


def test_every_field_is_kept_verbatim(stores: Stores, node: Turns) -> None:
    """6,000 characters each, with what no terminal would like (EN-8)."""
    turn = begin(node, LONG)
    turn.complete(
        reply=Undelivered(LONG), set_out_to=LONG, reviewer=LONG, outcome="blocked", blocked_on=LONG, decision="failed"
    )
    stores.drain()
    (entry,) = stores.entries()
    assert {name for name, value in entry.items() if value == LONG} == {
        "triggered_by", "set_out_to", "reviewer", "blocked_on"
    }  # fmt: skip
    assert entry["reply"] == {"kind": "undelivered", "text": LONG}


def test_a_reply_of_five_megabytes_is_kept_verbatim(stores: Stores, node: Turns) -> None:
    """And is the whole of the next block, since the newest entry is never cut (EN-8, BL-5)."""
    reply = "word " * 1_000_000
    turn = begin(node)
    turn.complete(reply=Replied(reply))
    stores.drain()
    assert stores.entries()[0]["reply"]["text"] == reply
    assert begin(node).earlier.endswith(f"You replied: {reply}")


def test_a_suspended_turn_records_once_under_its_own_ids(stores: Stores, node: Turns) -> None:
    """A park leaves no entry; the resumption that completes leaves one (EN-9)."""
    turn = begin(node, "Please", work_key="k")
    turn.park(reason="authorization", steps=[user("Please"), calling("c1")])
    stores.drain()
    assert stores.entries() == []
    resumed = stores.node().resume(turn.turn_id)
    assert resumed.triggered_by == "Please"
    resumed.complete(reply=Replied("Done"), steps=[result("c1"), assistant("Done")])
    stores.drain()
    (entry,) = stores.entries()
    assert (entry["turn_id"], entry["entry_id"]) == (turn.turn_id, turn.entry_id)
    assert stores.rows("SELECT turn_id, work_key, ordinal FROM ledger_entry") == [(turn.turn_id, "k", 1)]


def test_a_crashed_turn_is_not_recorded(stores: Stores, node: Turns) -> None:
    """Nobody said how it ended; its messages are in the log all the same (EN-9)."""
    crashed = begin(stores.node(), messages=[Message("m1", "Please")])
    crashed.save(steps=[user("Please")])
    stores.redis.flushall()
    stores.drain()
    assert (stores.entries(), stores.texts()) == ([], ["Please"])
    assert begin(node).earlier == ""


def test_the_turn_that_was_taken_up_too_often_keeps_its_calls(stores: Stores) -> None:
    """Of every slice, the last included (EN-13, EN-4)."""
    node = stores.node(slices=2)
    turn = begin(node)
    turn.park(reason="again", steps=[calling("c1", name="one"), result("c1")])
    node.resume(turn.turn_id).park(reason="again", steps=[calling("c2", name="two")])
    with pytest.raises(Exception, match="taken up 3 times"):
        node.resume(turn.turn_id)
    block = begin(node).earlier
    assert "You called:\n- one() → success\n- two() → unknown\nYou did NOT reply: nobody received anything." in block
    assert block.endswith("Turn ended: failed")


def test_an_undelivered_reply_is_in_no_transcript(stores: Stores, node: Turns) -> None:
    """Nor in any event, whatever wrote it; only the entry has it (EN-12)."""
    final: Step = assistant("never sent")
    turn = begin(node, messages=[Message("m1", "Please")])
    turn.complete(reply=Undelivered("never sent"), steps=[user("Please"), final])
    stores.drain()
    assert "You did NOT reply: nobody received this text: never sent" in begin(node).earlier
    assert stores.texts() == ["Please"]
    assert contents(begin(node).history()) == ['{"role":"user","content":"Please"}']
    assert stores.rows("SELECT seq FROM ledger_event WHERE ledger_event::text LIKE '%never sent%'") == []


def test_a_reply_has_no_default(node: Turns) -> None:
    """Whoever completes a turn says what became of the reply (EN-3)."""
    turn = begin(node)
    with pytest.raises(TypeError, match="reply"):
        turn.complete()  # type: ignore[call-arg]  # the fault that is tested
    with pytest.raises(InvalidInput, match="reply must be"):
        turn.complete(reply=None)  # type: ignore[arg-type]  # the fault that is tested
