"""How a turn ends for its holder, and what the next start of its ledger sees of it."""

import time

import pytest
from redis import Redis

from tests.records_contract.playing import (
    LEAD,
    ODD,
    complete,
    completed,
    everything,
    finish,
    job_fields,
    lives,
    members,
    opened,
    record_keys,
    record_of,
    with_settings,
)
from turnledger.checkpoint import (
    CompletionConflict,
    TurnEnded,
)
from turnledger.checkpoint.errors import QueueFull
from turnledger.checkpoint.queue import commit_job
from turnledger.checkpoint.records import Records


def test_complete_is_atomic_with_the_enqueue(records: Records) -> None:
    """Record, pending list, counter, indexes, job and queue, all at once (QU-1, QU-2)."""
    claim = opened(records, "t1", work_key="k")
    assert complete(records, claim, work_key="k", digest="d1", fields={"entry": "E"}, steps=["a"]) == ""
    keys, redis = records.keys, records.redis
    record = record_of(records, "t1")
    assert {
        name: record[name] for name in ("state", "entry", "completion_no", "digest", "bootstrap", "lease_until")
    } == {
        "state": "completed",
        "entry": "E",
        "completion_no": "1",
        "digest": "d1",
        "bootstrap": "",
        "lease_until": "0",
    }
    assert record["revision"] == "2"
    assert abs(int(record["completed_at"]) - time.time() * 1000) < 60_000
    assert members(records, keys.steps("t1")) == ["a"]
    assert members(records, keys.pending(LEAD)) == members(records, keys.backlog) == ["t1"]
    assert members(records, keys.turns) == ["t1"]
    assert redis.get(keys.completions(LEAD)) == "1"
    assert redis.exists(keys.open(LEAD)) == 0
    assert members(records, keys.queue) == ["turn-t1"]
    assert redis.smembers(keys.queues) == {keys.queue}
    job = commit_job("t1", settings=records.settings)
    assert job_fields(records, "t1").keys() == job.keys() - {"data"}
    assert job_fields(records, "t1")["status"] == "queued"


def test_completions_are_numbered_in_the_order_in_which_they_stand(records: Records) -> None:
    """A ledger's own counter and list (QU-3)."""
    for turn_id, ledger in [("t1", LEAD), ("o1", ODD[0]), ("t2", LEAD), ("t3", LEAD)]:
        completed(records, turn_id, ledger=ledger)
    assert members(records, records.keys.pending(LEAD)) == ["t1", "t2", "t3"]
    assert [record_of(records, turn_id)["completion_no"] for turn_id in ("t1", "t2", "t3", "o1")] == list("1231")


@pytest.mark.parametrize("state", ["completed", "committed", "rejected"])
def test_complete_repeated_gets_its_first_answer(records: Records, state: str) -> None:
    """Whatever became of the turn; nothing is queued again (CK-5, QU-4)."""
    claim = completed(records, "t1")
    if state == "committed":
        finish(records, "t1")
    elif state == "rejected":
        records.reject("t1", ledger=LEAD, reason="no")
    before = everything(records.redis)
    assert complete(records, claim, steps=["a"], operation="another") == ""
    assert everything(records.redis) == before


@pytest.mark.parametrize("state", ["completed", "committed", "rejected"])
def test_complete_with_another_content_is_a_conflict(records: Records, state: str) -> None:
    """The first stands (CK-5)."""
    claim = completed(records, "t1", digest="d1")
    records.redis.hset(records.keys.record("t1"), "state", state)
    before = everything(records.redis)
    with pytest.raises(CompletionConflict, match="t1"):
        complete(records, claim, digest="d2")
    assert everything(records.redis) == before


def test_complete_marks_the_open_runs_of_its_work_key(records: Records) -> None:
    """Their own completion names the first, whichever comes later; the fence stays as it is (ST-5)."""
    claims = {}
    for turn_id, key in [("first", "k"), ("second", "k"), ("third", "k"), ("other", "k2"), ("none", "")]:
        claims[turn_id] = opened(records, turn_id, work_key=key)
        records.redis.srem(records.keys.open(LEAD), *claims)  # or a second run of the key could not be opened
    records.redis.sadd(records.keys.open(LEAD), *claims)
    assert complete(records, claims["first"], work_key="k") == ""
    assert complete(records, claims["second"], work_key="k") == "first entry-first"
    assert complete(records, claims["second"], work_key="k") == "first entry-first"
    claims["third"] = records.save(claims["third"], fields={}, steps=["a"])
    assert complete(records, claims["third"], work_key="k") == "first entry-first"
    assert complete(records, claims["other"], work_key="k2") == complete(records, claims["none"]) == ""


