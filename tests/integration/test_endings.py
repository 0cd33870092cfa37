"""How turns end: completed, failed, abandoned; once, and the first end stands."""

from collections.abc import Callable

import pytest

from tests.stores import LEAD, NOTHING, Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import (
    AlreadyHandled,
    Completion,
    CompletionConflict,
    StaleTurn,
    Turn,
    TurnEnded,
    Turns,
)
from turnledger.store import CallRecord, InvalidInput, Message, NoReplyOwed, Replied, Undelivered

FAILURE_CODES = (
    "agent_run_failed",
    "delivery_failed",
    "model_execution_failed",
    "persistence_failed",
    "slice_limit",
    "session_lost",
)


def forget_answer(turn: Turn) -> Turn:
    """As if the reply to `complete` had been lost: only Redis knows the answer."""
    turn._completed = None
    return turn


def test_a_completed_turn_is_pending_until_its_commit(stores: Stores, node: Turns) -> None:
    """The commit is the only moment at which a turn counts as history (QU-1)."""
    turn = begin(node)
    assert turn.complete(reply=Replied("Done")) == Completion(turn.turn_id, turn.entry_id)
    assert (stores.state(turn.turn_id), stores.pending(), stores.entries()) == ("completed", [turn.turn_id], [])
    stores.drain()
    assert (stores.state(turn.turn_id), stores.pending(), stores.run(turn.turn_id)) == ("committed", [], "completed")
    assert [entry["turn_id"] for entry in stores.entries()] == [turn.turn_id]


def test_an_entry_holds_what_was_stated_and_nothing_else(stores: Stores, node: Turns) -> None:
    """Absent fields are absent from the stored JSON (EN-1, EN-2)."""
    bare = begin(node, "First line\nsecond")
    bare.complete(reply=NoReplyOwed())
    full = begin(node, "Again")
    full.complete(
        reply=Replied("Sent", "r-1"),
        set_out_to="Send it",
        reviewer="It landed",
        outcome="blocked",
        blocked_on="A key",
        decision="self_iterate",
    )
    stores.drain()
    first, second = stores.entries()
    assert first == {
        "turn_id": bare.turn_id,
        "entry_id": bare.entry_id,
        "triggered_by": "First line\nsecond",
        "reply": {"kind": "no_reply_owed"},
    }
    assert second == {
        "turn_id": full.turn_id,
        "entry_id": full.entry_id,
        "triggered_by": "Again",
        "set_out_to": "Send it",
        "reviewer": "It landed",
        "outcome": "blocked",
        "blocked_on": "A key",
        "reply": {"kind": "replied", "text": "Sent", "receipt": "r-1"},
        "decision": "self_iterate",
    }


def test_calls_are_those_of_every_save_and_every_slice(stores: Stores, node: Turns) -> None:
    """One line a call id in order of issue; an output that says "error:" is a success (EN-4)."""
    first = begin(node)
    first.save(steps=[calling("c1", arguments='{"q": 1}'), result("c1", "error: not really")])
    first.park(reason="waiting", steps=[calling("c2", "c3")])
    second = stores.node().resume(first.turn_id)
    second.save(steps=[result("c3", error="no room"), result("c2")])
    second.complete(reply=Replied("Done"), steps=[calling("c4")])
    stores.drain()
    assert [(call["call_id"], call["outcome"], call.get("error")) for call in stores.entries()[0]["calls"]] == [
        ("c1", "success", None),
        ("c2", "success", None),
        ("c3", "error", "no room"),
        ("c4", "unknown", None),
    ]
    assert stores.entries()[0]["calls"][0]["arguments"] == {"q": 1}


def test_calls_given_to_complete_replace_those_of_the_steps(stores: Stores, node: Turns) -> None:
    """They never add to them (EN-4)."""
    turn = begin(node)
    turn.save(steps=[calling("c1"), result("c1")])
    turn.complete(reply=Replied("Done"), calls=[CallRecord("send", {"to": "ann"}, "success")])
    stores.drain()
    assert stores.entries()[0]["calls"] == [{"name": "send", "arguments": {"to": "ann"}, "outcome": "success"}]


def test_evidence_of_a_blocker_is_refused_with_another_outcome(stores: Stores, node: Turns) -> None:
    """blocked_on is kept exactly when the outcome is blocked (EN-6)."""
    turn = begin(node)
    with pytest.raises(InvalidInput, match="blocked_on"):
        turn.complete(reply=Replied("Done"), outcome="done", blocked_on="A key")
    assert stores.state(turn.turn_id) == "running"


