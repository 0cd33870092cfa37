"""Every disagreement of Redis and Postgres, really made, and what a sweep makes of it."""

from typing import Any

import pytest

from tests.reconciling import (
    back_up,
    change,
    everything,
    field,
    forget,
    grow_old,
    lapse,
    put_back,
    record_of,
    set_back,
    sweep,
)
from tests.stores import LEAD, Stores, assistant, begin, contents, user
from turnledger.checkpoint import AlreadyHandled, StaleTurn, Turn, TurnBlocked, TurnEnded, Turns
from turnledger.store import LedgerName, Replied, StoreUnavailable
from turnledger.workers.reconciler import Reconciler

Did = list[tuple[str, str]]


def codes(stores: Stores, turn: Turn, ledger: LedgerName = LEAD) -> list[str]:
    """The codes of the turn's failures, in order."""
    found = [event for event in stores.events(ledger) if event.turn_id == turn.turn_id]
    return [event.payload.code for event in found if event.type == "turn_failed"]


def complete(turn: Turn, text: str = "Done") -> Turn:
    turn.complete(reply=Replied(text), steps=[assistant(text)])
    return turn


def commit(stores: Stores, turn: Turn) -> Turn:
    complete(turn)
    stores.drain()
    return turn


# RC-1: unfinished, well


