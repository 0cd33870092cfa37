"""Turns whose entry waits to be condensed, and those behind them."""

import time
from typing import Any

import pytest
from redis import Redis

from tests.records_contract.playing import (
    LEAD,
    ODD,
    completed,
    everything,
    finish,
    fronts,
    job_fields,
    members,
    record_of,
    unfitted,
    with_settings,
)
from turnledger.checkpoint.fittings import Fittings
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.records import Records


def test_a_turn_to_be_rewritten_is_queued_for_that_and_not_for_its_commit(records: Records) -> None:
    """Atomic as any completion is (RW-5, QU-1)."""
    unfitted(records, "t1")
    keys = records.keys
    assert members(records, keys.rewrites) == ["fit-t1"]
    assert records.redis.exists(keys.queue, keys.job("t1")) == 0
    assert records.redis.smembers(keys.queues) == {keys.rewrites}
    assert records.redis.hget(keys.fit_job("t1"), "origin") == "rewrites"
    assert members(records, keys.pending(LEAD)) == ["t1"]


def test_a_ledgers_turns_end_before_one_that_waits_for_its_rewriting(records: Records) -> None:
    """Only that ledger's; without the wait it has names (RW-5)."""
    completed(records, "t1")
    unfitted(records, "t2")
    completed(records, "t3")
    completed(records, "o1", ledger=ODD[0])
    assert fronts(records, (LEAD, 9), (ODD[0], 9)) == ["t1", "o1"]
    every = records.front([(encode_ledger(LEAD), 9)], most_turns=9, most_bytes=10**9, unfitted="names")
    assert every == ["t1", "t2", "t3"]


def test_a_turn_waits_for_its_rewriting_no_longer_than_it_may(redis: "Redis") -> None:
    """Ten minutes, unless a setting says otherwise; then whoever commits takes it with names (RW-5)."""
    records = with_settings(redis, rewrite_wait_s=1e-3)
    unfitted(records, "t1")
    wait_until_past(records, "t1")
    assert fronts(records, (LEAD, 9)) == ["t1"]
    assert Fittings(records).begin("t1", within_s=60) == (LEAD, 0, "long")
    patient = with_settings(redis)
    unfitted(patient, "t2")
    wait_ms = int(record_of(patient, "t2")["fit_until"]) - int(record_of(patient, "t2")["completed_at"])
    assert wait_ms == 600_000


def wait_until_past(records: Records, turn_id: str) -> None:
    until = int(record_of(records, turn_id)["fit_until"])
    while (now := records.redis.time())[0] * 1000 + now[1] // 1000 < until:
        time.sleep(0.001)


def test_the_time_of_a_rewriting_runs_from_its_first_beginning(records: Records) -> None:
    """A second worker gets what is left, whatever it asks for (RW-5)."""
    fittings = Fittings(records)
    unfitted(records, "t1")
    first = fittings.begin("t1", within_s=50)
    second = fittings.begin("t1", within_s=500)
    assert first is not None
    assert second is not None
    assert (first.ledger, first.entry) == (LEAD, "long")
    assert 40 < second.left_s <= first.left_s <= 50
    assert int(record_of(records, "t1")["fit_until"]) - int(record_of(records, "t1")["fit_begun"]) == 50_000


@pytest.mark.parametrize("state", ["none", "plain", "done", "committed"])
def test_there_is_nothing_to_rewrite_in_a_turn_that_does_not_wait(records: Records, state: str) -> None:
    """Nothing is written, and nothing queued (RW-5)."""
    fittings = Fittings(records)
    if state == "plain":
        completed(records, "t1")
    elif state != "none":
        unfitted(records, "t1")
        fittings.end("t1", fitted="done", entry="short")
    if state == "committed":
        finish(records, "t1")
    before = everything(records.redis)
    assert fittings.begin("t1", within_s=60) is None
    assert not fittings.end("t1", fitted="names")
    assert fittings.give_up(["t1"]) == []
    assert everything(records.redis) == before


@pytest.mark.parametrize("fitted", ["done", "names"])
def test_the_end_of_a_rewriting_queues_the_commit(records: Records, fitted: Any) -> None:
    """With the entry, or with the entry as it was (RW-5, RW-3)."""
    unfitted(records, "t1")
    entry = "tiny!" if fitted == "done" else ""
    assert Fittings(records).end("t1", fitted=fitted, entry=entry)
    record, keys = record_of(records, "t1"), records.keys
    assert (record["fitting"], record["entry"]) == (fitted, entry or "long")
    assert record["bytes"] == ("11" if entry else "10")
    assert members(records, keys.queue) == ["turn-t1"]
    assert job_fields(records, "t1")["status"] == "queued"
    assert fronts(records, (LEAD, 9)) == ["t1"]


