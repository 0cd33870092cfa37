"""Jobs as RQ stores them, made without RQ: engine nodes need not import it.

The fields are those of RQ's ``Job.to_dict()`` with its JSON serializer; a test compares the two.
"""

import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from turnledger.checkpoint.keys import fit_job_id, job_id
from turnledger.checkpoint.settings import CheckpointSettings

COMMIT_FUNCTION = "turnledger.workers.jobs.persist_turn"
FIT_FUNCTION = "turnledger.workers.jobs.fit_turn"
CONDENSE_FUNCTION = "turnledger.workers.jobs.condense_ledger"
RECONCILE_FUNCTION = "turnledger.workers.upkeep.reconcile"
INVALIDATE_FUNCTION = "turnledger.workers.upkeep.invalidate_ledger"
RETENTION_FUNCTION = "turnledger.workers.upkeep.sweep_retention"
DISCARD_RESULT_S = 0  # a committed turn says it all; a kept result costs 5 KB until it expires


def commit_job(turn_id: str, *, settings: CheckpointSettings) -> dict[str, str | bytes]:
    """The hash of the job that commits this turn: the turn's id is its only argument.

    ``Retry`` without an interval: a job whose worker died goes straight back to the queue.
    """
    return {**_constant_fields(settings), **_call(COMMIT_FUNCTION, [turn_id], description=job_id(turn_id))}


def fit_job(turn_id: str, *, settings: CheckpointSettings) -> dict[str, str | bytes]:
    """The hash of the job that rewrites this turn's over-long pieces; in all else as `commit_job`."""
    own: dict[str, str | bytes] = {
        "origin": settings.rewrite_queue,
        "timeout": str(settings.rewrite_job_timeout_s),
    }
    return {**_constant_fields(settings), **own, **_call(FIT_FUNCTION, [turn_id], description=fit_job_id(turn_id))}


def condense_job(ledger: str, *, name: str, settings: CheckpointSettings) -> dict[str, str | bytes]:
    """The hash of the job that has a ledger's older entries condensed. Never retried: the next commit asks again."""
    own: dict[str, str | bytes] = {
        "origin": settings.rewrite_queue,
        "timeout": str(settings.rewrite_job_timeout_s),
        "retries_left": "0",
    }
    return {**_constant_fields(settings), **own, **_call(CONDENSE_FUNCTION, [ledger], description=name)}


def upkeep_job(
    function: str, arguments: Sequence[str], *, name: str, settings: CheckpointSettings
) -> dict[str, str | bytes]:
    """The hash of a job of upkeep. It is never retried: the clock asks again in a minute."""
    own: dict[str, str | bytes] = {
        "origin": settings.upkeep_queue,
        "timeout": str(settings.upkeep_timeout_s),
        "retries_left": "0",
    }
    return {**_constant_fields(settings), **own, **_call(function, arguments, description=name)}


def _call(function: str, arguments: Sequence[str], *, description: str) -> dict[str, str | bytes]:
    now = _utc_text(datetime.now(tz=UTC).replace(microsecond=0))
    call = json.dumps([function, None, list(arguments), {}]).encode()
    return {"created_at": now, "enqueued_at": now, "description": description, "data": zlib.compress(call, 1)}


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