def test_turns_that_are_well_are_left_alone(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """One of each kind (RC-1, RC-16)."""
    begin(node)
    begin(node).park(reason="waiting")
    commit(stores, begin(node))
    complete(begin(node))
    begin(node).fail("agent_run_failed")
    begin(node).abandon()
    begin(node, ledger=LedgerName("lead", "event:1"))
    complete(begin(node, ledger=LedgerName("lead", "event:2")))
    before = everything(stores)
    assert sweep(reconciler, stores) == {}
    assert everything(stores) == before


def test_an_unfinished_turn_that_the_index_lost_is_listed_again(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """The records are the truth (RC-1)."""
    turn = begin(node)
    stores.redis.delete(stores.keys.open(LEAD), stores.keys.turns)
    assert sweep(reconciler, stores) == {turn.turn_id: [("place", "RC-1")]}
    assert stores.redis.smembers(stores.keys.open(LEAD)) == {turn.turn_id}
    assert stores.redis.zscore(stores.keys.turns, turn.turn_id) is not None


# RC-2: history was replaced


def test_turns_on_a_replaced_history_are_marked_and_their_owners_go_on(
    stores: Stores, node: Turns, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller of the replacement died at once, and the index lost them (RC-2, HV-12)."""
    other, replacing = begin(node), begin(node)
    other.save(steps=[user("mine")], bootstrap={"cwd": "/tmp"})
    monkeypatch.setattr("turnledger.checkpoint.turn.mark_others", lambda *_, **__: None)
    replacing.compact(replacing.history_to_replace(), steps=[user("what was said")], model="m")
    stores.redis.delete(stores.keys.open(LEAD))
    did = sweep(reconciler, stores)
    assert did[other.turn_id] == [("mark replaced", "RC-2"), ("place", "RC-1")]
    assert (field(stores, other, "replaced_by"), field(stores, other, "bootstrap")) == ("1", "")
    assert not field(stores, replacing, "replaced_by")
    other.save(steps=[user("still mine")])
    complete(other)
    stores.drain()
    assert stores.run(other.turn_id) == "completed"


def test_the_turn_that_replaced_history_is_advanced_when_it_died_before_it_could(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """As if it had been killed between Postgres and Redis (RC-2, HV-8)."""
    turn = begin(node)
    turn.save(steps=[user("one"), assistant("two")], bootstrap={"cwd": "/tmp"})
    before = {name: str(field(stores, turn, name)) for name in ("cursor", "bootstrap")}
    turn.compact(turn.history_to_replace(), steps=[user("all of it")], model="m", covers=1)
    change(stores, turn, covered="0", **before)
    assert sweep(reconciler, stores) == {turn.turn_id: [("advance", "RC-2")]}
    assert field(stores, turn, "bootstrap") == ""
    lapse(stores, turn)
    resumed = stores.node().resume(turn.turn_id)
    assert (resumed.cursor.history_version, contents(list(resumed.steps))) == (1, [assistant("two").content])


# RC-3: the history a turn was built on is not there


def test_a_turn_of_a_lost_future_is_blocked_and_may_still_complete(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Postgres was restored to an earlier time (RC-3, FL-9, CK-9)."""
    begin(node)
    back_up(stores)
    running, parked = begin(node), begin(node)
    parked.park(reason="waiting")
    set_back(stores)
    did = sweep(reconciler, stores)
    assert did[running.turn_id] == did[parked.turn_id] == [("block", "RC-3")]
    assert field(stores, running, "blocked") == "cursor_ahead"
    with pytest.raises(TurnBlocked) as refused:
        stores.node().resume(parked.turn_id)
    assert refused.value.reason == "cursor_ahead"
    complete(running)
    stores.drain()
    assert stores.run(running.turn_id) == "completed"


def test_a_turn_built_on_another_history_is_blocked(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """At its seq stands another turn's event, or its ledger is another row (RC-3)."""
    back_up(stores)
    lost = begin(node)
    set_back(stores)
    begin(node, "Something else")
    begin(node, "Something else")
    moved = begin(node, ledger=LedgerName("lead", "jira:POC-8"))
    change(stores, moved, cursor=str(field(stores, moved, "cursor")).replace("[", "[9", 1))
    did = sweep(reconciler, stores)
    assert did == {lost.turn_id: [("block", "RC-3")], moved.turn_id: [("block", "RC-3")]}
    assert field(stores, lost, "blocked") == field(stores, moved, "blocked") == "other_history"


def test_a_turn_made_while_postgres_was_away_is_neither_stale_nor_blocked(
    stores: Stores, node: Turns, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no cursor, and Postgres does not know it (RC-3, CK-9)."""

    def away(*_: object, **__: object) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as broken:
        broken.setattr("turnledger.checkpoint.turns.begin", away)
        broken.setattr("turnledger.checkpoint.turns.look_only", away)
        blind = begin(node)
    commit(stores, begin(node))
    assert sweep(reconciler, stores) == {}
    commit(stores, blind)
    assert stores.run(blind.turn_id) == "completed"


# RC-4: the lease has lapsed


def test_a_turn_whose_owner_fell_silent_is_parked_and_any_node_may_resume_it(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-4)"""
    turn = begin(node)
    lapse(stores, turn)
    assert sweep(reconciler, stores) == {turn.turn_id: [("park", "RC-4")]}
    assert (stores.state(turn.turn_id), field(stores, turn, "reason")) == ("parked", "owner_lost")
    assert stores.node().resume(turn.turn_id).slice == 2
    with pytest.raises(StaleTurn):
        turn.save(steps=[user("too late")])


@pytest.mark.parametrize("way", ["save", "renewal"])
def test_an_owner_that_comes_back_before_a_take_over_goes_on(
    stores: Stores, node: Turns, reconciler: Reconciler, way: str
) -> None:
    """The sweep took nothing from it, and its lease holds again (RC-4, CK-11)."""
    turn = begin(node)
    lapse(stores, turn)
    sweep(reconciler, stores)
    if way == "save":
        turn.save(steps=[user("back")])
    else:
        assert stores.records.renew([turn.claim]) == [True]
    assert (stores.state(turn.turn_id), field(stores, turn, "reason")) == ("running", "")
    assert sweep(reconciler, stores) == {}
    assert stores.records.renew([turn.claim]) == [True]


def test_a_turn_that_lapsed_while_delivering_is_blocked(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Nobody knows whether the reply arrived; its owner may still say so (RC-4, DL-5)."""
    turn = begin(node)
    change(stores, turn, delivery="delivering")
    assert sweep(reconciler, stores) == {}
    lapse(stores, turn)
    assert sweep(reconciler, stores) == {turn.turn_id: [("block", "RC-4")]}
    assert field(stores, turn, "blocked") == "delivery_unknown"
    with pytest.raises(TurnBlocked):
        stores.node().resume(turn.turn_id)
    complete(turn)
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def test_a_turn_without_a_conversation_is_parked_all_the_same(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Postgres is not asked about it (RC-4, ID-4)."""
    turn = begin(node, ledger=LedgerName("lead", "event:7"))
    lapse(stores, turn)
    assert sweep(reconciler, stores) == {turn.turn_id: [("park", "RC-4")]}


# RC-5: unfinished, and Postgres has decided


def test_an_unfinished_turn_that_is_committed_is_finished(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """As after a direct commit while Redis was away (RC-5, FL-3)."""
    turn = begin(node)
    record = record_of(stores, turn)
    commit(stores, turn)
    put_back(stores, turn, record)
    stores.redis.sadd(stores.keys.open(LEAD), turn.turn_id)
    stores.redis.zadd(stores.keys.turns, {turn.turn_id: 1})
    assert sweep(reconciler, stores) == {turn.turn_id: [("finish", "RC-5")]}
    assert stores.state(turn.turn_id) == "committed"
    assert 0 < stores.redis.pttl(stores.keys.record(turn.turn_id)) <= 3_600_000
    with pytest.raises(AlreadyHandled):
        stores.node().resume(turn.turn_id)


def test_an_unfinished_turn_whose_work_another_run_completed_is_abandoned_once_nobody_holds_it(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-5)"""
    first = begin(node, work_key="k")
    stores.redis.delete(stores.keys.open(LEAD))
    second = begin(node, work_key="k")
    commit(stores, second)
    assert sweep(reconciler, stores)[first.turn_id] == [("place", "RC-1")]
    lapse(stores, first)
    assert sweep(reconciler, stores) == {first.turn_id: [("abandon", "RC-5")]}
    assert (stores.state(first.turn_id), field(stores, first, "first")) == ("abandoned", second.turn_id)
    assert (stores.run(first.turn_id), stores.types(first.turn_id)[-1]) == ("duplicate", "turn_duplicate")


def test_an_unfinished_turn_that_failed_in_postgres_fails_once_nobody_holds_it(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """As after a failover that lost the last writes (RC-5)."""
    turn, given_up = begin(node), begin(node)
    records = [record_of(stores, turn), record_of(stores, given_up)]
    turn.fail("agent_run_failed")
    given_up.abandon()
    for each, record in zip((turn, given_up), records, strict=True):
        put_back(stores, each, record)
    stores.redis.sadd(stores.keys.open(LEAD), turn.turn_id, given_up.turn_id)
    stores.redis.zadd(stores.keys.turns, {turn.turn_id: 1, given_up.turn_id: 1})
    assert sweep(reconciler, stores) == {}
    lapse(stores, turn)
    lapse(stores, given_up)
    assert sweep(reconciler, stores) == {turn.turn_id: [("fail", "RC-5")], given_up.turn_id: [("fail", "RC-5")]}
    assert (stores.state(turn.turn_id), stores.state(given_up.turn_id)) == ("failed", "abandoned")
    with pytest.raises(TurnEnded):
        stores.node().resume(turn.turn_id)


@pytest.mark.parametrize("state", ["running", "completed", "rejected"])
def test_a_turn_whose_ledger_was_purged_is_dropped(
    stores: Stores, node: Turns, reconciler: Reconciler, state: str
) -> None:
    """Its ledger is marked as purged since it began, and its row is gone (RC-5, RC-7)."""
    turn = begin(node)
    if state != "running":
        complete(turn)
    if state == "rejected":
        stores.records.reject(turn.turn_id, ledger=LEAD, reason="no")
    stores.execute("DELETE FROM ledger_turn")
    stores.execute("UPDATE ledger SET purged_at = now() + interval '1 second'")
    did = sweep(reconciler, stores)
    assert [action for action, _ in did[turn.turn_id]] == ["drop"]
    assert stores.state(turn.turn_id) is None
    assert (
        list(stores.redis.scan_iter("{turnledger}:*"))
        == ["{turnledger}:ledger:lead:jira%3APOC-7:completions"][: int(state != "running")]
    )


# RC-6: completed, undecided


def test_a_completed_turn_without_a_job_gets_one(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Its job was deleted, or has failed, or was cancelled (RC-6, RC-14, QU-12)."""
    turns = [complete(begin(node)) for _ in range(3)]
    for turn, status in zip(turns, ("", "failed", "canceled"), strict=True):
        stores.redis.lrem(stores.keys.queue, 0, f"turn-{turn.turn_id}")
        if status:
            stores.redis.hset(stores.keys.job(turn.turn_id), "status", status)
        else:
            stores.redis.delete(stores.keys.job(turn.turn_id))
    assert sweep(reconciler, stores) == {turn.turn_id: [("make a job", "RC-14")] for turn in turns}
    stores.drain()
    assert {stores.run(turn.turn_id) for turn in turns} == {"completed"}


def test_completed_turns_that_pending_lost_are_put_back_in_order(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """By the number of their completion (RC-6)."""
    turns = [complete(begin(node)).turn_id for _ in range(5)]
    stores.redis.delete(stores.keys.backlog)
    for turn_id in (turns[3], turns[0], turns[2]):
        stores.redis.lrem(stores.keys.pending(LEAD), 0, turn_id)
    did = sweep(reconciler, stores)
    assert stores.pending() == turns
    assert did == {turn_id: [("place", "RC-6")] for turn_id in turns}
    assert stores.redis.zcard(stores.keys.backlog) == 5


def test_a_turn_that_is_twice_in_pending_stays_once(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """(RC-6)"""
    first, second = complete(begin(node)).turn_id, complete(begin(node)).turn_id
    stores.redis.rpush(stores.keys.pending(LEAD), first, first)
    assert sweep(reconciler, stores) == {first: [("place", "RC-6")]}
    assert stores.pending() == [first, second]


def test_a_turn_that_has_been_pending_for_too_long_is_committed(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Its queue was emptied, and only the hash of its job is left (RC-6, QU-12)."""
    turn = complete(begin(node))
    stores.redis.delete(stores.keys.queue)
    change(stores, turn, completed_at=1)
    assert sweep(reconciler, stores) == {turn.turn_id: [("commit", "RC-6")]}
    assert (stores.state(turn.turn_id), stores.run(turn.turn_id)) == ("committed", "completed")


# RC-7: completed, and Postgres has decided


def test_a_completed_turn_that_is_committed_is_finished_and_its_job_cleared(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """A worker died between Postgres and Redis (RC-7)."""
    turn = complete(begin(node))
    record = record_of(stores, turn)
    stores.drain()
    put_back(stores, turn, record)
    stores.redis.rpush(stores.keys.pending(LEAD), turn.turn_id)
    stores.redis.hset(stores.keys.job(turn.turn_id), "status", "failed")
    stores.redis.zadd(stores.keys.failed_registry, {f"turn-{turn.turn_id}": 1})
    assert sweep(reconciler, stores) == {turn.turn_id: [("finish", "RC-7")]}
    assert (stores.state(turn.turn_id), stores.pending()) == ("committed", [])
    assert not stores.redis.exists(stores.keys.job(turn.turn_id), stores.keys.failed_registry)
    assert stores.redis.pttl(stores.keys.record(turn.turn_id)) > 0


def test_a_completed_turn_whose_work_another_run_completed_is_finished_as_its_duplicate(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-7, ST-5)"""
    first = begin(node, work_key="k")
    stores.redis.delete(stores.keys.open(LEAD))
    second = begin(node, work_key="k")
    commit(stores, second)
    complete(first)
    assert sweep(reconciler, stores) == {first.turn_id: [("finish as a duplicate", "RC-7")]}
    assert (stores.state(first.turn_id), field(stores, first, "first")) == ("committed", second.turn_id)
    assert (stores.run(first.turn_id), stores.types(first.turn_id)[-1]) == ("duplicate", "turn_duplicate")
    assert len(stores.entries()) == 1


def test_a_completed_turn_that_was_taken_over_is_rejected(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """A higher epoch owns it, or has ended it (RC-7)."""
    taken, failed = complete(begin(node)), complete(begin(node))
    stores.execute("UPDATE ledger_turn SET epoch = 2")
    stores.execute("UPDATE ledger_turn SET outcome = 'failed', ended_at = now() WHERE turn_id = %s", failed.turn_id)
    did = sweep(reconciler, stores)
    assert did == {turn.turn_id: [("reject", "RC-7"), ("list", "RC-8")] for turn in (taken, failed)}
    assert field(stores, taken, "refusal") == "superseded"


def test_a_completed_turn_of_a_lost_future_is_committed_at_the_head(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """A completed turn is never blocked, and never lost (RC-7, FL-9)."""
    back_up(stores)
    turn = complete(begin(node))
    set_back(stores)
    assert sweep(reconciler, stores) == {turn.turn_id: [("commit", "RC-7")]}
    assert (stores.state(turn.turn_id), stores.run(turn.turn_id)) == ("committed", "completed")
    assert len(stores.entries()) == 1


def test_a_completed_turn_that_is_not_to_be_recorded_is_finished_without_an_entry(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-7)"""
    turn = complete(begin(node))
    change(stores, turn, recorded="0")
    assert sweep(reconciler, stores) == {turn.turn_id: [("finish without an entry", "RC-7")]}
    assert (stores.state(turn.turn_id), stores.entries()) == ("committed", [])


# RC-8: rejected


def test_a_rejected_turn_is_moved_to_its_list_and_left_alone(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-8)"""
    turn = complete(begin(node))
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="no")
    assert sweep(reconciler, stores) == {turn.turn_id: [("list", "RC-8")]}
    stores.redis.delete(stores.keys.rejected(LEAD))
    stores.redis.rpush(stores.keys.pending(LEAD), turn.turn_id)
    assert sweep(reconciler, stores) == {turn.turn_id: [("place", "RC-8"), ("list", "RC-8")]}
    assert (stores.pending(), stores.redis.lrange(stores.keys.rejected(LEAD), 0, -1)) == ([], [turn.turn_id])
    assert stores.redis.pttl(stores.keys.record(turn.turn_id)) == -1


def test_a_rejected_turn_that_is_committed_after_all_is_finished(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-8)"""
    turn = complete(begin(node))
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="no")
    stores.execute("UPDATE ledger_turn SET outcome = 'completed', ended_at = now()")
    assert sweep(reconciler, stores) == {turn.turn_id: [("finish", "RC-8")]}
    assert stores.state(turn.turn_id) == "committed"
    assert not stores.redis.exists(stores.keys.rejected(LEAD))


# RC-9: committed


def test_a_committed_turn_is_taken_off_every_list(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """(RC-9)"""
    turn = commit(stores, begin(node))
    stores.redis.rpush(stores.keys.pending(LEAD), turn.turn_id)
    stores.redis.sadd(stores.keys.open(LEAD), turn.turn_id)
    stores.redis.zadd(stores.keys.backlog, {turn.turn_id: 1})
    assert sweep(reconciler, stores) == {turn.turn_id: [("place", "RC-9")]}
    assert not stores.redis.exists(stores.keys.pending(LEAD), stores.keys.open(LEAD), stores.keys.backlog)


def test_committed_turns_that_postgres_lost_are_committed_again_in_order(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """From their spare copies, steps included; also when their ledger is gone with them (RC-9, FL-9)."""
    back_up(stores)
    turns = [begin(node), begin(node)]
    for turn in turns:
        turn.save(steps=[user(f"asked {turn.turn_id}")])
        commit(stores, turn)
    steps = contents(begin(node).history())
    set_back(stores)
    did = sweep(reconciler, stores)
    for turn in turns:
        assert did[turn.turn_id][0] == ("complete again", "RC-9")
        assert (stores.state(turn.turn_id), stores.run(turn.turn_id)) == ("committed", "completed")
    assert [entry["turn_id"] for entry in stores.entries()] == [turn.turn_id for turn in turns]
    assert contents(begin(node).history()) == steps


def test_a_committed_turn_without_a_spare_copy_is_reported(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """There is nothing to commit again (RC-9)."""
    back_up(stores)
    turn = commit(stores, begin(node))
    set_back(stores)
    stores.redis.hdel(stores.keys.record(turn.turn_id), "entry")
    assert sweep(reconciler, stores) == {turn.turn_id: [("list", "RC-9")]}
    assert stores.state(turn.turn_id) == "committed"


# RC-10: failed or abandoned


@pytest.mark.parametrize("end", ["fail", "abandon"])
def test_an_ended_turn_that_postgres_was_not_told_of_gets_its_terminal(
    stores: Stores, node: Turns, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The node was killed between Redis and Postgres (RC-10)."""
    turn = begin(node)
    state, code = ("failed", "model_execution_failed") if end == "fail" else ("abandoned", "agent_run_failed")
    fields: dict[str, str | int] = {"code": code, "failure_id": "f-1"}
    stores.records.end(turn.claim, ledger=LEAD, state=state, fields=fields, operation="x")
    assert sweep(reconciler, stores) == {turn.turn_id: [("write the terminal", "RC-10")]}
    assert (stores.run(turn.turn_id), codes(stores, turn)) == (state, [code])
    assert stores.events()[-1].payload.failure_id == "f-1"


def test_a_failed_turn_that_is_committed_becomes_committed(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """The contradiction is reported (RC-10)."""
    turn = begin(node)
    turn.fail("agent_run_failed")
    stores.execute("UPDATE ledger_turn SET outcome = 'completed'")
    assert sweep(reconciler, stores) == {turn.turn_id: [("finish", "RC-10")]}
    assert stores.state(turn.turn_id) == "committed"


# RC-11: unreadable


@pytest.mark.parametrize(
    "damage", ["no state", "no number", "no cursor", "no ledger", "no format", "no text", "another type", "no field"]
)
def test_an_unreadable_record_is_set_aside_and_the_sweep_goes_on(
    stores: Stores, node: Turns, reconciler: Reconciler, damage: str
) -> None:
    """Under a key of its own, as it was, for ever while Postgres has not decided it (RC-11)."""
    broken, lapsed = begin(node), begin(node)
    broken.save(steps=[user("kept")])
    lapse(stores, lapsed)
    key = stores.keys.record(broken.turn_id)
    DAMAGES[damage](stores.redis, key)
    did = sweep(reconciler, stores)
    assert did[lapsed.turn_id] == [("park", "RC-4")]
    assert did[broken.turn_id][0] == ("quarantine for ever", "RC-11")
    aside = stores.keys.quarantine(broken.turn_id)
    assert (stores.redis.exists(key), stores.redis.ttl(aside)) == (0, -1)
    assert stores.redis.lrange(stores.keys.quarantine_steps(broken.turn_id), 0, -1) != []
    assert stores.redis.zrange(stores.keys.quarantined, 0, -1) == [broken.turn_id]
    assert broken.turn_id not in stores.redis.smembers(stores.keys.open(LEAD))


def _replace_by_text(redis: Any, key: str) -> None:
    redis.set(key, "nothing that we wrote")


def _replace_by_other_fields(redis: Any, key: str) -> None:
    redis.delete(key)
    redis.hset(key, "other", "1")


DAMAGES: dict[str, Any] = {
    "no state": lambda redis, key: redis.hset(key, "state", "asleep"),
    "no number": lambda redis, key: redis.hset(key, "revision", "many"),
    "no cursor": lambda redis, key: redis.hset(key, "cursor", "{"),
    "no ledger": lambda redis, key: redis.hset(key, "ledger", "lead"),
    "no format": lambda redis, key: redis.hdel(key, "format"),
    "no text": lambda redis, key: redis.hset(key, "work_key", b"\xff\xfe"),
    "another type": _replace_by_text,
    "no field": _replace_by_other_fields,
}


def test_an_unreadable_record_of_a_decided_turn_expires(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """(RC-11)"""
    turn = commit(stores, begin(node))
    change(stores, turn, epoch="first")
    assert sweep(reconciler, stores) == {turn.turn_id: [("quarantine for a while", "RC-11")]}
    aside = stores.keys.quarantine(turn.turn_id)
    assert stores.redis.ttl(aside) > 0
    stores.redis.delete(aside, stores.keys.quarantine_steps(turn.turn_id))
    reconciler.sweep()
    assert stores.redis.zcard(stores.keys.quarantined) == 0


def test_a_pending_turn_in_quarantine_is_not_called_lost(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Its content is still there (RC-11, RC-12)."""
    turn = complete(begin(node))
    change(stores, turn, completed_at="yesterday")
    did = sweep(reconciler, stores)
    assert did == {turn.turn_id: [("quarantine for ever", "RC-11"), ("place", "RC-11")]}
    assert (stores.pending(), stores.run(turn.turn_id)) == ([], None)


def test_two_unreadable_records_of_one_turn_are_both_kept(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """(RC-11)"""
    turn = begin(node)
    for text in ("first", "second"):
        stores.redis.delete(stores.keys.record(turn.turn_id))
        stores.redis.set(stores.keys.record(turn.turn_id), text)
        sweep(reconciler, stores)
    kept: Any = [stores.redis.get(key) for key in stores.redis.scan_iter(stores.keys.quarantine("*"))]
    assert sorted(kept) == ["first", "second"]


def test_a_record_of_another_format_is_left_untouched(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Whatever it holds (RC-11, CK-15)."""
    turn = begin(node)
    change(stores, turn, format="2", state="dreaming", revision="?", lease_until=1)
    before = everything(stores)
    assert sweep(reconciler, stores) == {}
    assert everything(stores) == before


# RC-12: no record, in pending


def test_a_pending_turn_without_a_record_is_reported_lost(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """The others of its ledger go on (RC-12, FL-6)."""
    lost, kept = complete(begin(node)), complete(begin(node))
    forget(stores, lost)
    assert sweep(reconciler, stores) == {lost.turn_id: [("report lost", "RC-12")]}
    assert (stores.pending(), codes(stores, lost)) == ([kept.turn_id], ["persistence_failed"])


def test_a_pending_turn_without_a_record_that_is_decided_is_taken_off_silently(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-12)"""
    turn = commit(stores, begin(node))
    forget(stores, turn)
    stores.redis.rpush(stores.keys.pending(LEAD), turn.turn_id)
    assert sweep(reconciler, stores) == {turn.turn_id: [("place", "RC-12")]}
    assert (stores.pending(), stores.run(turn.turn_id)) == ([], "completed")


def test_work_that_was_reported_lost_is_recorded_when_a_process_still_has_it(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """What is completed is never lost to a report (RC-12, FL-8)."""
    turn = complete(begin(node))
    forget(stores, turn)
    sweep(reconciler, stores)
    turn.submit_again()
    assert (stores.run(turn.turn_id), len(stores.entries())) == ("completed", 1)


def test_an_unknown_id_in_pending_is_taken_off(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Neither store knows it, or its ledger (RC-12)."""
    begin(node)
    nowhere = LedgerName("lead", "jira:POC-9")
    stores.redis.rpush(stores.keys.pending(LEAD), "unheard-of")
    stores.redis.rpush(stores.keys.pending(nowhere), "unheard-of-too")
    did = sweep(reconciler, stores)
    assert did == {name: [("report lost", "RC-12")] for name in ("unheard-of", "unheard-of-too")}
    assert (stores.pending(), stores.pending(nowhere)) == ([], [])


# RC-13: no record, open in Postgres


def test_an_open_run_without_a_record_is_lost_once_it_is_old(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Redis came back empty (RC-13, FL-6)."""
    young, old = begin(node), begin(node)
    stores.redis.flushall()
    grow_old(stores, old)
    assert sweep(reconciler, stores) == {old.turn_id: [("session lost", "RC-13")]}
    assert (stores.run(young.turn_id), stores.run(old.turn_id)) == (None, "lost")
    assert codes(stores, old) == ["session_lost"]


def test_a_late_completion_overrules_a_lost_session(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Its process lived on (RC-13, EV-6)."""
    turn = begin(node)
    stores.redis.flushall()
    grow_old(stores, turn)
    sweep(reconciler, stores)
    complete(turn)
    stores.drain()
    assert (stores.run(turn.turn_id), len(stores.entries())) == ("completed", 1)
    assert sweep(reconciler, stores) == {}


def test_an_old_run_with_a_record_is_not_lost(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """A turn may be parked for days, if somebody touches it (RC-13)."""
    turn = begin(node)
    turn.park(reason="authorization")
    grow_old(stores, turn)
    assert sweep(reconciler, stores) == {}


def test_the_parent_learns_that_a_child_has_ended_when_its_node_died(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Once, in the parent's log (HV-7, RC-13)."""
    parent = begin(node)
    child = parent.open_child("reviewer", steps=[user("look at this")], model="m")
    turn = begin(node, ledger=child)
    stores.redis.flushall()
    grow_old(stores, turn)
    assert sweep(reconciler, stores) == {turn.turn_id: [("session lost", "RC-13")]}
    ended = [event for event in stores.events() if event.type == "child_ended"]
    assert [(event.payload.conversation, event.payload.outcome) for event in ended] == [
        (child.conversation, "session_lost")
    ]


# RC-14: indexes and jobs


def test_an_index_entry_without_a_record_goes_and_its_job_does_nothing(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """Wherever it stands (RC-14)."""
    turn, rejected = complete(begin(node)), complete(begin(node))
    stores.records.reject(rejected.turn_id, ledger=LEAD, reason="no")
    stores.redis.delete(stores.keys.pending(LEAD))
    stores.redis.sadd(stores.keys.open(LEAD), "gone")
    stores.redis.zadd(stores.keys.turns, {"gone-too": 1})
    forget(stores, turn)
    forget(stores, rejected)
    did = sweep(reconciler, stores)
    assert did == {name: [("place", "RC-14")] for name in ("gone", "gone-too", turn.turn_id, rejected.turn_id)}
    stores.drain()
    assert stores.entries() == []
    assert not stores.redis.exists(stores.keys.turns, stores.keys.backlog, stores.keys.open(LEAD))
