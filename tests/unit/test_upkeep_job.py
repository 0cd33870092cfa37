"""The jobs of upkeep are made without RQ, and must be what RQ itself would have made."""

import json
import zlib
from typing import Any

import fakeredis
import pytest
from redis import Redis
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.queue import INVALIDATE_FUNCTION, RECONCILE_FUNCTION, RETENTION_FUNCTION, upkeep_job
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import LedgerName
from turnledger.workers import upkeep as functions
from turnledger.workers.worker import ALLOWED_FUNCTIONS

SETTINGS = CheckpointSettings(redis_url="redis://localhost")
TIMES = {"created_at", "enqueued_at"}


@pytest.fixture
def records(fake_redis: fakeredis.FakeRedis) -> Records:
    return Records(fakeredis.FakeRedis(connection_pool=fake_redis.connection_pool), SETTINGS)


def fetched(redis: "Redis", job_id: str) -> Job:
    return Job.fetch(job_id, connection=redis, serializer=JSONSerializer)


def test_the_job_hash_is_what_rq_would_write(fake_redis: "Redis") -> None:
    """Field by field, but for the times; it is never retried (RC-18)."""
    ours: dict[str, Any] = dict(upkeep_job(RECONCILE_FUNCTION, [], name="reconcile", settings=SETTINGS))
    job = Job.create(
        RECONCILE_FUNCTION,
        id="reconcile",
        connection=fake_redis,
        serializer=JSONSerializer,
        origin="upkeep",
        timeout=900,
        result_ttl=0,
        failure_ttl=7 * 86_400,
        status=JobStatus.QUEUED,
        description="reconcile",
    )
    theirs = {name: value if isinstance(value, str) else str(value) for name, value in job.to_dict().items()}
    ours["data"] = json.loads(zlib.decompress(ours["data"]))
    theirs["data"] = json.loads(zlib.decompress(job.to_dict()["data"]))
    retries = {"retries_left": "0", "retry_intervals": "[0]"}
    assert {name: value for name, value in ours.items() if name not in TIMES} == {
        **{name: value for name, value in theirs.items() if name not in TIMES},
        **retries,
    }


def test_a_worker_may_run_these_functions(fake_redis: "Redis") -> None:
    """By the names under which they are queued (QU-2)."""
    assert {RECONCILE_FUNCTION, INVALIDATE_FUNCTION, RETENTION_FUNCTION} <= ALLOWED_FUNCTIONS
    for name in (RECONCILE_FUNCTION, INVALIDATE_FUNCTION, RETENTION_FUNCTION):
        module, _, function = name.rpartition(".")
        assert module == functions.__name__
        assert callable(getattr(functions, function))


def test_a_job_that_is_asked_for_again_is_queued_once(records: Records, fake_redis: "Redis") -> None:
    """While nobody works, nothing piles up (RC-18)."""
    upkeep = Upkeep(records)
    ledger, other = LedgerName("lead", "jira:POC-7"), LedgerName("lead", "jira:POC-8")
    asked = [upkeep.request_sweep(), upkeep.request_invalidation(ledger), upkeep.request_invalidation(other)]
    asked.append(upkeep.request_retention())
    again = [upkeep.request_sweep(), upkeep.request_invalidation(ledger), upkeep.request_invalidation(other)]
    again.append(upkeep.request_retention())
    assert (asked, again) == ([True] * 4, [False] * 4)
    queued: Any = fake_redis.lrange("rq:queue:upkeep", 0, -1)
    assert len(queued) == 4
    assert fetched(fake_redis, queued[1].decode()).args == ["lead:jira%3APOC-7"]
    assert fake_redis.smembers("rq:queues") == {b"rq:queue:upkeep"}


@pytest.mark.parametrize(
    ("left", "times"),
    [
        ("nothing", 1),
        ("a failed job", 1),
        ("a running job", 0),
        ("a hash without its place", 1),
        ("a place without its hash", 1),
    ],
)
def test_whatever_became_of_a_job_it_can_be_asked_for_again(
    records: Records, fake_redis: "Redis", left: str, times: int
) -> None:
    """But not beside itself (RC-18)."""
    upkeep = Upkeep(records)
    upkeep.request_sweep()
    if left in ("nothing", "a place without its hash"):
        fake_redis.delete("rq:job:reconcile")
    if left != "a place without its hash":
        fake_redis.delete("rq:queue:upkeep")
    status = {"a failed job": "failed", "a running job": "started"}.get(left)
    if status:
        fake_redis.hset("rq:job:reconcile", "status", status)
        fake_redis.zadd("rq:failed:upkeep", {"reconcile": 1})
    assert upkeep.request_sweep() == (times == 1)
    assert fake_redis.lrange("rq:queue:upkeep", 0, -1) == [b"reconcile"] * times
    assert 0 < fake_redis.pttl("rq:job:reconcile") <= 1_800_000
    assert fake_redis.exists("rq:failed:upkeep") == (left == "a running job")