def test_a_turn_behind_one_that_waits_gives_up_its_job_and_comes_along(records: Records) -> None:
    """Uncounted, with whatever commits the turn before it (RW-5, QU-1)."""
    unfitted(records, "t1")
    for turn_id in ("t2", "t3", "t4"):
        completed(records, turn_id)
    records.take("t2")
    assert records.stand("t2", ledger=LEAD) == (1, "t1")
    assert records.stand("t4", ledger=LEAD) == (3, "t1")
    assert record_of(records, "t2")["attempts"] == "0"
    Fittings(records).end("t1", fitted="done", entry="short")
    assert records.stand("t3", ledger=LEAD) == (2, "")
    assert fronts(records, (LEAD, 1)) == ["t1", "t2"]
    assert fronts(records, (LEAD, 2)) == ["t1", "t2", "t3", "t4"]
    assert fronts(records, (LEAD, 2), turns=1) == ["t1"]


def test_restore_makes_the_job_that_a_turn_should_have(records: Records) -> None:
    """Of its rewriting while it waits for that, none behind such a turn, of its commit otherwise (QU-12, RC-14)."""
    keys, redis = records.keys, records.redis
    unfitted(records, "t1")
    completed(records, "t2")
    records.stand("t2", ledger=LEAD)
    redis.delete(keys.fit_job("t1"), keys.rewrites, keys.job("t2"), keys.queue)
    for turn_id in ("t1", "t2") * 2:
        assert records.restore(turn_id, ledger=LEAD, job="make") == "completed"
    assert (members(records, keys.rewrites), members(records, keys.queue)) == (["fit-t1"], [])
    Fittings(records).end("t1", fitted="names")
    records.restore("t2", ledger=LEAD, job="make")
    assert members(records, keys.queue) == ["turn-t1", "turn-t2"]


@pytest.mark.parametrize("place", ["queued", "taken", "running", "gone", "failed", "emptied"])
def test_a_rewriting_is_given_up_when_its_job_is_gone(records: Records, place: str) -> None:
    """Then the turn has names; a job on its way is let be (QU-12, RW-3)."""
    keys, redis = records.keys, records.redis
    unfitted(records, "t1")
    if place == "taken":
        redis.rpoplpush(keys.rewrites, keys.taken(keys.rewrites))
    elif place == "running":
        redis.delete(keys.rewrites)
        redis.hset(keys.fit_job("t1"), "status", "started")
        redis.zadd(keys.executions("fit-t1"), {"some-execution": time.time() + 60})
    elif place == "gone":
        redis.delete(keys.rewrites, keys.fit_job("t1"))
    elif place == "failed":
        redis.delete(keys.rewrites)
        redis.hset(keys.fit_job("t1"), "status", "failed")
    elif place == "emptied":
        redis.delete(keys.rewrites)
    given_up = place in ("gone", "failed", "emptied")
    assert Fittings(records).give_up(["t1"]) == (["t1"] if given_up else [])
    assert record_of(records, "t1")["fitting"] == ("names" if given_up else "rewrite")
    assert fronts(records, (LEAD, 1)) == (["t1"] if given_up else [])


def test_finish_clears_the_job_of_a_rewriting_too(records: Records) -> None:
    """One that waits in its queue expires; one that failed goes at once (QU-10)."""
    keys, redis = records.keys, records.redis
    for turn_id in ("t1", "t2"):
        unfitted(records, turn_id)
    redis.hset(keys.fit_job("t2"), "status", "failed")
    redis.zadd(keys.failed(keys.rewrites), {"fit-t2": 1})
    finish(records, "t1", "t2")
    assert 0 < redis.pttl(keys.fit_job("t1")) <= 100_000
    assert redis.exists(keys.fit_job("t2"), keys.failed(keys.rewrites)) == 0


def test_turns_that_wait_hide_no_overdue_ones(records: Records) -> None:
    """They are counted apart (RW-5, FL-7)."""
    for number in range(5):
        unfitted(records, f"w{number}", ledger=ODD[0])
    completed(records, "held", ledger=ODD[0])
    records.stand("held", ledger=ODD[0])
    for number in range(3):
        completed(records, f"t{number}")
    order = ["w0", "w1", "w2", "w3", "w4", "held", "t0", "t1", "t2"]
    records.redis.zadd(records.keys.backlog, {turn_id: place for place, turn_id in enumerate(order)})
    found = [(turn.turn_id, turn.waits) for turn in records.overdue(older_than_s=-1, most=2)]
    assert found == [("w0", True), ("w1", True), ("t0", False), ("t1", False)]