def test_complete_is_refused_when_too_much_is_pending(redis: "Redis") -> None:
    """Nothing is written; a repeat of one that is pending is not refused (QU-14)."""
    records = with_settings(redis, pending_turns=2)
    claims = [completed(records, "t1"), completed(records, "t2")]
    late = opened(records, "t3")
    before = everything(redis)
    with pytest.raises(QueueFull, match="2 turns are pending"):
        complete(records, late)
    assert everything(redis) == before
    assert complete(records, claims[1]) == ""
    finish(records, "t1")
    assert complete(records, late) == ""


@pytest.mark.parametrize("state", ["failed", "abandoned", "committed"])
def test_end_closes_a_turn_without_the_queue(records: Records, state: str) -> None:
    """It leaves every index and lives on for a while as a spare copy (CK-3, CK-5)."""
    claim = records.save(opened(records, "t1"), fields={"bootstrap": "1"}, steps=["a"])
    ended_at = records.end(claim, ledger=LEAD, state=state, fields={"code": "c"}, operation="e")
    record = record_of(records, "t1")
    assert (record["state"], record["code"], record["bootstrap"], record["touched_at"]) == (
        state,
        "c",
        "",
        str(ended_at),
    )
    assert abs(ended_at - time.time() * 1000) < 60_000
    assert records.redis.exists(records.keys.open(LEAD), records.keys.turns, records.keys.queue) == 0
    assert all(40_000 < life <= 100_000 for life in lives(records.redis, *record_keys(records)))


def test_end_repeated_under_its_operation_gets_its_first_answer(records: Records) -> None:
    """And under another one it is refused (CK-5)."""
    claim = opened(records, "t1")
    first = records.end(claim, ledger=LEAD, state="failed", fields={}, operation="e")
    time.sleep(0.005)
    assert records.end(claim, ledger=LEAD, state="failed", fields={}, operation="e") == first
    with pytest.raises(TurnEnded) as refused:
        records.end(claim, ledger=LEAD, state="abandoned", fields={}, operation="other")
    assert refused.value.state == "failed"


def test_look_sees_what_a_start_has_to_know(records: Records) -> None:
    """Pending, rejected and open turns at one moment, in completion order; it writes nothing (ST-1)."""
    for turn_id in ("t1", "t2", "t3"):
        completed(records, turn_id, work_key=f"k-{turn_id}", fields={"entry": f"E {turn_id}", "kept_steps": 7})
        time.sleep(0.002)
    records.reject("t1", ledger=LEAD, reason="no")
    claim = opened(records, "t4", work_key="k4")
    opened(records, "elsewhere", ledger=ODD[0])
    before = everything(records.redis)
    view = records.look(LEAD, turn_id="t4")
    assert everything(records.redis) == before
    assert ([turn.turn_id for turn in view.pending], [turn.turn_id for turn in view.rejected]) == (["t2", "t3"], ["t1"])
    assert [turn.turn_id for turn in view.uncommitted] == ["t1", "t2", "t3"]
    first = view.uncommitted[0]
    assert (first.state, first.work_key, first.entry_id, first.entry, first.kept_steps, first.message_ids) == (
        "rejected",
        "k-t1",
        "entry-t1",
        "E t1",
        7,
        ("m1",),
    )
    assert [(turn.turn_id, turn.work_key, turn.owner, turn.state) for turn in view.open] == [
        ("t4", "k4", claim.owner, "running")
    ]
    assert (view.own_state, view.completions) == ("running", 3)
    assert abs(view.now_ms - time.time() * 1000) < 60_000
    assert records.look(ODD[1], turn_id="t9").own_state is None


def test_look_passes_over_what_has_no_record(records: Records) -> None:
    """An index may list too much (ST-1)."""
    for turn_id in ("t1", "t2"):
        completed(records, turn_id)
    opened(records, "t3")
    records.redis.delete(records.keys.record("t1"), records.keys.record("t3"))
    view = records.look(LEAD, turn_id="x")
    assert ([turn.turn_id for turn in view.pending], view.open) == (["t2"], ())
