"""The reconciler's table: every combination of facts, and one right action for each sentence of the requirement."""

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Any

import pytest

from turnledger.workers.reconciler.decisions import (
    RULES,
    Age,
    Block,
    Copy,
    CursorState,
    Delivery,
    Do,
    Facts,
    Indexes,
    Job,
    Lease,
    Pending,
    Recording,
    RecordState,
    Rejected,
    Sql,
    Tone,
    decide,
)
from turnledger.workers.reconciler.executor import LOOKING
from turnledger.workers.reconciler.sweeping import MOST_ROUNDS

KINDS: tuple[type[Enum], ...] = (
    RecordState,
    Lease,
    Delivery,
    Block,
    Recording,
    Sql,
    CursorState,
    Indexes,
    Pending,
    Rejected,
    Job,
    Copy,
    Age,
)
UNFINISHED = (RecordState.RUNNING, RecordState.PARKED)
HARMLESS = {Do.NOTHING, Do.PLACE, Do.MARK_REPLACED, Do.ADVANCE, Do.BLOCK}
TERMINAL = {
    RecordState.COMMITTED: {Do.NOTHING, Do.LIST, Do.PLACE, Do.REVIVE, Do.WRITE_TERMINAL},
    RecordState.FAILED: {Do.NOTHING, Do.PLACE, Do.WRITE_TERMINAL, Do.FINISH},
    RecordState.ABANDONED: {Do.NOTHING, Do.PLACE, Do.WRITE_TERMINAL, Do.FINISH},
}

# A turn that runs, is known to both stores and stands where it should; what a test says differs from it.
WELL = Facts(
    record=RecordState.RUNNING,
    lease=Lease.LIVE,
    delivery=Delivery.NONE,
    block=Block.NONE,
    recording=Recording.ON,
    sql=Sql.STARTED,
    cursor=CursorState.SAME,
    indexes=Indexes.RIGHT,
    pending=Pending.ABSENT,
    rejected=Rejected.ABSENT,
    job=Job.NONE,
    copy=Copy.GONE,
    age=Age.YOUNG,
)
PARKED = replace(WELL, record=RecordState.PARKED, lease=Lease.LAPSED)
COMPLETED = replace(WELL, record=RecordState.COMPLETED, lease=Lease.LAPSED, pending=Pending.ONCE, job=Job.THERE)
REJECTED = replace(COMPLETED, record=RecordState.REJECTED, pending=Pending.ABSENT, rejected=Rejected.LISTED)
COMMITTED = replace(
    COMPLETED, record=RecordState.COMMITTED, sql=Sql.DONE, pending=Pending.ABSENT, job=Job.NONE, copy=Copy.WHOLE
)
FAILED = replace(COMMITTED, record=RecordState.FAILED, sql=Sql.FAILED, copy=Copy.GONE)
ABANDONED = replace(FAILED, record=RecordState.ABANDONED)
MISSING = replace(FAILED, record=RecordState.MISSING, sql=Sql.NONE, cursor=CursorState.UNKNOWN)
UNREADABLE = replace(MISSING, record=RecordState.UNREADABLE)


def all_facts() -> Iterator[Facts]:
    return itertools.starmap(Facts, itertools.product(*KINDS))


def test_the_facts_are_all_enumerated() -> None:
    """A fact that is added to a decision is added to the enumeration below."""
    assert [field.type for field in fields(Facts)] == list(KINDS)


def test_every_combination_has_one_action_that_harms_nobody_and_comes_to_rest() -> None:
    """Total; a live owner keeps its right to write; terminal is absorbing; repairs end (RC-5, RC-16, CK-5)."""
    used = set()
    for facts in all_facts():
        action = decide(facts)
        used.add((facts.record, id(action)))
        if facts.record in UNFINISHED and facts.lease is Lease.LIVE:
            nothing_left_to_write = facts.recording is Recording.ON and facts.sql in (Sql.DONE, Sql.GONE)
            assert action.do in HARMLESS or nothing_left_to_write, f"{facts} -> {action}"
        elif facts.record in TERMINAL:
            assert action.do in TERMINAL[facts.record], f"{facts} -> {action}"
        if action.do not in LOOKING and stands_for_others(facts):
            assert rounds(facts) <= MOST_ROUNDS, f"{facts} does not come to rest"
    idle = [(state, rule) for state, rules in RULES.items() for rule in rules if (state, id(rule.action)) not in used]
    assert idle == []


