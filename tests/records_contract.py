"""What every Redis must do with our scripts: run over fakeredis by the unit tests and over a real server by the
integration tests. The importing module gives the fixture ``redis``; it decodes texts.
"""

import re
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import pytest
from redis import Redis
from redis.crc import key_slot

from turnledger.checkpoint import (
    AlreadyHandled,
    AlreadyRunning,
    CheckpointMisconfigured,
    CheckpointSettings,
    CompletionConflict,
    StaleTurn,
    TurnBlocked,
    TurnEnded,
    TurnNotFound,
)
from turnledger.checkpoint.errors import QueueFull
from turnledger.checkpoint.fittings import Fittings
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.queue import commit_job
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor
from turnledger.checkpoint.records import Claim, Finished, Records
from turnledger.store import LedgerName
from turnledger.store.json_text import encode_json

LEAD = LedgerName("lead", "jira:POC-7")
ODD = [
    LedgerName("ceo", "a:b"),
    LedgerName("ceo:a", "b:b"),
    LedgerName("%{}*?[]", "x:{turnledger}:pending"),
    LedgerName("日本 𝄞", "slack:C9:1718.001"),
]
FIELDS: dict[str, str | int] = {
    "format": RECORD_FORMAT,
    "state": "running",
    "epoch": 1,
    "slice": 1,
    "recorded": "1",
    "started_at": "2026-11-30T16:20:16.123Z",
    "triggered_by": '"x"',
    "message_ids": '["m1"]',
    "cursor": Cursor(1, 0, 4, "t0").encode(),
    "earlier": "## Earlier",
    "handled": "[]",
}
COMPLETION: dict[str, str | int] = {
    "entry": "{}",
    "fitting": "none",
    "decision": "",
    "kept_steps": 0,
    "events": "[]",
    "bytes": 10,
}

# Commands and forms that Redis 6.2 has; whoever adds one looks up since when it is there.
COMMANDS_OF_REDIS_6_2 = re.compile(
    "DEL|EXISTS|GET|HDEL|HEXISTS|HGET|HGETALL|HINCRBY|HLEN|HMGET|HSET|HSETNX|HSTRLEN|INCR|LINSERT|LLEN|LPOS|LPUSH|LRANGE"
    "|LREM|LTRIM|PERSIST|PEXPIRE|PEXPIREAT|PTTL|RENAME|RPUSH|SADD|SCARD|SET|SISMEMBER|SMEMBERS|SREM|TIME|TYPE|ZADD|ZCARD"
    "|ZRANGEBYSCORE|ZREM|ZSCORE"
)


@pytest.fixture
def records(redis: "Redis") -> Records:
    """The scripts under test, with short times."""
    return with_settings(redis)


def with_settings(redis: "Redis", **given: Any) -> Records:
    times = {"lease_s": 60.0, "unfinished_expiry_s": 1_000.0, "spare_copy_s": 100.0}
    return Records(redis, CheckpointSettings(**{"redis_url": "redis://unused", **times, **given}))


def opened(
    records: Records, turn_id: str, *, work_key: str = "", ledger: LedgerName = LEAD, owner: str = "", **fields: Any
) -> Claim:
    claim = Claim(turn_id, owner or f"owner-of-{turn_id}", 1)
    head = {"ledger": encode_ledger(ledger), "work_key": work_key, "entry_id": f"entry-{turn_id}"}
    records.open(claim, ledger=ledger, work_key=work_key, fields={**FIELDS, **head, **fields})
    return claim


def complete(
    records: Records, claim: Claim, *, ledger: LedgerName = LEAD, work_key: str = "", digest: str = "d", **given: Any
) -> str:
    return records.complete(
        claim,
        ledger=ledger,
        work_key=work_key,
        digest=digest,
        fields={**COMPLETION, **given.get("fields", {})},
        steps=given.get("steps", ()),
        operation=given.get("operation", f"completes-{claim.turn_id}"),
    )


def completed(records: Records, turn_id: str, *, ledger: LedgerName = LEAD, **given: Any) -> Claim:
    claim = opened(records, turn_id, ledger=ledger, work_key=given.get("work_key", ""))
    complete(records, claim, ledger=ledger, **given)
    return claim


def finish(records: Records, *turn_ids: str, ledger: LedgerName = LEAD, window_jobs: int = 400) -> int:
    turns = [Finished(turn_id, ledger, "completed", number, None) for number, turn_id in enumerate(turn_ids, 1)]
    return records.finish(turns, window_jobs=window_jobs)


