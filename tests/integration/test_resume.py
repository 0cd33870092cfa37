"""Taking a turn over: by whom, with what, and what becomes of its former holder."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.processes import Processes
from tests.reconciling import lapse
from tests.stores import LEAD, Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import (
    AlreadyHandled,
    AlreadyRunning,
    CheckpointMisconfigured,
    StaleTurn,
    Turn,
    TurnBlocked,
    TurnEnded,
    TurnNotFound,
    Turns,
)
from turnledger.store import Answer, Call, Replied, SchemaMismatch, Step, StoreBusy, Usage
from turnledger.store.crash_points import CRASH_POINTS

BRIEF: dict[str, Any] = {"lease_s": 0.3, "renew_s": 60.0}  # a holder that says nothing between its saves
TORTURE = '{"b":1,"a":1.0,"n":[1e400,-0.0,0.10,12345678901234567890,1E5],"a":2,"s":"\\u0000\\ud800\\/\\u00e9 é"} '


def record_of(stores: Stores, turn: Turn) -> dict[str, Any]:
    found: dict[str, Any] = stores.redis.hgetall(stores.keys.record(turn.turn_id))  # type: ignore[assignment]  # never awaited
    return found


def test_a_parked_turn_is_resumed_with_its_steps_byte_for_byte(stores: Stores, node: Turns) -> None:
    """From any node, each assistant step with its backend, model, tools digest and usage (CK-6)."""
    steps = [
        Step.raw(role="user", content=TORTURE),
        Step.raw(
            role="assistant",
            content='{ "x" : 1 }',
            calls=[Call("c1", "look", '{"b":1,"a":1.50}', "read")],
            backend="openai",
            model="m-1",
            tools_digest="d41d",
            usage=Usage(10, 2, 3),
        ),
        Step.of(role="tool", content=["\x00\ud800\x1a"], answers=[Answer("c1", "error", "no\x00")]),
    ]
    turn = begin(node)
    turn.save(steps=steps[:1])
    turn.park(reason="waiting", steps=steps[1:], bootstrap={"k": ["v\x00", 1.5]})
    again = stores.node().resume(turn.turn_id)
    assert list(again.steps) == steps
    assert again.steps[0].content == TORTURE
    assert again.bootstrap == {"k": ["v\x00", 1.5]}
    assert (again.slice, again.entry_id, again.work_key, again.ledger) == (2, turn.entry_id, "", LEAD)


def test_tools_that_have_changed_are_reported_and_the_caller_decides(stores: Stores, node: Turns) -> None:
    """By the digests of assistant steps; nobody is told who did not ask (CK-6)."""
    turn = begin(node)
    turn.save(steps=[Step.of(role="user", content="q", tools_digest="of nobody")])
    turn.save(steps=[Step.of(role="assistant", content="a", tools_digest=digest) for digest in ("new", "old", "old")])
    turn.save(steps=[assistant("no digest")])
    for now, reported in (("new", ("old",)), ("newest", ("new", "old")), (None, ())):
        turn.park(reason="waiting")
        turn = stores.node().resume(turn.turn_id, tools_digest=now)
        assert turn.other_tools == reported
        turn.save(steps=[user("go on")])


def test_the_block_is_frozen_for_the_whole_turn(stores: Stores, node: Turns) -> None:
    """The same bytes on every node, although the ledger went on meanwhile; in no row of Postgres (BL-6)."""
    begin(node, "One").complete(reply=Replied("marker-of-the-block"))
    turn = begin(node, "Two")
    turn.park(reason="waiting")
    stores.drain()
    begin(node, "Three").complete(reply=Replied("Three done"))
    stores.drain(max_entries=1)
    again = stores.node().resume(turn.turn_id)
    assert again.earlier == turn.earlier == node.read(turn.turn_id).record.earlier
    assert again.earlier.count("marker-of-the-block") == 1
    again.complete(reply=Replied("Two done"), steps=[user("Two")])
    stores.drain()
    assert stores.rows("SELECT 1 FROM ledger_event WHERE ledger_event::text LIKE '%Earlier in this conv%'") == []
    assert stores.rows("SELECT 1 FROM ledger_entry WHERE ledger_entry::text LIKE '%Earlier in this conv%'") == []


def test_a_running_turn_is_not_taken_from_a_living_holder(stores: Stores, node: Turns) -> None:
    """The other node is told who has it, and nothing changes (CK-11)."""
    turn = begin(node)
    before = record_of(stores, turn)
    with pytest.raises(AlreadyRunning) as refused:
        stores.node().resume(turn.turn_id)
    assert (refused.value.turn_id, refused.value.owner, refused.value.state) == (
        turn.turn_id,
        before["owner"],
        "running",
    )
    assert record_of(stores, turn) == before
    turn.save(steps=[user("x")])


def put_back(stores: Stores, turn: Turn, record: dict[str, Any]) -> None:
    """Redis forgot everything since this was the turn's record."""
    stores.redis.delete(stores.keys.record(turn.turn_id))
    stores.redis.hset(stores.keys.record(turn.turn_id), items=[item for pair in record.items() for item in pair])