def test_the_last_rule_of_each_state_fits_everything() -> None:
    """So that a decision is total."""
    for rules in RULES.values():
        assert not rules[-1].when
        assert all(rule.when for rule in rules[:-1])


def test_a_record_of_another_format_is_left_untouched() -> None:
    """Whatever else is known of it (RC-11, CK-15)."""
    (rule,) = RULES[RecordState.FOREIGN]
    assert rule.action.do is Do.NOTHING


def test_actions_are_reported_when_something_was_lost_or_a_person_has_to_decide() -> None:
    """(RC-17)"""
    loud = {rule.action.do for rules in RULES.values() for rule in rules if rule.action.tone is Tone.REPORTED}
    assert loud == {
        Do.DROP,
        Do.BLOCK,
        Do.REJECT,
        Do.COMMIT,
        Do.LIST,
        Do.PLACE,
        Do.REVIVE,
        Do.FINISH,
        Do.QUARANTINE,
        Do.QUARANTINE_FOR_A_WHILE,
        Do.SESSION_LOST,
        Do.LOSE,
    }


def stands_for_others(facts: Facts) -> bool:
    """False where a fact differs that neither the turn's state nor any state after it asks for."""
    asks_for_copy = facts.record is RecordState.COMMITTED or facts.copy is Copy.WHOLE
    unmarked = facts.delivery is Delivery.NONE and facts.block is Block.NONE
    return asks_for_copy and (unmarked or facts.record in UNFINISHED)


def rounds(facts: Facts) -> int:
    """How many looks it takes until nothing is left to do, at most, if every action does what it says."""
    action = decide(facts)
    if action.do in LOOKING:
        return 1
    return 1 + max([rounds(found) for found in after(facts, action.do)])


def after(facts: Facts, do: Do) -> list[Facts]:
    """All that may be found once the action was done."""
    if do is Do.ADVANCE:
        return [replace(facts, cursor=cursor) for cursor in (CursorState.SAME, CursorState.OLDER, CursorState.MARKED)]
    if do is Do.WRITE_TERMINAL:
        return [replace(facts, sql=sql) for sql in (Sql.FAILED, Sql.DUPLICATE)]
    if do in (Do.QUARANTINE, Do.QUARANTINE_FOR_A_WHILE):
        quarantined = replace(facts, record=RecordState.QUARANTINED)
        return [replace(quarantined, indexes=indexes) for indexes in Indexes]
    return [replace(_placed(facts) if do in PLACING else facts, **CHANGES.get(do, {}))]


PLACING = {
    Do.PLACE, Do.ABANDON, Do.FAIL, Do.FINISH, Do.FINISH_DUPLICATE, Do.FINISH_UNRECORDED, Do.DROP, Do.COMMIT,
    Do.REJECT, Do.LOSE,
}  # fmt: skip
NOWHERE = {"pending": Pending.ABSENT, "rejected": Rejected.ABSENT}
CHANGES: dict[Do, dict[str, Any]] = {
    Do.MARK_REPLACED: {"cursor": CursorState.MARKED},
    Do.BLOCK: {"block": Block.SET},
    Do.PARK: {"record": RecordState.PARKED, "lease": Lease.LAPSED},
    Do.ABANDON: {"record": RecordState.ABANDONED, "sql": Sql.DUPLICATE, **NOWHERE},
    Do.FAIL: {"record": RecordState.FAILED, **NOWHERE},
    Do.FINISH: {"record": RecordState.COMMITTED, **NOWHERE},
    Do.FINISH_DUPLICATE: {"record": RecordState.COMMITTED, "sql": Sql.DUPLICATE, **NOWHERE},
    Do.FINISH_UNRECORDED: {"record": RecordState.COMMITTED, **NOWHERE},
    Do.DROP: {"record": RecordState.MISSING, **NOWHERE},
    Do.MAKE_JOB: {"job": Job.THERE},
    Do.COMMIT: {"record": RecordState.COMMITTED, "sql": Sql.DONE, **NOWHERE},
    Do.REJECT: {"record": RecordState.REJECTED, "pending": Pending.ABSENT, "rejected": Rejected.LISTED},
    Do.REVIVE: {"record": RecordState.COMPLETED, "indexes": Indexes.WRONG},
    Do.LOSE: {"sql": Sql.LOST},
    Do.SESSION_LOST: {"sql": Sql.LOST, "age": Age.YOUNG},
}


