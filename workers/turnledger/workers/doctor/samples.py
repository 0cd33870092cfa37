"""What is looked for in Redis key by key: a bounded sample, so that a look at a large Redis stays cheap."""

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from redis import Redis

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.record import UNFINISHED
from turnledger.checkpoint.records import Records
from turnledger.workers.worker import rq_connection

MOST_RECORDS = 5_000  # a fault of a script or a tool is in many records, and so many take half a second
MOST_PAGES = 200  # of SCAN: where other programs fill the Redis, a look ends too
PAGE_KEYS = 500  # keys a page: Redis serves others in between
JOBS_AT_AN_END = 100  # looked at at each end of a queue: an engine that pickles does so with every job
NAMED = 10
_TERMINAL = ("committed", "failed", "abandoned")
_NO_EXPIRY = -1


def endless_keys(records: Records) -> tuple[tuple[str, ...], int]:
    """Records of unfinished or ended turns, and their steps, that never expire: the first of them; how many were seen.

    Raises:
        CheckpointUnavailable, CheckpointMisconfigured: Redis cannot be asked.
    """
    found: list[str] = []
    seen = 0
    for page in _pages(records):
        seen += len(page)
        found += _endless(records, page)
        if seen >= MOST_RECORDS:
            break
    return tuple(found[:NAMED]), seen


def foreign_jobs(settings: CheckpointSettings) -> tuple[str, ...]:
    """Jobs in our queues that no JSON worker can read, of those at both ends; raises as `endless_keys`."""
    redis: Redis = rq_connection(settings)
    with translated(), redis:
        queues = (settings.commit_queue, settings.upkeep_queue, settings.rewrite_queue)
        found = [job for queue in queues for job in _foreign(redis, prefix=settings.rq_prefix, queue=queue)]
    return tuple(found[:NAMED])


def _pages(records: Records) -> Iterator[list[str]]:
    """The ids of turns by their records."""
    prefix, cursor = records.keys.turn_prefix, 0
    for _ in range(MOST_PAGES):
        with translated():
            answer: Any = records.redis.scan(cursor, match=f"{_literal(prefix)}*", count=PAGE_KEYS, _type="hash")
        cursor, keys = answer
        yield [key.removeprefix(prefix) for key in keys]
        if not cursor:
            return


def _literal(prefix: str) -> str:
    """As a pattern of SCAN that matches itself alone: braces are plain there."""
    return prefix.replace("[", "\\[").replace("*", "\\*").replace("?", "\\?")


def _endless(records: Records, turn_ids: Sequence[str]) -> list[str]:
    keys = records.keys
    with translated(), records.redis.pipeline(transaction=False) as pipeline:
        for turn_id in turn_ids:
            pipeline.hget(keys.record(turn_id), "state")
            pipeline.pttl(keys.record(turn_id))
            pipeline.pttl(keys.steps(turn_id))
        answers = pipeline.execute() if turn_ids else []
    rows = zip(turn_ids, answers[::3], answers[1::3], answers[2::3], strict=True)
    return [
        key
        for turn_id, state, record_ms, steps_ms in rows
        if state in (*UNFINISHED, *_TERMINAL)
        for key, left_ms in ((keys.record(turn_id), record_ms), (keys.steps(turn_id), steps_ms))
        if left_ms == _NO_EXPIRY
    ]


def _foreign(redis: Redis, *, prefix: str, queue: str) -> list[str]:
    key = f"{prefix}:queue:{queue}"
    ends: list[Any] = [redis.lrange(key, 0, JOBS_AT_AN_END - 1), redis.lrange(key, -JOBS_AT_AN_END, -1)]
    job_ids = list(dict.fromkeys(job_id for end in ends for job_id in end))
    with redis.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hget(f"{prefix}:job:".encode() + job_id, "data")
        contents = pipeline.execute() if job_ids else []
    found = zip(job_ids, contents, strict=True)
    return [job_id.decode(errors="replace") for job_id, data in found if data is not None and not _is_json(data)]


def _is_json(data: bytes) -> bool:
    try:
        plain = zlib.decompress(data)
    except zlib.error:
        plain = data
    try:
        json.loads(plain)
    except ValueError:
        return False
    return True
