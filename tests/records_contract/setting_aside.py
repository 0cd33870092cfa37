"""Turns that are set aside, come back, have lost their place or their job, or are overdue."""

import time

import pytest

from tests.records_contract.playing import LEAD, ODD, completed, everything, members, opened, record_of
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.records import Records


def test_reject_sets_a_turn_aside_once(records: Records) -> None:
    """With its reason; only a pending one (QU-6)."""
    completed(records, "t1")
    assert records.reject("t1", ledger=LEAD, reason="22P02 no")
    before = everything(records.redis)
    assert not records.reject("t1", ledger=LEAD, reason="again")
    assert not records.reject("gone", ledger=LEAD, reason="x")
    assert everything(records.redis) == before
    record, keys = record_of(records, "t1"), records.keys
    assert (record["state"], record["refusal"]) == ("rejected", "22P02 no")
    assert members(records, keys.rejected(LEAD)) == members(records, keys.turns) == ["t1"]
    assert records.redis.exists(keys.pending(LEAD), keys.backlog) == 0


def test_reinstate_puts_a_rejected_turn_behind_the_pending_ones(records: Records) -> None:
    """It takes the next ordinal; completed_at tells the truth (QU-3, QU-6)."""
    for turn_id in ("t1", "t2"):
        completed(records, turn_id)
    records.reject("t1", ledger=LEAD, reason="no")
    completed_at = record_of(records, "t1")["completed_at"]
    assert records.reinstate("t1", ledger=LEAD)
    assert not records.reinstate("t1", ledger=LEAD)
    assert not records.reinstate("t2", ledger=LEAD)
    record, keys = record_of(records, "t1"), records.keys
    assert (record["state"], record["completion_no"], record["completed_at"]) == ("completed", "3", completed_at)
    assert (record["refusal"], record["attempts"]) == ("", "0")
    assert members(records, keys.pending(LEAD)) == ["t2", "t1"]
    assert records.redis.exists(keys.rejected(LEAD)) == 0
    assert set(members(records, keys.backlog)) == {"t2", "t1"}


@pytest.mark.parametrize("lost", ["t1", "t2", "t3"])
def test_restore_gives_a_turn_its_place_back(records: Records, lost: str) -> None:
    """By completion_no, wherever it stood; twice makes no second (RC-6)."""
    for turn_id in ("t1", "t2", "t3"):
        completed(records, turn_id)
    keys = records.keys
    records.redis.lrem(keys.pending(LEAD), 0, lost)
    records.redis.zrem(keys.backlog, lost)
    for _ in range(2):
        assert records.restore(lost, ledger=LEAD, job="leave") == "completed"
    assert members(records, keys.pending(LEAD)) == ["t1", "t2", "t3"]
    assert set(members(records, keys.backlog)) == {"t1", "t2", "t3"}
    assert members(records, keys.queue) == ["turn-t1", "turn-t2", "turn-t3"]


@pytest.mark.parametrize("trouble", ["the job is gone", "the job has failed"])
def test_restore_makes_a_job_where_there_is_none_to_run(records: Records, trouble: str) -> None:
    """Deleted, or failed and not run again (QU-12, RC-14)."""
    completed(records, "t1")
    keys = records.keys
    if trouble == "the job is gone":
        records.redis.delete(keys.job("t1"), keys.queue, keys.queues)
    else:
        records.redis.delete(keys.queue)
        records.redis.hset(keys.job("t1"), "status", "failed")
        records.redis.zadd(keys.failed_registry, {"turn-t1": 1})
    records.restore("t1", ledger=LEAD, job="leave")
    assert records.redis.exists(keys.queue) == 0
    for _ in range(2):
        assert records.restore("t1", ledger=LEAD, job="make") == "completed"
    assert members(records, keys.queue) == ["turn-t1"]
    assert records.redis.hget(keys.job("t1"), "status") == "queued"
    assert records.redis.exists(keys.failed_registry) == 0
    assert records.redis.smembers(keys.queues) == {keys.queue}


@pytest.mark.parametrize("place", ["queued", "just taken", "running"])
def test_restore_leaves_a_job_alone_that_is_on_its_way(records: Records, place: str) -> None:
    """One job a turn (QU-4)."""
    completed(records, "t1")
    keys, redis = records.keys, records.redis
    if place == "just taken":
        redis.rpoplpush(keys.queue, keys.taken(keys.queue))
    elif place == "running":
        redis.hset(keys.job("t1"), "status", "started")
        redis.delete(keys.queue)
        redis.zadd(keys.executions("turn-t1"), {"some-execution": time.time() + 60})
    before = everything(redis)
    records.restore("t1", ledger=LEAD, job="make")
    assert everything(redis) == before


@pytest.mark.parametrize("state", ["running", "committed", "rejected", ""])
def test_restore_does_nothing_for_a_turn_that_is_not_pending(records: Records, state: str) -> None:
    """It says what the turn is (RC-14)."""
    if state:
        opened(records, "t1")
        records.redis.hset(records.keys.record("t1"), "state", state)
    before = everything(records.redis)
    assert records.restore("t1", ledger=LEAD, job="make") == state
    assert everything(records.redis) == before


def test_a_place_counts_those_before(records: Records) -> None:
    """None: it is not there (QU-3)."""
    for turn_id in ("t1", "t2"):
        completed(records, turn_id)
    places = [records.stand(turn_id, ledger=LEAD) for turn_id in ("t1", "t2", "t3")]
    assert places == [(0, ""), (1, ""), None]


def test_overdue_finds_the_oldest_pending_turns(records: Records) -> None:
    """By time of completion; those without a record are passed over (FL-7)."""
    for number, turn_id in enumerate(["t1", "t2", "t3", "gone"]):
        completed(records, turn_id, ledger=ODD[number])
        records.redis.zadd(records.keys.backlog, {turn_id: time.time() * 1000 - 10_000 * (4 - number)})
    records.redis.delete(records.keys.record("gone"))
    assert records.overdue(older_than_s=15, most=10) == [
        (turn_id, encode_ledger(ledger), False) for turn_id, ledger in zip(["t1", "t2", "t3"], ODD, strict=False)
    ]
    first, second = ((f"t{number + 1}", encode_ledger(ODD[number]), False) for number in (0, 1))
    assert records.overdue(older_than_s=15, most=2) == [first, second]
    assert records.overdue(older_than_s=35, most=10) == [first]


def test_prune_takes_turns_without_a_record_off_the_indexes(records: Records) -> None:
    """Not those that may just be on their way, and no more than were asked for (RC-14)."""
    for turn_id in ("gone-1", "gone-2", "there", "young"):
        completed(records, turn_id)
        records.redis.delete(records.keys.record(turn_id)) if turn_id != "there" else None
        age = 0 if turn_id == "young" else 5_000_000
        for index in (records.keys.turns, records.keys.backlog):
            records.redis.zadd(index, {turn_id: time.time() * 1000 - age})
    assert records.prune(older_than_s=30, most=100) == 4
    assert records.prune(older_than_s=30, most=100) == 0
    assert (
        set(members(records, records.keys.turns)) == set(members(records, records.keys.backlog)) == {"there", "young"}
    )
