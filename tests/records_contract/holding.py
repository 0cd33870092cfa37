"""Opening, saving, renewing and claiming: who holds a turn, and what a wrong claim may write."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.records_contract.playing import (
    FIELDS,
    LEAD,
    ODD,
    complete,
    completed,
    everything,
    finish,
    lapse,
    lives,
    members,
    opened,
    record_of,
)
from turnledger.checkpoint import (
    AlreadyHandled,
    AlreadyRunning,
    CheckpointMisconfigured,
    CompletionConflict,
    StaleTurn,
    TurnBlocked,
    TurnEnded,
    TurnNotFound,
)
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.records import Claim, Records

STRANGERS: dict[str, Claim] = {
    "another owner": Claim("t1", "stranger", 2),
    "an older revision": Claim("t1", "owner-of-t1", 1),
    "a revision to come": Claim("t1", "owner-of-t1", 3),
}
WRITES: dict[str, Callable[[Records, Claim], object]] = {
    "save": lambda records, claim: records.save(claim, fields={"bootstrap": "x"}, steps=["x"]),
    "complete": complete,
    "end": lambda records, claim: records.end(claim, ledger=LEAD, state="failed", fields={}, operation="e"),
}


def test_open_makes_the_record_and_its_indexes(records: Records) -> None:
    """A lease, an expiry, and a place in the ledger's open turns (ST-2, CK-3)."""
    claim = opened(records, "t1", work_key="k")
    record = record_of(records, "t1")
    assert {name: record[name] for name in ("owner", "revision", "state", "work_key", "entry_id")} == {
        "owner": claim.owner,
        "revision": "1",
        "state": "running",
        "work_key": "k",
        "entry_id": "entry-t1",
    }
    assert 0 < int(record["lease_until"]) - int(record["touched_at"]) <= 60_000
    assert records.redis.smembers(records.keys.open(LEAD)) == {"t1"}
    assert members(records, records.keys.turns) == ["t1"]
    assert 940_000 < lives(records.redis, records.keys.record("t1"))[0] <= 1_000_000


def test_open_repeated_by_the_same_owner_changes_nothing(records: Records) -> None:
    """Its reply was lost (CK-2)."""
    opened(records, "t1", work_key="k")
    before = everything(records.redis)
    opened(records, "t1", work_key="k", state="something else")
    assert everything(records.redis) == before


def test_open_answers_how_many_completions_the_ledger_has_seen(records: Records) -> None:
    """So that a start notices what completed meanwhile (ST-3)."""
    claim = Claim("t2", "o", 1)
    completed(records, "t1")
    assert records.open(claim, ledger=LEAD, work_key="", fields={**FIELDS, "ledger": encode_ledger(LEAD)}) == 1


def test_open_refuses_the_record_of_another_owner(records: Records) -> None:
    """Two starts of one turn_id: one of them has it (ST-8)."""
    opened(records, "t1")
    before = everything(records.redis)
    with pytest.raises(AlreadyRunning) as refused:
        opened(records, "t1", owner="another")
    assert refused.value.turn_id == "t1"
    assert everything(records.redis) == before


@pytest.mark.parametrize("state", ["running", "parked"])
def test_open_refuses_a_work_key_that_has_an_open_run(records: Records, state: str) -> None:
    """Naming turn, state and owner; nothing is written (ST-4)."""
    claim = opened(records, "t1", work_key="k")
    if state == "parked":
        records.save(claim, fields={"state": "parked"}, lease="give up")
    before = everything(records.redis)
    with pytest.raises(AlreadyRunning) as refused:
        opened(records, "t2", work_key="k")
    assert (refused.value.turn_id, refused.value.state, refused.value.owner) == ("t1", state, claim.owner)
    assert everything(records.redis) == before


def test_open_lets_runs_of_no_work_key_and_of_other_ledgers_be(records: Records) -> None:
    """The empty key never merges, and a key belongs to its ledger (ID-5, ID-7)."""
    for turn_id, key, ledger in [("t1", "", LEAD), ("t2", "", LEAD), ("t3", "k", LEAD), ("t4", "k", ODD[0])]:
        opened(records, turn_id, work_key=key, ledger=ledger)
    assert len(members(records, records.keys.turns)) == 4