def test_complete_with_decision_failed_records_an_entry_and_fail_records_none(stores: Stores, node: Turns) -> None:
    """A decision says how the agent judged its turn; `fail` says that there was no turn to judge (EN-7)."""
    judged, broken = begin(node), begin(node)
    judged.complete(reply=Undelivered(""), decision="failed")
    broken.fail("agent_run_failed")
    stores.drain()
    assert [(entry["turn_id"], entry["decision"]) for entry in stores.entries()] == [(judged.turn_id, "failed")]


def test_an_undelivered_reply_is_in_the_entry_and_nowhere_else(stores: Stores, node: Turns) -> None:
    """No message event, no search hit, no assistant step in replayed history (EN-12)."""
    turn = begin(node)
    turn.save(steps=[user("Please fix it")])
    turn.complete(reply=Undelivered("the secret reply"), steps=[assistant("the secret reply")])
    waiting = begin(node)
    assert contents(waiting.history()) == ['{"role":"user","content":"Please fix it"}']
    stores.drain()
    assert contents(waiting.history()) == ['{"role":"user","content":"Please fix it"}']
    assert stores.entries()[0]["reply"] == {"kind": "undelivered", "text": "the secret reply"}
    assert stores.rows("SELECT seq FROM ledger_event WHERE ledger_event::text LIKE '%secret%'") == []


def test_a_reviewer_who_closes_a_turn_does_not_make_its_draft_history(stores: Stores, node: Turns) -> None:
    """Drafted twice, judged, never sent: only the entry has the words (EN-12)."""
    turn = begin(node)
    turn.save(steps=[user("Please fix it"), calling("c1"), result("c1"), assistant("the secret reply")])
    turn.save(steps=[user("Not like this"), assistant("the secret reply"), user("Closed by the reviewer")])
    turn.complete(reply=Undelivered("the secret reply"))
    waiting = begin(node)
    assert [step.role for step in waiting.history()] == ["user", "assistant", "tool"]
    stores.drain()
    assert [step.role for step in waiting.history()] == ["user", "assistant", "tool"]
    assert stores.rows("SELECT seq FROM ledger_event WHERE ledger_event::text LIKE '%secret%'") == []


def test_the_entry_id_is_the_same_in_every_retry(stores: Stores, node: Turns) -> None:
    """It is minted once and kept in the record (EN-10)."""
    turn = begin(node)
    first = turn.complete(reply=Replied("Done"))
    assert first.entry_id == turn.entry_id == node.read(turn.turn_id).record.entry_id
    assert forget_answer(turn).complete(reply=Replied("Done")) == first
    stores.drain()
    assert forget_answer(turn).complete(reply=Replied("Done")) == first
    assert [entry["entry_id"] for entry in stores.entries()] == [turn.entry_id]


def test_the_delivered_reply_is_one_message_with_its_vendor_id(stores: Stores, node: Turns) -> None:
    """Written in the commit transaction, with role and exact text (EV-11)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done\x00", "vendor-9"))
    assert stores.texts() == []
    stores.drain()
    (sent,) = [event for event in stores.events() if event.type == "message"]
    assert (sent.payload.message_id, sent.payload.role, sent.text) == ("vendor-9", "assistant", "Done\x00")


def test_a_completed_turn_names_its_messages_as_handled(stores: Stores, node: Turns) -> None:
    """The commit writes it, once a message (ST-7)."""
    turn = begin(node, messages=[Message("m1", "Hello"), Message("m2", "Hello?"), Message("m1", "Hello")])
    turn.complete(reply=Replied("Hi"))
    stores.drain()
    handled = [event.payload.message_id for event in stores.events() if event.type == "message_handled"]
    assert handled == ["m1", "m2"]


@pytest.mark.parametrize("state", ["completed", "committed"])
def test_a_completed_turn_neither_fails_nor_is_abandoned(stores: Stores, node: Turns, state: str) -> None:
    """Terminal is absorbing, and a completed turn is never lost to a late failure (CK-5)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    if state == "committed":
        stores.drain()
    ends: list[Callable[[], object]] = [lambda: turn.fail("agent_run_failed"), turn.abandon, turn.save]
    for end in ends:
        with pytest.raises(TurnEnded):
            end()
    stores.drain()
    assert (stores.state(turn.turn_id), stores.run(turn.turn_id)) == ("committed", "completed")
    assert stores.types(turn.turn_id) == ["turn_started", "message", "turn_completed"]


