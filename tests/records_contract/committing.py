"""What a worker reads of the queue and of the ledgers, and how it finishes what it has written."""

from tests.records_contract.playing import (
    LEAD,
    ODD,
    completed,
    everything,
    finish,
    fronts,
    lives,
    members,
    opened,
    record_keys,
    record_of,
)
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.records import Finished, Records


def test_take_counts_the_attempts_on_a_completed_turn(records: Records) -> None:
    """None without a record, and none counted on a turn that is not pending (QU-6)."""
    assert records.take("gone") is None
    completed(records, "t1")
    found = [records.take("t1") for _ in range(3)]
    assert [(each.state, each.ledger, each.attempts, each.refusal) for each in found if each] == [
        ("completed", encode_ledger(LEAD), attempts, "") for attempts in (1, 2, 3)
    ]
    records.forget_attempts("t1")
    again = records.take("t1")
    assert again is not None
    assert again.attempts == 1
    finish(records, "t1")
    committed = records.take("t1")
    assert committed is not None
    assert (committed.state, committed.attempts) == ("committed", 0)


def test_take_hands_a_refusal_out_once(records: Records) -> None:
    """So that the job fails with its reason, and the next run of it tries again (QU-6)."""
    completed(records, "t1")
    records.reject("t1", ledger=LEAD, reason="22P02 no")
    assert [taken.refusal for taken in (records.take("t1"), records.take("t1")) if taken] == ["22P02 no", ""]


def test_window_counts_the_ledgers_at_the_head_of_the_queue(records: Records) -> None:
    """In order of appearance; foreign jobs and turns that have ended are passed over (QU-13)."""
    for turn_id, ledger in [("a1", ODD[0]), ("t1", LEAD), ("a2", ODD[0]), ("t2", LEAD), ("b1", ODD[2])]:
        completed(records, turn_id, ledger=ledger)
    records.redis.lpush(records.keys.queue, "some-other-job", "turn-gone")
    records.redis.hset(records.keys.record("t2"), "state", "committed")
    before = everything(records.redis)
    assert records.window(most_jobs=100) == [
        (encode_ledger(ODD[0]), 2),
        (encode_ledger(LEAD), 1),
        (encode_ledger(ODD[2]), 1),
    ]
    assert records.window(most_jobs=4) == [(encode_ledger(ODD[0]), 1), (encode_ledger(LEAD), 1)]
    assert records.window(most_jobs=0) == []
    assert everything(records.redis) == before


def test_window_on_an_empty_queue_is_empty(records: Records) -> None:
    """Nothing waits (QU-13)."""
    assert records.window(most_jobs=200) == []


def test_front_gives_so_many_of_each_ledger_in_completion_order(records: Records) -> None:
    """Ledger by ledger; it writes nothing (QU-3)."""
    for number in range(4):
        completed(records, f"a{number}", ledger=ODD[0])
        completed(records, f"t{number}")
    before = everything(records.redis)
    assert fronts(records, (LEAD, 3), (ODD[0], 2)) == ["t0", "t1", "t2", "a0", "a1"]
    assert fronts(records, (LEAD, 99), (ODD[1], 5)) == ["t0", "t1", "t2", "t3"]
    assert fronts(records) == fronts(records, (LEAD, 0)) == []
    assert everything(records.redis) == before


def test_front_stays_within_the_bounds_of_a_group(records: Records) -> None:
    """In turns and in bytes; the very first is always given, however big it is (QU-13)."""
    for number in range(4):
        completed(records, f"t{number}", fields={"bytes": 100})
    assert fronts(records, (LEAD, 4), turns=2) == ["t0", "t1"]
    assert fronts(records, (LEAD, 4), size=300) == ["t0", "t1", "t2"]
    assert fronts(records, (LEAD, 4), size=299) == ["t0", "t1"]
    assert fronts(records, (LEAD, 4), size=0) == ["t0"]


def test_front_passes_over_what_is_not_completed(records: Records) -> None:
    """And gives as many as were asked for all the same (RC-12)."""
    for number in range(5):
        completed(records, f"t{number}")
    records.redis.delete(records.keys.record("t0"))
    records.redis.hset(records.keys.record("t2"), "state", "committed")
    assert fronts(records, (LEAD, 2)) == ["t1", "t3"]
    assert fronts(records, (LEAD, 9)) == ["t1", "t3", "t4"]


def test_completed_reads_what_a_commit_needs(records: Records) -> None:
    """Fields and steps of many turns, in the order asked for (QU-5)."""
    for turn_id in ("t1", "t2"):
        completed(records, turn_id, fields={"entry": turn_id}, steps=[f"s-{turn_id}"])
    found = records.completed(["t2", "gone", "t1"])
    assert [(fields["entry"], fields["state"], steps) for fields, steps in found] == [
        ("t2", "completed", ["s-t2"]),
        (None, None, []),
        ("t1", "completed", ["s-t1"]),
    ]