def _placed(facts: Facts) -> Facts:
    return replace(
        facts,
        indexes=Indexes.RIGHT,
        pending=Pending.ONCE if facts.record is RecordState.COMPLETED else Pending.ABSENT,
        rejected=Rejected.LISTED if facts.record is RecordState.REJECTED else Rejected.ABSENT,
    )


def does(facts: Facts, **different: Any) -> tuple[Do, str]:
    """What is done with a turn of these facts but for some, and under which requirement."""
    action = decide(replace(facts, **different))
    return action.do, action.requirement


def reason(facts: Facts, **different: Any) -> tuple[Do, str, Tone]:
    action = decide(replace(facts, **different))
    return action.do, action.reason, action.tone


def test_a_turn_that_is_well_is_left_alone_and_listed_where_it_is_missing() -> None:
    """(RC-1)"""
    assert does(WELL) == (Do.NOTHING, "RC-1")
    assert does(WELL, indexes=Indexes.WRONG) == (Do.PLACE, "RC-1")


@pytest.mark.parametrize("turn", [WELL, PARKED])
def test_a_turn_on_an_older_history_is_marked_unless_it_replaced_that_history_itself(turn: Facts) -> None:
    """Also while its owner lives: the fence is not touched (RC-2)."""
    assert does(turn, cursor=CursorState.OLDER) == (Do.MARK_REPLACED, "RC-2")
    assert does(turn, cursor=CursorState.OWN) == (Do.ADVANCE, "RC-2")
    assert does(turn, cursor=CursorState.MARKED)[0] is Do.NOTHING


@pytest.mark.parametrize("turn", [WELL, PARKED])
def test_a_turn_whose_history_is_not_there_is_blocked_and_reported_once(turn: Facts) -> None:
    """(RC-3)"""
    assert reason(turn, cursor=CursorState.AHEAD) == (Do.BLOCK, "cursor_ahead", Tone.REPORTED)
    assert reason(turn, cursor=CursorState.OTHER) == (Do.BLOCK, "other_history", Tone.REPORTED)
    for cursor in CursorState:
        assert does(turn, cursor=cursor, block=Block.SET)[0] is not Do.BLOCK


def test_a_turn_made_without_postgres_is_neither_stale_nor_blocked() -> None:
    """(CK-9)"""
    assert does(WELL, cursor=CursorState.UNKNOWN, sql=Sql.NONE) == (Do.NOTHING, "RC-1")


def test_a_turn_whose_owner_fell_silent_is_parked() -> None:
    """(RC-4)"""
    assert reason(WELL, lease=Lease.LAPSED) == (Do.PARK, "owner_lost", Tone.QUIET)
    assert does(WELL, lease=Lease.LAPSED, recording=Recording.OFF, sql=Sql.NONE) == (Do.PARK, "RC-4")
    assert does(WELL, lease=Lease.LAPSED, block=Block.SET, cursor=CursorState.AHEAD) == (Do.PARK, "RC-4")


def test_a_turn_that_lapsed_while_delivering_is_blocked_and_stays_so() -> None:
    """(RC-4, DL-5)"""
    delivering = replace(WELL, lease=Lease.LAPSED, delivery=Delivery.UNDER_WAY)
    assert reason(delivering) == (Do.BLOCK, "delivery_unknown", Tone.REPORTED)
    assert does(delivering, block=Block.SET)[0] is Do.NOTHING
    assert does(delivering, lease=Lease.LIVE)[0] is Do.NOTHING


