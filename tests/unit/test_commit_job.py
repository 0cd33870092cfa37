"""The job that completes a turn is made without RQ, and must be what RQ itself would have made."""

import json
import subprocess
import sys
import zlib
from typing import Any

import pytest
from redis import Redis
from rq import Retry
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.keys import fit_job_id, job_id
from turnledger.checkpoint.queue import COMMIT_FUNCTION, FIT_FUNCTION, commit_job, fit_job

SETTINGS = CheckpointSettings(redis_url="redis://localhost")
TURN_ID = "0b5c2f8e-1111-4222-8333-944455556666"
TIMES = {"created_at", "enqueued_at"}


def made_by_rq(settings: CheckpointSettings, connection: "Redis") -> dict[str, Any]:
    job = Job.create(
        COMMIT_FUNCTION,
        args=(TURN_ID,),
        id=job_id(TURN_ID),
        connection=connection,
        serializer=JSONSerializer,
        origin=settings.commit_queue,
        timeout=settings.job_timeout_s,
        result_ttl=0,
        failure_ttl=settings.failure_ttl_s,
        status=JobStatus.QUEUED,
        description=job_id(TURN_ID),
        retry=Retry(max=settings.abandon_retries),
    )
    return dict(job.to_dict())


@pytest.mark.parametrize(
    "given",
    [{}, {"commit_queue": "other", "job_timeout_s": 7, "failure_ttl_s": 11, "abandon_retries": 3}],
    ids=["defaults", "other settings"],
)
def test_the_job_hash_is_what_rq_would_write(given: dict[str, Any], fake_redis: "Redis") -> None:
    """Field by field, but for the times (QU-2)."""
    settings = SETTINGS.model_copy(update=given)
    ours: dict[str, Any] = dict(commit_job(TURN_ID, settings=settings))
    theirs = made_by_rq(settings, fake_redis)
    ours["data"] = decompressed(ours["data"])
    theirs["data"] = decompressed(theirs["data"])
    theirs = {name: value if isinstance(value, (str, list)) else str(value) for name, value in theirs.items()}
    assert {name: value for name, value in ours.items() if name not in TIMES} == {
        name: value for name, value in theirs.items() if name not in TIMES
    }


def decompressed(data: Any) -> Any:
    return json.loads(zlib.decompress(data))


def test_rq_reads_the_job_back(fake_redis: "Redis") -> None:
    """Its one argument is the turn's id; it holds no content and is restored from its hash (QU-2)."""
    fields = commit_job(TURN_ID, settings=SETTINGS)
    fake_redis.hset(f"rq:job:{job_id(TURN_ID)}", items=[item for pair in fields.items() for item in pair])
    job = Job.fetch(job_id(TURN_ID), connection=fake_redis, serializer=JSONSerializer)
    assert (job.func_name, job.args, job.kwargs) == (COMMIT_FUNCTION, [TURN_ID], {})
    assert (job.origin, job.timeout, job.result_ttl, job.failure_ttl) == ("commits", 180, 0, 7 * 86_400)
    assert (job.retries_left, job.get_retry_interval(), job.description) == (10, 0, job_id(TURN_ID))
    assert job.get_status(refresh=False) is JobStatus.QUEUED
    assert job.created_at is not None
    assert job.enqueued_at is not None


def test_rq_reads_the_job_of_a_rewriting_back(fake_redis: "Redis") -> None:
    """On a queue of its own and under an id of its own; it may take twice a turn's time (RW-5, QU-2)."""
    fields = fit_job(TURN_ID, settings=SETTINGS)
    fake_redis.hset(f"rq:job:{fit_job_id(TURN_ID)}", items=[item for pair in fields.items() for item in pair])
    job = Job.fetch(fit_job_id(TURN_ID), connection=fake_redis, serializer=JSONSerializer)
    assert (job.func_name, job.args, job.kwargs) == (FIT_FUNCTION, [TURN_ID], {})
    assert (job.origin, job.timeout, job.result_ttl, job.description) == ("rewrites", 120, 0, fit_job_id(TURN_ID))
    assert fields.keys() == commit_job(TURN_ID, settings=SETTINGS).keys()


def test_an_engine_node_does_not_import_rq() -> None:
    """The job is made without it (QU-2)."""
    source = "import sys, turnledger.checkpoint; sys.exit('rq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0