def test_open_takes_off_the_index_what_expired_or_ended(records: Records) -> None:
    """An index is an accelerator; the records are the truth (ST-4)."""
    for turn_id in ("gone", "ended", "alive"):
        opened(records, turn_id, work_key=turn_id)
    records.redis.delete(records.keys.record("gone"))
    records.redis.hset(records.keys.record("ended"), "state", "failed")
    opened(records, "t1", work_key="gone")
    assert records.redis.smembers(records.keys.open(LEAD)) == {"alive", "t1"}


def test_save_appends_steps_and_sets_fields(records: Records) -> None:
    """In order, and the claim moves on by one revision (CK-1)."""
    claim = opened(records, "t1")
    claim = records.save(claim, fields={"bootstrap": "1"}, steps=["a", "b"])
    claim = records.save(claim, fields={"bootstrap": "2"}, steps=["c"])
    record = record_of(records, "t1")
    assert members(records, records.keys.steps("t1")) == ["a", "b", "c"]
    assert (record["bootstrap"], record["revision"], claim.revision) == ("2", "3", 3)


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_200])
def test_save_takes_any_number_of_steps_at_once(records: Records, count: int) -> None:
    """Lua's stack does not hold thousands of arguments (CK-1)."""
    steps = [f"step {number}" for number in range(count)]
    claim = records.save(opened(records, "t1"), fields={"bootstrap": ""}, steps=steps)
    assert records.read("t1")[1] == steps
    complete(records, claim, steps=steps)
    assert records.read("t1")[1] == steps * 2


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("claim", STRANGERS.values(), ids=STRANGERS)
def test_a_write_under_a_wrong_claim_is_refused(
    records: Records, claim: Claim, write: Callable[[Records, Claim], object]
) -> None:
    """Stale, with nothing written (CK-2)."""
    records.save(opened(records, "t1"), fields={"bootstrap": "1"}, steps=["a"])
    before = everything(records.redis)
    with pytest.raises(StaleTurn) as refused:
        write(records, claim)
    assert refused.value.turn_id == "t1"
    assert everything(records.redis) == before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_a_turn_that_is_not_there_is_refused(
    records: Records, write: Callable[[Records, Claim], object]
) -> None:
    """And makes no record (CK-2)."""
    with pytest.raises(TurnNotFound):
        write(records, Claim("t1", "o", 1))
    assert everything(records.redis) == {}