@pytest.mark.parametrize("end", ["fail", "abandon"])
def test_a_failed_or_abandoned_turn_stays_what_it_is(stores: Stores, node: Turns, end: str) -> None:
    """Terminal is absorbing (CK-5)."""
    turn = begin(node)
    ends: dict[str, Callable[[], None]] = {"fail": lambda: turn.fail("agent_run_failed"), "abandon": turn.abandon}
    ends.pop(end)()
    (other,) = ends.values()
    state = stores.state(turn.turn_id)
    later: list[Callable[[], object]] = [other, lambda: turn.complete(reply=Replied("Done")), turn.save]
    for refused in later:
        with pytest.raises(TurnEnded):
            refused()
    assert stores.state(turn.turn_id) == state
    assert stores.types(turn.turn_id) == ["turn_started", "turn_failed"]


def test_an_end_that_is_repeated_writes_one_terminal(stores: Stores, node: Turns) -> None:
    """A replayed call gets its first answer (CK-5, EV-6)."""
    failed, abandoned = begin(node), begin(node)
    for _ in range(2):
        failed.fail("model_execution_failed", failure_id="f-1")
        abandoned.abandon()
    assert stores.types(failed.turn_id) == stores.types(abandoned.turn_id) == ["turn_started", "turn_failed"]
    assert (stores.run(failed.turn_id), stores.run(abandoned.turn_id)) == ("failed", "abandoned")


@pytest.mark.parametrize("code", FAILURE_CODES)
def test_a_failure_is_recorded_with_its_code_and_opaque_id(stores: Stores, node: Turns, code: str) -> None:
    """Every allow-listed code is recorded (EV-6)."""
    turn = begin(node)
    turn.fail(code, failure_id="f-1")
    terminal = stores.events()[-1]
    assert (terminal.type, terminal.payload.code, terminal.payload.failure_id) == ("turn_failed", code, "f-1")
    assert stores.run(turn.turn_id) == "failed"


def test_an_unknown_failure_code_is_refused(stores: Stores, node: Turns) -> None:
    """Codes are allow-listed; the turn goes on (EV-6)."""
    turn = begin(node)
    with pytest.raises(InvalidInput, match=r"'oops'.*agent_run_failed"):
        turn.fail("oops")
    with pytest.raises(InvalidInput, match=r"'oops'.*agent_run_failed"):
        turn.stop("oops")
    assert stores.state(turn.turn_id) == "running"
    assert stores.types(turn.turn_id) == ["turn_started"]