def everything(redis: "Redis") -> dict[str, Any]:
    """All that Redis holds, but for times to live."""
    found: dict[str, Any] = {}
    for key in sorted(redis.scan_iter()):
        kind = redis.type(key)
        if kind == "hash":
            found[key] = {name: redis.hget(key, name) for name in redis.hkeys(key) if name != "data"}
        elif kind == "list":
            found[key] = redis.lrange(key, 0, -1)
        elif kind == "set":
            found[key] = redis.smembers(key)
        elif kind == "zset":
            found[key] = [member for member, _ in redis.zscan_iter(key)]
        else:
            found[key] = redis.get(key)
    return found


def lives(redis: "Redis", *keys: str) -> list[int]:
    """How long these keys live, in milliseconds, seen at one moment; -1: for ever, -2: not there."""
    with redis.pipeline(transaction=True) as pipeline:
        for key in keys:
            pipeline.pttl(key)
        return list(pipeline.execute())


def record_of(records: Records, turn_id: str) -> dict[str, str]:
    found: Any = records.redis.hgetall(records.keys.record(turn_id))
    return dict(found)


def lapse(records: Records, turn_id: str) -> None:
    records.redis.hset(records.keys.record(turn_id), "lease_until", 1)


def members(records: Records, key: str) -> list[str]:
    kind = records.redis.type(key)
    found: Any = records.redis.lrange(key, 0, -1) if kind == "list" else records.redis.zrange(key, 0, -1)
    return list(found)


# open ---------------------------------------------------------------------------------------------------------


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


# save ---------------------------------------------------------------------------------------------------------


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


# renew and claim ----------------------------------------------------------------------------------------------


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


# input --------------------------------------------------------------------------------------------------------


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


# complete and end ---------------------------------------------------------------------------------------------


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


def job_fields(records: Records, turn_id: str) -> dict[str, Any]:
    """The job's hash; `data` is compressed and no text."""
    key = records.keys.job(turn_id)
    assert records.redis.hexists(key, "data")
    return {str(name): records.redis.hget(key, str(name)) for name in records.redis.hkeys(key) if name != "data"}


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


def record_keys(records: Records, turn_id: str = "t1") -> list[str]:
    return [records.keys.record(turn_id), records.keys.steps(turn_id)]


def test_end_repeated_under_its_operation_gets_its_first_answer(records: Records) -> None:
    """And under another one it is refused (CK-5)."""
    claim = opened(records, "t1")
    first = records.end(claim, ledger=LEAD, state="failed", fields={}, operation="e")
    time.sleep(0.005)
    assert records.end(claim, ledger=LEAD, state="failed", fields={}, operation="e") == first
    with pytest.raises(TurnEnded) as refused:
        records.end(claim, ledger=LEAD, state="abandoned", fields={}, operation="other")
    assert refused.value.state == "failed"


# look ---------------------------------------------------------------------------------------------------------


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


# the commit ---------------------------------------------------------------------------------------------------


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


def fronts(records: Records, *counts: tuple[LedgerName, int], turns: int = 200, size: int = 10**9) -> list[str]:
    return records.front([(encode_ledger(name), count) for name, count in counts], most_turns=turns, most_bytes=size)


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


# aside, back, overdue -----------------------------------------------------------------------------------------


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
        redis.rpoplpush(keys.queue, keys.taken_jobs)
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


def unfitted(records: Records, turn_id: str, **given: Any) -> None:
    """A completed turn that waits for its rewriting."""
    completed(records, turn_id, fields={"fitting": "rewrite", "entry": "long", "entry_bytes": 4}, **given)


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


# keys and commands --------------------------------------------------------------------------------------------


def whole_life(records: Records, ledger: LedgerName, prefix: str) -> None:
    """Every script once, on turns of one ledger."""
    done, broken, bad = (f"{prefix}-{name}" for name in ("done", "broken", "bad"))
    records.look(ledger, turn_id=done)
    opened(records, f"{prefix}-idle", work_key=prefix, ledger=ledger)
    claim = records.save(opened(records, done, work_key="k", ledger=ledger), fields={"x": "1"}, steps=["a", "b"])
    records.renew([claim])
    records.save(claim, fields={"state": "parked"}, steps=["c"], lease="give up")
    records.append_input(done, message_id="m2", steps=["d"])
    record, _ = records.claim(done, owner="new")
    records.block(done, reason="x")
    complete(records, Claim(done, "new", record.revision), ledger=ledger, work_key="k")
    records.end(opened(records, broken, ledger=ledger), ledger=ledger, state="failed", fields={"c": 1}, operation="e")
    completed(records, bad, ledger=ledger)
    records.look(ledger, turn_id=done)
    for turn_id in (done, bad):
        records.take(turn_id)
    records.window(most_jobs=10)
    fronts(records, (ledger, 10))
    records.reject(bad, ledger=ledger, reason="no")
    records.reinstate(bad, ledger=ledger)
    records.redis.lrem(records.keys.pending(ledger), 0, bad)
    records.redis.hset(records.keys.job(bad), "status", "failed")
    records.restore(bad, ledger=ledger, job="make")
    records.stand(bad, ledger=ledger)
    records.overdue(older_than_s=-1, most=10)
    finish(records, done, bad, ledger=ledger)
    records.redis.zadd(records.keys.turns, {f"{prefix}-gone": 1})
    records.prune(older_than_s=-1, most=10)


