"""A turn's commit job as RQ stores it, made without RQ: engine nodes need not import it.

The fields are those of RQ's ``Job.to_dict()`` with its JSON serializer; a test compares the two.
"""

import json
import zlib
from datetime import UTC, datetime
from functools import lru_cache

from turnledger.checkpoint.keys import job_id
from turnledger.checkpoint.settings import CheckpointSettings

COMMIT_FUNCTION = "turnledger.workers.jobs.persist_turn"
DISCARD_RESULT_S = 0  # a committed turn says it all; a kept result costs 5 KB until it expires


def commit_job(turn_id: str, *, settings: CheckpointSettings) -> dict[str, str | bytes]:
    """The hash of the job that commits this turn: the turn's id is its only argument.

    ``Retry`` without an interval: a job whose worker died goes straight back to the queue.
    """
    now = _utc_text(datetime.now(tz=UTC).replace(microsecond=0))
    call = json.dumps([COMMIT_FUNCTION, None, [turn_id], {}]).encode()
    return {
        **_constant_fields(settings),
        "created_at": now,
        "enqueued_at": now,
        "description": job_id(turn_id),
        "data": zlib.compress(call, 1),
    }


@lru_cache(maxsize=16)
def _constant_fields(settings: CheckpointSettings) -> dict[str, str | bytes]:
    return {
        "success_callback_name": "",
        "failure_callback_name": "",
        "stopped_callback_name": "",
        "started_at": "",
        "ended_at": "",
        "last_heartbeat": "",
        "worker_name": "",
        "group_id": "",
        "retries_left": str(settings.abandon_retries),
        "retry_intervals": "[0]",
        "origin": settings.commit_queue,
        "timeout": str(settings.job_timeout_s),
        "result_ttl": str(DISCARD_RESULT_S),
        "failure_ttl": str(settings.failure_ttl_s),
        "status": "queued",
    }


@lru_cache(maxsize=2)
def _utc_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