def test_finish_takes_a_turn_off_every_list_but_keeps_a_spare_copy(records: Records) -> None:
    """State, lists, indexes, job (QU-10, CK-3)."""
    completed(records, "t1", steps=["a"])
    completed(records, "t2")
    turn = Finished("t1", LEAD, "completed", 7, None)
    assert records.finish([turn], window_jobs=400) == 1
    record = record_of(records, "t1")
    assert (record["state"], record["outcome"], record["ordinal"], record["first"]) == (
        "committed",
        "completed",
        "7",
        "",
    )
    keys = records.keys
    assert (
        members(records, keys.pending(LEAD)) == members(records, keys.backlog) == members(records, keys.turns) == ["t2"]
    )
    assert members(records, keys.queue) == ["turn-t2"]
    assert records.redis.exists(keys.job("t1")) == 0
    assert all(40_000 < life <= 100_000 for life in lives(records.redis, *record_keys(records)))


def test_finish_repeated_changes_nothing(records: Records) -> None:
    """Nor does it finish a turn that is not pending (QU-4)."""
    completed(records, "t1")
    opened(records, "t2")
    assert finish(records, "t1", "t2", "gone") == 1
    before = everything(records.redis)
    assert finish(records, "t1", "t2", "gone") == 0
    assert everything(records.redis) == before


def test_finish_leaves_the_other_jobs_where_they_are(records: Records) -> None:
    """Foreign jobs, and those of turns that are still pending, in their order (QU-10)."""
    for number in range(6):
        completed(records, f"t{number}")
    records.redis.linsert(records.keys.queue, "BEFORE", "turn-t1", "foreign-1")
    records.redis.rpush(records.keys.queue, "turn-gone", "foreign-2")
    finish(records, "t0", "t2", "t3")
    assert members(records, records.keys.queue) == ["foreign-1", "turn-t1", "turn-t4", "turn-t5", "foreign-2"]


def test_finish_looks_no_further_than_its_window(records: Records) -> None:
    """No script's time grows with the length of the queue; what is left behind does nothing (QU-13)."""
    for number in range(6):
        completed(records, f"t{number}")
    finish(records, *(f"t{number}" for number in range(6)), window_jobs=3)
    assert members(records, records.keys.queue) == ["turn-t3", "turn-t4", "turn-t5"]


def test_finish_takes_a_rejected_turn_and_its_failed_job_too(records: Records) -> None:
    """Somebody committed it directly (RC-8)."""
    completed(records, "t1")
    records.reject("t1", ledger=LEAD, reason="no")
    records.redis.hset(records.keys.job("t1"), "status", "failed")
    records.redis.zadd(records.keys.failed_registry, {"turn-t1": 1})
    records.redis.delete(records.keys.queue)
    assert finish(records, "t1") == 1
    keys = records.keys
    assert records.redis.exists(keys.rejected(LEAD), keys.job("t1"), keys.failed_registry, keys.turns) == 0
    assert record_of(records, "t1")["state"] == "committed"


def test_finish_lets_the_counter_of_an_idle_ledger_expire_and_completion_keeps_it(records: Records) -> None:
    """Idle ledgers leave nothing behind (QU-10)."""
    completed(records, "t1")
    completed(records, "t2")
    finish(records, "t1")
    assert lives(records.redis, records.keys.completions(LEAD)) == [-1]
    finish(records, "t2")
    assert 0 < lives(records.redis, records.keys.completions(LEAD))[0] <= 1_000_000
    completed(records, "t3")
    assert lives(records.redis, records.keys.completions(LEAD)) == [-1]
    assert record_of(records, "t3")["completion_no"] == "3"


def test_six_hundred_turns_go_through_in_one_window(records: Records) -> None:
    """More than Lua's stack holds at once, in order (QU-13)."""
    turn_ids = [f"t{number}" for number in range(600)]
    for number, turn_id in enumerate(turn_ids):
        completed(records, turn_id, ledger=ODD[number % 2])
    assert records.window(most_jobs=600) == [(encode_ledger(ODD[0]), 300), (encode_ledger(ODD[1]), 300)]
    assert fronts(records, (ODD[0], 300), (ODD[1], 300), turns=600) == turn_ids[::2] + turn_ids[1::2]
    assert finish(records, *turn_ids[:10:2], ledger=ODD[0], window_jobs=600) == 5
    rest = [turn_id for turn_id in turn_ids if turn_id not in turn_ids[:10:2]]
    assert members(records, records.keys.queue) == [f"turn-{turn_id}" for turn_id in rest]
    assert len(records.completed(rest)) == 595
    for ledger in ODD[:2]:
        finish(records, *members(records, records.keys.pending(ledger)), ledger=ledger, window_jobs=600)
    assert records.redis.exists(records.keys.queue, records.keys.backlog, records.keys.turns) == 0