@pytest.mark.parametrize("state", ["failed", "abandoned", "completed", "committed", "rejected"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_a_turn_that_has_ended_is_refused(
    records: Records, write: Callable[[Records, Claim], object], state: str
) -> None:
    """Terminal is absorbing (CK-5)."""
    claim = opened(records, "t1")
    records.redis.hset(records.keys.record("t1"), mapping={"state": state, "digest": "other"})
    before = everything(records.redis)
    with pytest.raises((TurnEnded, CompletionConflict)):
        write(records, claim)
    assert everything(records.redis) == before


@pytest.mark.parametrize("lease", ["keep", "give up"])
def test_a_save_repeated_under_its_operation_is_done_once(records: Records, lease: Any) -> None:
    """It gets its first answer, and nobody is stale to himself (CK-2)."""
    claim = opened(records, "t1")
    answers = [records.save(claim, fields={"x": "1"}, steps=["a"], lease=lease, operation="op-1") for _ in range(3)]
    assert answers == [claim.advanced()] * 3
    assert members(records, records.keys.steps("t1")) == ["a"]
    assert records.save(answers[0], fields={}, steps=["b"], operation="op-2").revision == 3


def test_a_save_after_a_take_over_is_refused_although_it_is_a_repeat(records: Records) -> None:
    """A take-over forgets the former owner's last operation (CK-2)."""
    claim = opened(records, "t1")
    records.save(claim, fields={}, steps=["a"], operation="op-1")
    lapse(records, "t1")
    records.claim("t1", owner="new")
    with pytest.raises(StaleTurn):
        records.save(claim, fields={}, steps=["a"], operation="op-1")


def test_a_save_gives_the_lease_up_or_keeps_it(records: Records) -> None:
    """park gives it up (CK-11)."""
    claim = records.save(opened(records, "t1"), fields={})
    assert int(record_of(records, "t1")["lease_until"]) > time.time() * 1000
    records.save(claim, fields={}, lease="give up")
    assert record_of(records, "t1")["lease_until"] == "0"


def test_record_and_steps_expire_together(records: Records) -> None:
    """At one and the same moment after every write, and never in part (CK-3)."""
    keys = (records.keys.record("t1"), records.keys.steps("t1"))
    claim = records.save(opened(records, "t1"), fields={}, steps=["a"])
    moments = [lives(records.redis, *keys)]
    records.redis.pexpire(keys[0], 50_000)
    records.renew([claim])
    moments.append(lives(records.redis, *keys))
    lapse(records, "t1")
    records.redis.pexpire(keys[1], 50_000)
    record, _ = records.claim("t1", owner="new")
    moments.append(lives(records.redis, *keys))
    records.end(Claim("t1", "new", record.revision), ledger=LEAD, state="failed", fields={}, operation="e")
    moments.append(lives(records.redis, *keys))
    assert all(abs(record - steps) <= 1 for record, steps in moments)
    assert [round(record, -4) for record, _ in moments] == [1_000_000, 1_000_000, 1_000_000, 100_000]


def test_completed_and_rejected_turns_never_expire(records: Records) -> None:
    """Neither record nor steps, nor the counter that orders them (CK-3)."""
    claim = records.save(opened(records, "t1"), fields={}, steps=["a"])
    complete(records, claim)
    keys = [records.keys.record("t1"), records.keys.steps("t1"), records.keys.completions(LEAD)]
    assert lives(records.redis, *keys) == [-1, -1, -1]
    records.renew([claim])
    records.reject("t1", ledger=LEAD, reason="no")
    assert lives(records.redis, *keys) == [-1, -1, -1]
    records.reinstate("t1", ledger=LEAD)
    records.restore("t1", ledger=LEAD, job="make")
    assert lives(records.redis, *keys) == [-1, -1, -1]
    finish(records, "t1")
    assert all(40_000 < life <= 100_000 for life in lives(records.redis, *keys[:2]))


def test_renew_renews_running_turns_of_their_owner_alone(records: Records) -> None:
    """In one round trip; owner and revision stay (CK-11)."""
    running, parked, taken = (opened(records, turn_id) for turn_id in ("t1", "t2", "t3"))
    records.save(parked, fields={"state": "parked"}, lease="give up")
    for turn_id in ("t1", "t2", "t3"):
        lapse(records, turn_id)
    records.claim("t3", owner="new")
    before = record_of(records, "t1")
    assert records.renew([running, parked, taken, Claim("gone", "o", 1)]) == [True, False, False, False]
    after = record_of(records, "t1")
    assert int(after["lease_until"]) > time.time() * 1000
    assert (after["owner"], after["revision"]) == (before["owner"], before["revision"])
    assert record_of(records, "t2")["lease_until"] == "1"


def test_renew_of_no_turn_is_nothing(records: Records) -> None:
    """A process without turns asks nobody (CK-11)."""
    assert records.renew([]) == []


@pytest.mark.parametrize("state", ["parked", "lapsed"])
def test_claim_takes_over_a_turn_that_nobody_holds(records: Records, state: str) -> None:
    """A new owner, the next revision and slice, the steps in order (CK-2, CK-6)."""
    claim = records.save(opened(records, "t1"), fields={"bootstrap": '{"k":1}'}, steps=["a", "b"])
    if state == "parked":
        records.save(claim, fields={"state": "parked", "reason": "waiting"}, lease="give up")
    else:
        lapse(records, "t1")
    record, steps = records.claim("t1", owner="new")
    assert (record.owner, record.state, record.slice, record.bootstrap) == ("new", "running", 2, {"k": 1})
    assert record.revision == (4 if state == "parked" else 3)
    assert steps == ["a", "b"]
    assert int(record_of(records, "t1")["lease_until"]) > time.time() * 1000


def test_claim_repeated_by_the_new_owner_is_no_second_take_over(records: Records) -> None:
    """Its reply was lost (CK-2, CK-10)."""
    opened(records, "t1")
    lapse(records, "t1")
    first = records.claim("t1", owner="new")
    assert records.claim("t1", owner="new") == first


def test_claim_refuses_a_turn_whose_holder_lives(records: Records) -> None:
    """Naming it; nothing is written (CK-11)."""
    claim = opened(records, "t1")
    before = everything(records.redis)
    with pytest.raises(AlreadyRunning) as refused:
        records.claim("t1", owner="new")
    assert (refused.value.owner, refused.value.state) == (claim.owner, "running")
    assert everything(records.redis) == before


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("completed", AlreadyHandled),
        ("rejected", AlreadyHandled),
        ("committed", AlreadyHandled),
        ("failed", TurnEnded),
        ("abandoned", TurnEnded),
    ],
)
def test_claim_refuses_a_turn_that_has_ended(records: Records, state: str, error: type[Exception]) -> None:
    """Completed work is named as handled, with its entry (CK-5, CK-11)."""
    opened(records, "t1")
    records.redis.hset(records.keys.record("t1"), "state", state)
    with pytest.raises(error) as refused:
        records.claim("t1", owner="new")
    assert refused.value.turn_id == "t1"  # type: ignore[attr-defined]  # both have it
    assert record_of(records, "t1")["owner"] == "owner-of-t1"