WRITES: list[Callable[[Turn], object]] = [
    lambda turn: turn.save(steps=[user("x")]),
    lambda turn: turn.park(reason="x"),
    lambda turn: turn.complete(reply=Replied("x")),
    lambda turn: turn.fail("agent_run_failed"),
    lambda turn: turn.abandon(),
]


@pytest.mark.parametrize("write", WRITES, ids=["save", "park", "complete", "fail", "abandon"])
def test_a_former_holder_writes_nothing(stores: Stores, write: Callable[[Turn], object]) -> None:
    """Refused with nothing written, in Redis or Postgres (CK-2)."""
    former = begin(stores.node(**BRIEF))
    former.save(steps=[user("one")])
    lapse(stores, former)
    current = stores.node().resume(former.turn_id)
    before, events = record_of(stores, former), len(stores.events())
    with pytest.raises(StaleTurn) as refused:
        write(former)
    assert refused.value.turn_id == former.turn_id
    assert (record_of(stores, former), len(stores.events())) == (before, events)
    current.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.types(former.turn_id) == ["turn_started", "agent_step", "message", "turn_completed"]


def test_a_take_over_raises_the_epoch_in_postgres(stores: Stores, node: Turns) -> None:
    """And the record knows it (CK-2)."""
    turn = begin(node)
    for epoch in (2, 3):
        lapse(stores, turn)
        stores.node().resume(turn.turn_id)
        assert stores.rows("SELECT epoch FROM ledger_turn") == [(epoch,)]
        assert record_of(stores, turn)["epoch"] == str(epoch)


def test_a_holder_that_comes_back_before_a_take_over_goes_on(stores: Stores) -> None:
    """A lapsed lease changes nothing by itself (CK-11)."""
    turn = begin(stores.node(renew_s=60.0))
    lapse(stores, turn)
    turn.save(steps=[user("x")])
    with pytest.raises(AlreadyRunning):
        stores.node().resume(turn.turn_id)
    turn.complete(reply=Replied("Done"))


def test_a_lease_is_kept_through_a_long_tool_call(stores: Stores) -> None:
    """A holder that says nothing for longer keeps its turn, and its record does not expire (CK-11)."""
    turn = begin(stores.node(lease_s=2, renew_s=0.1, unfinished_expiry_s=2.5))
    other = stores.node()
    for _ in range(15):
        time.sleep(0.2)
        with pytest.raises(AlreadyRunning):
            other.resume(turn.turn_id)
    turn.save(steps=[user("x")])
    turn.complete(reply=Replied("Done"))


def test_a_dropped_handle_loses_its_lease(stores: Stores) -> None:
    """An engine that forgets its turn does not hold it for ever (CK-11)."""
    node = stores.node(lease_s=0.3, renew_s=0.1)
    turn_id = begin(node).turn_id
    time.sleep(0.5)
    assert stores.node().resume(turn_id).slice == 2


def test_a_parked_turn_is_renewed_no_more(stores: Stores) -> None:
    """park lets go at once (CK-11)."""
    turn = begin(stores.node(renew_s=0.05))
    turn.park(reason="waiting")
    time.sleep(0.15)
    assert record_of(stores, turn)["lease_until"] == "0"
    assert (record_of(stores, turn)["state"], record_of(stores, turn)["reason"]) == ("parked", "waiting")