@pytest.mark.parametrize("turn", [WELL, PARKED])
def test_an_unfinished_turn_that_postgres_has_decided_follows_it(turn: Facts) -> None:
    """(RC-5)"""
    silent = replace(turn, lease=Lease.LAPSED)
    assert does(turn, sql=Sql.DONE) == (Do.FINISH, "RC-5")
    assert reason(turn, sql=Sql.GONE) == (Do.DROP, "ledger_purged", Tone.REPORTED)
    for sql in (Sql.ANSWERED, Sql.DUPLICATE):
        assert does(silent, sql=sql) == (Do.ABANDON, "RC-5")
    assert does(silent, sql=Sql.FAILED) == (Do.FAIL, "RC-5")
    assert does(PARKED, sql=Sql.LOST)[0] is Do.NOTHING


@pytest.mark.parametrize("sql", [Sql.ANSWERED, Sql.DUPLICATE, Sql.FAILED, Sql.LOST, Sql.ADVANCED])
def test_a_live_owner_keeps_a_turn_that_others_have_decided(sql: Sql) -> None:
    """(RC-5)"""
    assert does(WELL, sql=sql)[0] is Do.NOTHING


@pytest.mark.parametrize("sql", [Sql.NONE, Sql.STARTED, Sql.LOST])
def test_a_completed_turn_is_brought_to_its_commit(sql: Sql) -> None:
    """Each thing it lacks is given to it, one after the other (RC-6, RC-14)."""
    turn = replace(COMPLETED, sql=sql)
    assert does(turn) == (Do.NOTHING, "RC-6")
    assert does(turn, pending=Pending.ABSENT) == (Do.PLACE, "RC-6")
    assert does(turn, pending=Pending.TWICE) == (Do.PLACE, "RC-6")
    assert does(turn, indexes=Indexes.WRONG) == (Do.PLACE, "RC-6")
    assert does(turn, job=Job.NONE) == does(turn, job=Job.FAILED) == (Do.MAKE_JOB, "RC-14")
    assert does(turn, age=Age.OLD) == (Do.COMMIT, "RC-6")


def test_a_completed_turn_that_postgres_has_decided_is_finished() -> None:
    """(RC-7)"""
    assert does(COMPLETED, sql=Sql.DONE) == (Do.FINISH, "RC-7")
    assert does(COMPLETED, sql=Sql.ANSWERED) == (Do.FINISH_DUPLICATE, "RC-7")
    assert does(COMPLETED, sql=Sql.DUPLICATE) == (Do.FINISH_DUPLICATE, "RC-7")
    assert reason(COMPLETED, sql=Sql.FAILED) == (Do.REJECT, "superseded", Tone.REPORTED)
    assert reason(COMPLETED, sql=Sql.ADVANCED) == (Do.REJECT, "superseded", Tone.REPORTED)
    assert does(COMPLETED, recording=Recording.OFF, sql=Sql.NONE) == (Do.FINISH_UNRECORDED, "RC-7")
    assert reason(COMPLETED, sql=Sql.GONE) == (Do.DROP, "ledger_purged", Tone.REPORTED)


@pytest.mark.parametrize("cursor", [CursorState.AHEAD, CursorState.OTHER])
def test_a_completed_turn_whose_history_is_not_there_is_committed_as_it_is(cursor: CursorState) -> None:
    """A completed turn is never blocked (RC-7, CK-9)."""
    assert reason(COMPLETED, cursor=cursor) == (Do.COMMIT, "cursor_ahead", Tone.REPORTED)


def test_a_rejected_turn_is_moved_to_its_list_and_left_to_an_operator() -> None:
    """(RC-8)"""
    assert reason(REJECTED) == (Do.LIST, "rejected", Tone.QUIET)
    assert does(REJECTED, pending=Pending.ONCE) == (Do.PLACE, "RC-8")
    assert does(REJECTED, rejected=Rejected.ABSENT) == (Do.PLACE, "RC-8")
    assert does(REJECTED, sql=Sql.DONE) == (Do.FINISH, "RC-8")
    assert does(REJECTED, sql=Sql.ANSWERED) == does(REJECTED, sql=Sql.DUPLICATE) == (Do.FINISH_DUPLICATE, "RC-8")