@pytest.mark.parametrize("ledger", ODD, ids=lambda ledger: ledger.agent)
def test_ledgers_with_odd_names_go_through_every_script(records: Records, ledger: LedgerName) -> None:
    """And meet no other ledger (ID-6)."""
    for other in ODD:
        completed(records, f"other-{ODD.index(other)}", ledger=other)
    before = {other: members(records, records.keys.pending(other)) for other in ODD}
    whole_life(records, ledger, "life")
    assert {other: members(records, records.keys.pending(other)) for other in ODD} == before
    assert [record_of(records, f"life-{name}")["state"] for name in ("done", "broken", "bad")] == [
        "committed",
        "failed",
        "committed",
    ]


def test_all_keys_stand_under_the_two_prefixes(redis: "Redis") -> None:
    """So that an ACL may be restricted to them (CK-14)."""
    records = with_settings(redis, prefix="{ours}", rq_prefix="theirs")
    redis.set("neighbour", "stays")
    for number, ledger in enumerate(ODD):
        whole_life(records, ledger, f"life{number}")
        completed(records, f"pending{number}", ledger=ledger)
    keys = set(redis.scan_iter()) - {"neighbour"}
    assert keys
    assert [key for key in keys if not str(key).startswith(("{ours}:", "theirs:"))] == []
    assert redis.get("neighbour") == "stays"


def test_with_one_hash_tag_all_keys_are_in_one_slot(redis: "Redis") -> None:
    """Ours and RQ's, whatever the names of ledgers hold (CK-14)."""
    records = with_settings(redis, prefix="{ours}", rq_prefix="{ours}:rq")
    for number, ledger in enumerate(ODD):
        whole_life(records, ledger, f"life{number}")
        completed(records, f"pending{number}", ledger=ledger)
    assert {key_slot(str(key).encode()) for key in redis.scan_iter()} == {key_slot(b"ours")}


def scripts() -> Sequence[tuple[str, str]]:
    folder = files("turnledger.checkpoint").joinpath("scripts")
    return [(item.name, item.read_text(encoding="utf-8")) for item in folder.iterdir() if item.name.endswith(".lua")]


@pytest.mark.parametrize(("name", "source"), scripts(), ids=[name for name, _ in scripts()])
def test_a_script_uses_only_what_redis_6_2_has(name: str, source: str) -> None:
    """No newer commands, no server modules, and content is never parsed (CK-14)."""
    code = re.sub(r"--.*", "", source)
    used = re.findall(r"redis\.call\(\s*'([A-Za-z.]+)'", code)
    assert [command for command in used if not COMMANDS_OF_REDIS_6_2.fullmatch(command)] == []
    assert not re.search(r"cjson|cmsgpack|struct\.|loadstring|redis\.pcall|KEYS\b.*(SCAN|'KEYS')", code)


@pytest.mark.parametrize(("name", "source"), scripts(), ids=[name for name, _ in scripts()])
def test_the_head_of_a_script_says_what_it_touches(name: str, source: str) -> None:
    """Every key by its number, every argument that stands for keys (CK-14)."""
    head = "\n".join(line for line in source.splitlines() if line.startswith("--"))
    code = re.sub(r"--.*", "", source)
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", code)}
    listed = re.search(r"KEYS (.*?)(ARGV|Answer)", head.replace("\n--", " "), re.DOTALL)
    numbers = {int(number) for number in re.findall(r"\b(\d+) [a-z]", listed[1])} if listed else set()
    assert used == numbers or name.startswith("_")


def test_a_record_travels_as_texts_that_utf8_can_carry(records: Records) -> None:
    """Whatever was in them: JSON spells the rest (EV-10)."""
    torture = "\x00 \ud800 𝄞 \u202e \\u0000 \x1a"
    claim = opened(records, "t1", triggered_by=encode_json(torture), earlier="𝄞\u202e\x00\x1a")
    records.save(claim, fields={"bootstrap": encode_json({torture: [torture]})}, steps=[f"a\n{encode_json(torture)}"])
    record, steps = records.read("t1")
    assert (record.triggered_by, record.bootstrap, record.earlier) == (torture, {torture: [torture]}, "𝄞\u202e\x00\x1a")
    assert steps == [f"a\n{encode_json(torture)}"]
