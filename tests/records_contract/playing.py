"""How the tests of the contract play turns through the scripts, and look at what is left."""

from typing import Any

import pytest
from redis import Redis

from turnledger.checkpoint import (
    CheckpointSettings,
)
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor
from turnledger.checkpoint.records import Claim, Finished, Records
from turnledger.store import LedgerName

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


def unfitted(records: Records, turn_id: str, **given: Any) -> None:
    """A completed turn that waits for its rewriting."""
    completed(records, turn_id, fields={"fitting": "rewrite", "entry": "long", "entry_bytes": 4}, **given)


def finish(records: Records, *turn_ids: str, ledger: LedgerName = LEAD, window_jobs: int = 400) -> int:
    turns = [Finished(turn_id, ledger, "completed", number, None) for number, turn_id in enumerate(turn_ids, 1)]
    return records.finish(turns, window_jobs=window_jobs)


def fronts(records: Records, *counts: tuple[LedgerName, int], turns: int = 200, size: int = 10**9) -> list[str]:
    return records.front([(encode_ledger(name), count) for name, count in counts], most_turns=turns, most_bytes=size)


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


def record_keys(records: Records, turn_id: str = "t1") -> list[str]:
    return [records.keys.record(turn_id), records.keys.steps(turn_id)]


def job_fields(records: Records, turn_id: str) -> dict[str, Any]:
    """The job's hash; `data` is compressed and no text."""
    key = records.keys.job(turn_id)
    assert records.redis.hexists(key, "data")
    return {str(name): records.redis.hget(key, str(name)) for name in records.redis.hkeys(key) if name != "data"}


def lapse(records: Records, turn_id: str) -> None:
    records.redis.hset(records.keys.record(turn_id), "lease_until", 1)


def members(records: Records, key: str) -> list[str]:
    kind = records.redis.type(key)
    found: Any = records.redis.lrange(key, 0, -1) if kind == "list" else records.redis.zrange(key, 0, -1)
    return list(found)


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