def test_another_completion_of_a_completed_turn_is_refused(stores: Stores, node: Turns) -> None:
    """By the handle itself and, where it has forgotten, by Redis; the first stands (CK-5)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    for _ in range(2):
        with pytest.raises(CompletionConflict):
            turn.complete(reply=Replied("Something else"), steps=[assistant("Done")])
        with pytest.raises(CompletionConflict):
            turn.complete(reply=Replied("Done"), steps=[assistant("Other")])
        forget_answer(turn)
    stores.drain()
    assert stores.entries()[0]["reply"]["text"] == "Done"


def test_a_replayed_completion_gets_its_first_answer(stores: Stores) -> None:
    """From the spare copy, and once that is gone from Postgres (CK-5)."""
    turn = begin(stores.node(spare_copy_s=0.2))
    stores.records._spare_ms = 200
    first = turn.complete(reply=Replied("Done"))
    stores.drain()
    assert forget_answer(turn).complete(reply=Replied("Done")) == first
    stores.redis.pexpire(stores.keys.record(turn.turn_id), 0)
    assert forget_answer(turn).complete(reply=Replied("Done")) == first
    assert len(stores.entries()) == 1


def two_runs_of_one_key(stores: Stores) -> tuple[Turn, Turn]:
    """Redis lost sight of the first run, so a second began; then the first came back into sight."""
    first = begin(stores.node(), work_key="k")
    stores.redis.srem(stores.keys.open(LEAD), first.turn_id)
    second = begin(stores.node(), work_key="k", messages=[Message("m", "Hello")])
    stores.redis.sadd(stores.keys.open(LEAD), first.turn_id)
    return first, second


@pytest.mark.parametrize("grouped", ["in one group", "one after the other"])
def test_of_two_completions_of_one_work_key_the_first_stands(stores: Stores, grouped: str) -> None:
    """The second adds one terminal that names the first, and nothing else (ST-5)."""
    late, early = two_runs_of_one_key(stores)
    early.complete(reply=Replied("Early", "r1"), steps=[assistant("Early")])
    if grouped == "one after the other":
        stores.drain()
    answer = late.complete(reply=Replied("Late", "r2"), steps=[assistant("Late")])
    assert answer == Completion(early.turn_id, early.entry_id, duplicate=True)
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()] == [early.turn_id]
    assert stores.types(late.turn_id) == ["turn_started", "turn_duplicate"]
    assert stores.events()[-1].payload.duplicate_of == early.turn_id
    assert stores.texts() == ["Hello", "Early"]
    assert contents(begin(stores.node()).history()) == ['{"role":"assistant","content":"Early"}']
    assert stores.head().turn_count == 1
    assert (stores.state(late.turn_id), stores.pending()) == ("committed", [])


def test_the_second_run_of_a_completed_work_key_cannot_be_resumed(stores: Stores) -> None:
    """A turn whose work another run of its key has committed is named as handled, with one terminal (CK-11)."""
    late, early = two_runs_of_one_key(stores)
    late.park(reason="waiting")
    early.complete(reply=Replied("Early"))
    stores.drain()
    with pytest.raises(AlreadyHandled) as refused:
        stores.node().resume(late.turn_id)
    assert (refused.value.turn_id, refused.value.entry_id) == (early.turn_id, early.entry_id)
    assert stores.types(late.turn_id) == ["turn_started", "turn_duplicate"]
    assert (stores.state(late.turn_id), stores.run(late.turn_id)) == ("abandoned", "duplicate")


def test_a_completion_by_a_former_owner_is_refused_at_the_commit_point(stores: Stores, node: Turns) -> None:
    """After a failover that lost the take-over, the epoch in Postgres still knows (CK-2, QU-6)."""
    former = begin(node)
    former.park(reason="waiting")
    record = stores.redis.hgetall(stores.keys.record(former.turn_id))
    current = stores.node().resume(former.turn_id)
    stores.redis.hset(stores.keys.record(former.turn_id), mapping=record)  # type: ignore[arg-type]  # a hash read back
    former.complete(reply=Replied("Stale"))
    with pytest.raises(Exception, match="superseded"):
        stores.drain()
    assert (stores.state(former.turn_id), stores.entries()) == ("rejected", [])
    with pytest.raises((StaleTurn, TurnEnded)):
        current.save(steps=[user("x")])


def test_a_turn_without_conversation_is_committed_at_once_and_leaves_nothing_in_postgres(
    stores: Stores, node: Turns
) -> None:
    """Source `event` runs and checkpoints, without row and without job (ID-4, EN-9)."""
    turn = node.start(
        agent="lead", conversation="event:3f0c", triggered_by="It is nine", work_key="k", messages=[Message("m", "x")]
    )
    turn.save(steps=[user("It is nine")])
    assert contents(node.read(turn.turn_id).steps) == ['{"role":"user","content":"It is nine"}']
    turn.park(reason="waiting")
    turn = stores.node().resume(turn.turn_id)
    answer = turn.complete(reply=NoReplyOwed(), steps=[assistant("Good morning")])
    assert answer == Completion(turn.turn_id, turn.entry_id)
    assert forget_answer(turn).complete(reply=NoReplyOwed(), steps=[assistant("Good morning")]) == answer
    assert stores.state(turn.turn_id) == "committed"
    assert (turn.earlier, turn.history(), stores.redis.exists(stores.keys.queue, stores.keys.backlog)) == ("", [], 0)
    assert {**stores.written(), "redis": 0} == NOTHING


@pytest.mark.parametrize("end", ["fail", "abandon"])
def test_a_turn_without_conversation_may_fail(stores: Stores, node: Turns, end: str) -> None:
    """It writes no terminal, for there is no ledger (ID-4)."""
    turn = node.start(agent="lead", conversation="event:3f0c", triggered_by="It is nine")
    if end == "fail":
        turn.fail("agent_run_failed")
    else:
        turn.abandon()
    assert stores.rows("SELECT * FROM ledger") == []
    with pytest.raises(TurnEnded):
        turn.complete(reply=NoReplyOwed())


def test_ordinals_count_every_recorded_turn(stores: Stores, node: Turns) -> None:
    """From 1, trimmed turns included (EN-11, RT-3)."""
    for number in range(5):
        begin(node, work_key=f"k{number}").complete(reply=Replied(str(number)))
    stores.drain(max_entries=2)
    assert stores.rows("SELECT ordinal FROM ledger_entry ORDER BY ordinal") == [(4,), (5,)]
    assert "(3 earlier turns are no longer stored.)" in begin(node).earlier