def test_a_committed_turn_is_left_to_expire_off_every_list() -> None:
    """(RC-9)"""
    for sql in (Sql.DONE, Sql.DUPLICATE):
        assert does(COMMITTED, sql=sql) == (Do.NOTHING, "RC-9")
        assert does(COMMITTED, sql=sql, pending=Pending.ONCE) == (Do.PLACE, "RC-9")
        assert does(COMMITTED, sql=sql, indexes=Indexes.WRONG) == (Do.PLACE, "RC-9")


@pytest.mark.parametrize("sql", [Sql.NONE, Sql.STARTED, Sql.LOST])
def test_a_committed_turn_that_postgres_lost_is_committed_again_from_its_spare_copy(sql: Sql) -> None:
    """(RC-9, FL-9)"""
    assert reason(COMMITTED, sql=sql) == (Do.REVIVE, "lost_by_postgres", Tone.REPORTED)
    assert reason(COMMITTED, sql=sql, copy=Copy.GONE) == (Do.LIST, "lost_by_postgres", Tone.REPORTED)


@pytest.mark.parametrize("turn", [FAILED, ABANDONED])
def test_an_ended_turn_that_postgres_believes_to_be_open_gets_its_terminal(turn: Facts) -> None:
    """(RC-10)"""
    assert does(turn, sql=Sql.STARTED) == does(turn, sql=Sql.ANSWERED) == (Do.WRITE_TERMINAL, "RC-10")
    assert reason(turn, sql=Sql.DONE) == (Do.FINISH, "contradiction", Tone.REPORTED)
    assert does(turn) == does(turn, sql=Sql.LOST) == does(turn, sql=Sql.ADVANCED) == (Do.NOTHING, "RC-10")


def test_an_unreadable_record_is_set_aside_for_as_long_as_it_may_be_needed() -> None:
    """(RC-11)"""
    for sql in (Sql.NONE, Sql.STARTED):
        assert reason(UNREADABLE, sql=sql) == (Do.QUARANTINE, "unreadable", Tone.REPORTED)
    for sql in (Sql.DONE, Sql.FAILED, Sql.DUPLICATE):
        assert reason(UNREADABLE, sql=sql) == (Do.QUARANTINE_FOR_A_WHILE, "unreadable", Tone.REPORTED)


def test_a_pending_turn_without_a_record_is_reported_lost_unless_it_is_decided() -> None:
    """(RC-12)"""
    pending = replace(MISSING, pending=Pending.ONCE)
    for sql in (Sql.DONE, Sql.ANSWERED, Sql.DUPLICATE):
        assert reason(pending, sql=sql) == (Do.PLACE, "", Tone.QUIET)
    for sql in (Sql.NONE, Sql.STARTED, Sql.LOST, Sql.FAILED):
        assert reason(pending, sql=sql) == (Do.LOSE, "persistence_failed", Tone.REPORTED)


def test_an_open_run_without_a_record_is_lost_once_it_is_old() -> None:
    """(RC-13)"""
    assert does(MISSING, sql=Sql.STARTED) == (Do.NOTHING, "RC-13")
    assert reason(MISSING, sql=Sql.STARTED, age=Age.OLD) == (Do.SESSION_LOST, "session_lost", Tone.REPORTED)
    assert does(MISSING, sql=Sql.LOST, age=Age.OLD) == (Do.NOTHING, "RC-13")


def test_an_index_entry_without_a_record_goes_and_its_job_does_nothing() -> None:
    """(RC-14)"""
    assert does(MISSING, indexes=Indexes.WRONG) == (Do.PLACE, "RC-14")
    assert reason(MISSING, rejected=Rejected.LISTED) == (Do.PLACE, "rejected_turn_lost", Tone.REPORTED)
    assert does(MISSING, job=Job.THERE)[0] is Do.NOTHING