def test_claim_refuses_what_another_release_wrote_and_what_is_blocked(records: Records) -> None:
    """And leaves it untouched (CK-15, CK-9)."""
    for field, value, error in [("format", "2", CheckpointMisconfigured), ("blocked", "cursor_ahead", TurnBlocked)]:
        opened(records, field)
        lapse(records, field)
        records.redis.hset(records.keys.record(field), field, value)
        before = everything(records.redis)
        with pytest.raises(error, match=value):
            records.claim(field, owner="new")
        assert everything(records.redis) == before
    with pytest.raises(TurnNotFound):
        records.claim("gone", owner="new")


def test_a_blocked_turn_is_still_its_holders(records: Records) -> None:
    """Marking a turn never touches the fence (CK-2, CK-9)."""
    claim = opened(records, "t1")
    assert records.block("t1", reason="cursor_ahead")
    complete(records, records.save(claim, fields={}, steps=["a"]))
    assert not records.block("t1", reason="x")
    assert not records.block("gone", reason="x")
    assert everything(records.redis).keys() & {records.keys.record("gone")} == set()


def test_input_for_a_parked_turn_is_appended_once(records: Records) -> None:
    """Behind the saved steps; who parked it must resume before it writes again (CK-12)."""
    claim = records.save(opened(records, "t1"), fields={"state": "parked"}, steps=["a"], lease="give up")
    for _ in range(2):
        records.append_input("t1", message_id="m2", steps=["b"])
    record, steps = records.read("t1")
    assert (steps, record.message_ids) == (["a", "b"], ("m1", "m2"))
    with pytest.raises(StaleTurn):
        records.save(claim, fields={}, steps=["c"])


@pytest.mark.parametrize(
    ("state", "error"), [("running", AlreadyRunning), ("completed", TurnEnded), ("failed", TurnEnded)]
)
def test_input_for_a_turn_that_is_not_parked_is_refused(records: Records, state: str, error: type[Exception]) -> None:
    """Nothing is written (CK-12)."""
    opened(records, "t1")
    records.redis.hset(records.keys.record("t1"), "state", state)
    before = everything(records.redis)
    with pytest.raises(error):
        records.append_input("t1", message_id="m2", steps=["b"])
    with pytest.raises(TurnNotFound):
        records.append_input("gone", message_id="m2", steps=["b"])
    assert everything(records.redis) == before