def test_of_two_nodes_that_resume_at_once_one_has_the_turn(stores: Stores, node: Turns) -> None:
    """The other is told who has it (CK-11)."""
    nodes = [stores.node(), stores.node()]
    for _ in range(15):
        turn = begin(node)
        turn.park(reason="waiting")
        won, lost = race([partial(each.resume, turn.turn_id) for each in nodes])
        assert [type(error) for error in lost] == [AlreadyRunning]
        (winner,) = won
        assert lost[0].owner == record_of(stores, turn)["owner"]  # type: ignore[attr-defined]  # AlreadyRunning
        winner.complete(reply=Replied("Done"))


def race(calls: list[Callable[[], Turn]]) -> tuple[list[Turn], list[Exception]]:
    """Call all at once; what they returned and what they raised."""
    start = threading.Barrier(len(calls))
    won: list[Turn] = []
    lost: list[Exception] = []

    def run(call: Callable[[], Turn]) -> None:
        start.wait()
        try:
            won.append(call())
        except Exception as error:  # noqa: BLE001  # the test judges it
            lost.append(error)

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, lost


def test_a_resume_that_is_overtaken_is_fenced_like_any_other(
    stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause after its last write does not give it the other's token (CK-2)."""
    turn = begin(node)
    turn.park(reason="waiting")
    slow, quick = stores.node(), stores.node()
    save = slow._records.save
    current: list[Turn] = []

    def save_then_pause(*arguments: object, **named: object) -> object:
        claim = save(*arguments, **named)  # type: ignore[arg-type]  # handed on as they came
        lapse(stores, turn)
        current.append(quick.resume(turn.turn_id))
        return claim

    monkeypatch.setattr(slow._records, "save", save_then_pause)
    former = slow.resume(turn.turn_id)
    monkeypatch.undo()
    with pytest.raises(StaleTurn):
        former.save(steps=[user("x")])
    current[0].complete(reply=Replied("Done"))


@pytest.mark.parametrize("committed", ["pending", "committed"])
def test_a_completed_turn_cannot_be_resumed(stores: Stores, node: Turns, committed: str) -> None:
    """It is named as handled, with its entry (CK-11)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    if committed == "committed":
        stores.drain()
    with pytest.raises(AlreadyHandled) as refused:
        stores.node().resume(turn.turn_id)
    assert (refused.value.turn_id, refused.value.entry_id) == (turn.turn_id, turn.entry_id)


def test_a_turn_that_redis_forgot_was_committed_cannot_be_resumed(stores: Stores, node: Turns) -> None:
    """Postgres decides: its row of the run is the evidence (CK-11, FL-8)."""
    turn = begin(node)
    turn.park(reason="waiting")
    record = record_of(stores, turn)
    turn = stores.node().resume(turn.turn_id)
    turn.complete(reply=Replied("Done"))
    stores.drain()
    put_back(stores, turn, record)
    with pytest.raises(AlreadyHandled) as refused:
        stores.node().resume(turn.turn_id)
    assert refused.value.turn_id == turn.turn_id
    assert stores.state(turn.turn_id) == "committed"
    assert stores.types(turn.turn_id) == ["turn_started", "message", "turn_completed"]


@pytest.mark.parametrize("end", ["failed", "abandoned"])
def test_a_turn_that_redis_forgot_had_ended_cannot_be_resumed(stores: Stores, node: Turns, end: str) -> None:
    """Otherwise it would run on and be refused at its commit (CK-5, RC-5)."""
    turn = begin(node)
    turn.park(reason="waiting")
    record = record_of(stores, turn)
    again = stores.node().resume(turn.turn_id)
    if end == "failed":
        again.fail("agent_run_failed")
    else:
        again.abandon()
    put_back(stores, turn, record)
    with pytest.raises(TurnEnded) as refused:
        stores.node().resume(turn.turn_id)
    assert refused.value.state == end
    assert stores.state(turn.turn_id) == end
    assert stores.types(turn.turn_id) == ["turn_started", "turn_failed"]


def test_a_turn_that_is_not_there_is_not_found(stores: Stores, node: Turns) -> None:
    """Clearly, for resume, read and abandon (CK-6)."""
    for call in (node.resume, node.read, node.abandon):
        with pytest.raises(TurnNotFound, match="turn-nobody-knows"):
            call("turn-nobody-knows")


def test_a_resume_follows_a_newer_history(stores: Stores, node: Turns) -> None:
    """Postgres wins: the cursor moves on, the bootstrap is dropped, the own steps stay (CK-7, HV-6)."""
    turn = begin(node)
    turn.save(steps=[user("one")], bootstrap={"kept": "under version 0"})
    turn.park(reason="waiting", bootstrap={"kept": "under version 0"})
    stores.execute("UPDATE ledger SET history_version = 1")
    resumed = stores.node().resume(turn.turn_id)
    assert (resumed.cursor.history_version, resumed.bootstrap) == (1, None)
    assert [step.value["content"] for step in resumed.steps] == ["one"]
    assert record_of(stores, turn)["bootstrap"] == ""


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE ledger SET next_seq = 0", "cursor_ahead"),
        (
            "SET LOCAL turnledger.maintenance = 'renumbering'; UPDATE ledger_event SET turn_id = 'other'",
            "other_history",
        ),
    ],
)
def test_a_turn_whose_history_is_lost_is_blocked_and_may_still_complete(
    stores: Stores, node: Turns, damage: str, reason: str
) -> None:
    """Refused loudly for resume; whoever holds it completes it all the same (CK-9, RC-3)."""
    turn = begin(node)
    turn.park(reason="waiting")
    stores.execute(damage)
    for _ in range(2):
        with pytest.raises(TurnBlocked) as refused:
            stores.node().resume(turn.turn_id)
        assert refused.value.reason == reason
    assert stores.state(turn.turn_id) == "parked"
    turn.complete(reply=Replied("Done"))
    assert stores.state(turn.turn_id) == "completed"


def test_a_resume_that_postgres_does_not_answer_lets_go_again(stores: Stores, node: Turns) -> None:
    """The turn stays parked, for the same reason as before, and another try succeeds (CK-11)."""
    turn = begin(node)
    turn.park(reason="approval")
    impatient = stores.node(store={"lock_timeout_ms": 100})
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        with pytest.raises(StoreBusy):
            impatient.resume(turn.turn_id)
    assert (record_of(stores, turn)["state"], record_of(stores, turn)["reason"]) == ("parked", "approval")
    impatient.resume(turn.turn_id).complete(reply=Replied("Done"))


@pytest.mark.parametrize("state", ["parked", "running"])
def test_a_record_of_another_format_is_refused_and_left_untouched(stores: Stores, node: Turns, state: str) -> None:
    """By resume, read and a start with its id (CK-15)."""
    turn = begin(node, turn_id="t-1")
    if state == "parked":
        turn.park(reason="waiting")
    lapse(stores, turn)
    stores.redis.hset(stores.keys.record(turn.turn_id), "format", "99")
    before = record_of(stores, turn)
    for call in (node.resume, node.read, node.abandon, lambda turn_id: begin(node, turn_id=turn_id)):
        with pytest.raises(CheckpointMisconfigured, match=r"'99'.*'1'"):
            call(turn.turn_id)
    assert record_of(stores, turn) == before


@pytest.mark.parametrize("call", ["start", "resume"])
def test_a_node_refuses_a_schema_of_another_revision(stores: Stores, node: Turns, call: str) -> None:
    """Before it has written anything; both revisions are named (CK-15)."""
    turn = begin(node)
    turn.park(reason="waiting")
    before = record_of(stores, turn)
    ((revision,),) = stores.rows("SELECT version_num FROM alembic_version")
    stores.execute("UPDATE alembic_version SET version_num = '9999'")
    try:
        with pytest.raises(SchemaMismatch, match=f"9999.*{revision}"):
            stores.node().resume(turn.turn_id) if call == "resume" else begin(stores.node())
    finally:
        stores.execute("UPDATE alembic_version SET version_num = %s", revision)
    assert record_of(stores, turn) == before


def test_read_is_pinned_and_takes_nothing(stores: Stores, node: Turns) -> None:
    """The record at its own version whatever the head says; its holder goes on (CK-8)."""
    turn = begin(node)
    turn.save(steps=[user("one")], bootstrap={"k": 1})
    before = record_of(stores, turn)
    stores.execute("UPDATE ledger SET history_version = 5")
    snapshot = stores.node().read(turn.turn_id)
    assert (snapshot.record.cursor.history_version, snapshot.record.bootstrap, snapshot.record.owner) == (
        0,
        {"k": 1},
        before["owner"],
    )
    assert contents(snapshot.steps) == ['{"role":"user","content":"one"}']
    assert record_of(stores, turn) == before
    turn.save(steps=[user("two")])


def test_a_callback_with_a_stale_revision_is_refused(stores: Stores, node: Turns) -> None:
    """Of two handles the one that is behind writes nothing (CK-8)."""
    callback = begin(node, turn_id="t-1")
    turn = begin(node, turn_id="t-1")
    turn.save(steps=[user("one")])
    with pytest.raises(StaleTurn):
        callback.save(steps=[user("other")])
    assert contents(node.read("t-1").steps) == ['{"role":"user","content":"one"}']


def test_a_save_that_leaves_a_call_open_or_answers_one_never_made_is_refused(stores: Stores, node: Turns) -> None:
    """Naming the call, with nothing written and the turn going on; park may leave calls open (CK-4)."""
    turn = begin(node)
    with pytest.raises(ValueError, match="'c1' unanswered"):
        turn.save(steps=[calling("c1")])
    with pytest.raises(ValueError, match="answers call 'c9'"):
        turn.save(steps=[result("c9")])
    turn.save(steps=[calling("c1"), result("c1")])
    turn.park(reason="waiting", steps=[calling("c2", "c3")])
    again = stores.node().resume(turn.turn_id)
    with pytest.raises(ValueError, match="'c3' unanswered"):
        again.save(steps=[result("c2")])
    again.save(steps=[result("c2"), result("c3")])
    assert len(again.steps) == len(node.read(turn.turn_id).steps) == 5


def test_abandoning_a_silent_turn_frees_its_work_key(stores: Stores, node: Turns) -> None:
    """One that nobody holds; a living holder is named (ST-4)."""
    turn = begin(node, work_key="k")
    with pytest.raises(AlreadyRunning):
        stores.node().abandon(turn.turn_id)
    lapse(stores, turn)
    stores.node().abandon(turn.turn_id)
    assert stores.run(turn.turn_id) == "abandoned"
    assert begin(node, work_key="k").turn_id != turn.turn_id


CRASH = """
import sys
from turnledger.checkpoint import Turns
turns = Turns.from_settings()
turns.resume(sys.argv[1])
print("survived")
"""


@pytest.mark.parametrize("place", ["resume.claimed", "resume.fenced"])
def test_a_node_that_dies_while_it_takes_over_leaves_the_turn_to_the_next(
    stores: Stores, node: Turns, processes: Processes, place: str
) -> None:
    """Once its lease has lapsed; the former holder stays fenced off (CK-2, FL-7)."""
    assert place in CRASH_POINTS
    former = begin(node)
    former.save(steps=[user("one")])
    former.park(reason="waiting")
    environment = {
        "TURNLEDGER_DATABASE_URL": stores.database_url,
        "TURNLEDGER_REDIS_URL": stores.redis_url,
        "TURNLEDGER_LEASE_S": "0.1",
        "TURNLEDGER_RENEW_S": "0.05",
        "TURNLEDGER_CRASH_AT": place,
    }
    process = processes.snippet(CRASH, former.turn_id, environment=environment)
    assert process.wait() == -9
    time.sleep(0.15)
    again = stores.node().resume(former.turn_id)
    with pytest.raises(StaleTurn):
        former.save(steps=[user("x")])
    again.complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    assert stores.run(former.turn_id) == "completed"
    assert stores.types(former.turn_id).count("agent_step") == 2
