"""What `turnledger status` reads from both servers."""

from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis
from sqlalchemy import Connection, text

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import connection_options, make_client, translated
from turnledger.checkpoint.records import Records
from turnledger.store import Database, check_revision, read_settings
from turnledger.store.retention import read_totals
from turnledger.store.times import time_text
from turnledger.workers.cli.counting import NAMED, count_turns
from turnledger.workers.cli.fleet import JOB_PREFIX, Fleet
from turnledger.workers.cli.servers import database_to_look_at, records_to_look_at
from turnledger.workers.clock import CLOCK_LOCK
from turnledger.workers.settings import WorkerSettings

MOST_PAGES = 2_000  # of the table of ledgers, 16 MiB: larger ones are sampled, so that a look stays cheap

_PAGES = text("SELECT pg_relation_size('ledger') / current_setting('block_size')::bigint")
LONGEST_WAIT_S = 60.0  # by then a turn is committed, whatever died on the way
_STORED = text(
    "SELECT count(*), coalesce(sum(turn_count), 0), coalesce(sum(next_seq), 0) FROM ledger TABLESAMPLE SYSTEM (:share)"
)
_CLOCK_RUNS = text(
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) | objid::bigint = :key)"
)


@dataclass(frozen=True, slots=True)
class Status:
    """One look. Times in seconds; a share of 1 is the whole. `docs/reference/status.md` says what each member counts.

    `oldest_pending_s` None: nothing is pending. `redis_memory_share` None: Redis has no memory limit. `swept_at` None:
    no sweep of retention has come to its end yet.
    """

    running: int
    parked: int
    blocked: int
    blocked_turns: tuple[str, ...]
    replaced: int
    pending: int
    pending_limit: int
    oldest_pending_s: float | None
    rejected: int
    rejected_turns: tuple[str, ...]
    quarantined: int
    quarantined_turns: tuple[str, ...]
    queued_jobs: int
    queued_rewrites: int
    failed_jobs: int
    failed_turns: tuple[str, ...]
    redis_memory_bytes: int
    redis_memory_share: float | None
    redis_memory_share_limit: float
    late_commit: bool
    late_rewriting: bool
    workers: int
    rewriters: int
    upkeep: int
    clock: bool
    ledgers: int
    turns: int
    events: int
    estimated: bool
    swept_entries: int
    swept_events: int
    swept_since: str | None
    swept_at: str | None


def read_status() -> Status:
    """Look at the servers of the environment.

    What it costs does not grow with what is stored: the turns on their way are looked at one by one (`count_turns`),
    of a large table of ledgers a sample is read, and everything else is one number of a server.

    Raises:
        StoreUnavailable, CheckpointUnavailable, SchemaMismatch, ...: a server cannot be asked.
    """
    with database_to_look_at() as database:
        check_revision(database)
        stored = read_stored(database)
    with records_to_look_at() as records:
        return Status(**stored, **turn_figures(records), **_memory(records), **fleet_figures(records.settings))


def read_stored(database: Database) -> dict[str, Any]:
    """The members of `Status` that Postgres knows; their cost does not grow with what is stored.

    Raises:
        StoreUnavailable, ...: it cannot be asked.
    """
    with database.snapshot() as connection:
        return {**_stored(connection), **_swept(connection)}


def read_on_their_way(records: Records) -> dict[str, Any]:
    """The members of `Status` that Redis knows without looking at turns one by one: so many commands, whatever waits.

    Raises:
        CheckpointUnavailable: it cannot be asked.
    """
    return {**_queue(records), **_late(records), **_memory(records)}


def turn_figures(records: Records) -> dict[str, Any]:
    """The members of `Status` on turns and jobs on their way.

    Raises:
        CheckpointUnavailable, CheckpointMisconfigured: Redis cannot be asked.
    """
    return {**_queue(records), **_late(records), **asdict(count_turns(records))}


def clock_runs(connection: Connection) -> bool:
    """Whether some process holds the lock of the clock."""
    return bool(connection.scalar(_CLOCK_RUNS, {"key": CLOCK_LOCK}))


def _stored(connection: Connection) -> dict[str, Any]:
    share = min(100.0, 100.0 * MOST_PAGES / max(connection.scalar(_PAGES) or 0, 1))
    sampled = connection.execute(_STORED, {"share": share}).one()
    ledgers, turns, events = (round(int(found) * 100 / share) for found in sampled)
    estimated, clock = share < 100, clock_runs(connection)
    return {"ledgers": ledgers, "turns": turns, "events": events, "estimated": estimated, "clock": clock}


def _swept(connection: Connection) -> dict[str, Any]:
    totals = read_totals(connection)
    return {
        "swept_entries": totals.entries,
        "swept_events": totals.events,
        "swept_since": None if totals.since is None else time_text(totals.since),
        "swept_at": None if totals.swept_at is None else time_text(totals.swept_at),
    }


def _queue(records: Records) -> dict[str, Any]:
    keys = records.keys
    with translated(), records.redis.pipeline(transaction=True) as pipeline:
        pipeline.time()
        pipeline.zcard(keys.backlog)
        pipeline.zrange(keys.backlog, 0, 0, withscores=True)
        pipeline.zcard(keys.quarantined)
        pipeline.zrange(keys.quarantined, 0, NAMED - 1)
        pipeline.llen(keys.queue)
        pipeline.llen(keys.rewrites)
        pipeline.zcard(keys.failed_registry)
        pipeline.zrange(keys.failed_registry, 0, NAMED - 1)
        (seconds, microseconds), pending, oldest, quarantined, aside, queued, rewrites, failed, jobs = (
            pipeline.execute()
        )
    return {
        "pending": pending,
        "pending_limit": records.settings.pending_turns,
        "oldest_pending_s": seconds + microseconds / 1e6 - oldest[0][1] / 1000 if oldest else None,
        "quarantined": quarantined,
        "quarantined_turns": tuple(aside),
        "queued_jobs": queued,
        "queued_rewrites": rewrites,
        "failed_jobs": failed,
        "failed_turns": tuple(job.removeprefix(JOB_PREFIX) for job in jobs),
    }


def _late(records: Records) -> dict[str, bool]:
    waits = {turn.waits for turn in records.overdue(older_than_s=LONGEST_WAIT_S, most=1)}
    return {"late_commit": False in waits, "late_rewriting": True in waits}


def _memory(records: Records) -> dict[str, Any]:
    with translated():
        memory: Any = records.redis.info("memory")
    limit = int(memory.get("maxmemory", 0))
    return {
        "redis_memory_bytes": int(memory["used_memory"]),
        "redis_memory_share": int(memory["used_memory"]) / limit if limit else None,
        "redis_memory_share_limit": records.settings.redis_memory_share,
    }


def fleet_figures(checkpoint: CheckpointSettings) -> dict[str, Any]:
    """The members of `Status` on workers; raises as `turn_figures`."""
    silent_for_s = read_settings(WorkerSettings).worker_ttl_s
    redis: Redis = make_client(checkpoint, **connection_options(checkpoint))
    with translated(), redis:
        return {
            "workers": Fleet(redis, queue=checkpoint.commit_queue).alive(silent_for_s=silent_for_s),
            "rewriters": Fleet(redis, queue=checkpoint.rewrite_queue).alive(silent_for_s=silent_for_s),
            "upkeep": Fleet(redis, queue=checkpoint.upkeep_queue).alive(silent_for_s=silent_for_s),
        }
