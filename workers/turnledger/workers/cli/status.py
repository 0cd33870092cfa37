"""`turnledger status`: what is on its way, what is stored, who works, and what needs a person."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis
from rich.table import Table
from sqlalchemy import Connection, text

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records
from turnledger.store import check_revision, read_settings
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.fleet import Fleet
from turnledger.workers.cli.output import Output, console, many, print_json
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.clock import CLOCK_LOCK
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.worker import rq_connection

LONGEST_WAIT_S = 60.0  # by then a turn is committed, whatever died on the way
NAMED = 10  # rejected turns that are named; the number tells of the rest
READ_AT_ONCE = 1_000

_STORED = text("SELECT count(*), coalesce(sum(turn_count), 0), coalesce(sum(next_seq), 0) FROM ledger")
_CLOCK_RUNS = text(
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) | objid::bigint = :key)"
)


@dataclass(frozen=True, slots=True)
class Status:
    """One look. Pending: completed and not committed. Unfinished: running or parked. Turns and events: stored ever."""

    pending: int
    oldest_pending_s: float | None
    queued_jobs: int
    unfinished: int
    rejected: int
    rejected_turns: tuple[str, ...]
    failed_jobs: int
    workers: int
    clock: bool
    ledgers: int
    turns: int
    events: int

    @property
    def attention(self) -> list[str]:
        """What a person should do something about, a sentence each."""
        found = []
        if self.rejected:
            named = ", ".join(self.rejected_turns)
            found.append(
                f"{many(self.rejected, 'turn')} rejected at the commit ({named}): "
                "`turnledger show --turn ID` says why, `turnledger requeue ID` tries again"
            )
        if self.failed_jobs > self.rejected:
            found.append(f"{many(self.failed_jobs, 'commit job')} failed: rq-dashboard shows the reasons")
        if self.oldest_pending_s is not None and self.oldest_pending_s > LONGEST_WAIT_S:
            found.append(
                f"the oldest pending turn has waited for {self.oldest_pending_s:.0f} s: {self._who_is_missing()}"
            )
        return found

    def _who_is_missing(self) -> str:
        if not self.workers:
            return "no worker is alive; run `turnledger worker`"
        return "look into the log of the workers" if self.clock else "no clock runs; run `turnledger clock`"


def run_status(*, output: Output) -> int:
    """Look and print; the exit code, 1 when something needs a person.

    Raises:
        StoreUnavailable, CheckpointUnavailable, SchemaMismatch, ...: a server cannot be asked.
    """
    status = read_status()
    if output == "json":
        print_json({**asdict(status), "attention": status.attention})
    else:
        _print(status)
    return NEEDS_A_PERSON if status.attention else OK


def read_status() -> Status:
    """Look at the servers of the environment."""
    with the_database() as database:
        check_revision(database)
        with database.snapshot() as connection:
            stored = _stored(connection)
    with the_records() as records:
        return Status(**stored, **_on_their_way(records), workers=_workers(records.settings))


def _stored(connection: Connection) -> dict[str, Any]:
    ledgers, turns, events = connection.execute(_STORED).one()
    clock = connection.scalar(_CLOCK_RUNS, {"key": CLOCK_LOCK})
    return {"ledgers": ledgers, "turns": int(turns), "events": int(events), "clock": bool(clock)}


def _on_their_way(records: Records) -> dict[str, Any]:
    keys = records.keys
    with translated(), records.redis.pipeline(transaction=True) as pipeline:
        pipeline.time()
        pipeline.zcard(keys.backlog)
        pipeline.zrange(keys.backlog, 0, 0, withscores=True)
        pipeline.llen(keys.queue)
        pipeline.zcard(keys.failed_registry)
        (seconds, microseconds), pending, oldest, queued, failed = pipeline.execute()
        states = _states(records)
    rejected = [turn_id for turn_id, state in states.items() if state == "rejected"]
    counts = Counter(states.values())
    return {
        "pending": pending,
        "oldest_pending_s": seconds + microseconds / 1e6 - oldest[0][1] / 1000 if oldest else None,
        "queued_jobs": queued,
        "failed_jobs": failed,
        "unfinished": counts["running"] + counts["parked"],
        "rejected": len(rejected),
        "rejected_turns": tuple(rejected[:NAMED]),
    }


def _states(records: Records) -> dict[str, str]:
    """The state of every turn that has not ended, by turn_id."""
    states: dict[str, str] = {}
    redis, keys = records.redis, records.keys
    turn_ids = [turn_id for turn_id, _ in redis.zscan_iter(keys.turns, count=READ_AT_ONCE)]
    for first in range(0, len(turn_ids), READ_AT_ONCE):
        chunk = turn_ids[first : first + READ_AT_ONCE]
        with redis.pipeline(transaction=False) as pipeline:
            for turn_id in chunk:
                pipeline.hget(keys.record(turn_id), "state")
            states.update(zip(chunk, pipeline.execute(), strict=True))
    return states


def _workers(checkpoint: CheckpointSettings) -> int:
    settings = read_settings(WorkerSettings)
    redis: Redis = rq_connection(checkpoint)
    with translated(), redis:
        return Fleet(redis, queue=checkpoint.commit_queue).alive(silent_for_s=settings.worker_ttl_s)


def _print(status: Status) -> None:
    screen = console()
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in _rows(status):
        table.add_row(*row)
    screen.print(table)
    screen.print()
    for sentence in status.attention:
        screen.print(f"! {sentence}", style="yellow", markup=False, soft_wrap=True)
    if not status.attention:
        screen.print("Nothing needs a person.", style="green")


def _rows(status: Status) -> list[tuple[str, str, str]]:
    oldest = "" if status.oldest_pending_s is None else f"the oldest for {status.oldest_pending_s:.1f} s"
    return [
        ("pending turns", f"{status.pending:,}", oldest or "completed, not committed yet"),
        ("queued jobs", f"{status.queued_jobs:,}", ""),
        ("unfinished turns", f"{status.unfinished:,}", "running or parked"),
        ("rejected turns", f"{status.rejected:,}", "kept until somebody decides"),
        ("failed jobs", f"{status.failed_jobs:,}", ""),
        ("workers", f"{status.workers:,}", "heard of within the last minute"),
        ("clock", "runs" if status.clock else "none", ""),
        ("ledgers", f"{status.ledgers:,}", "in Postgres"),
        ("turns", f"{status.turns:,}", "recorded ever"),
        ("events", f"{status.events:,}", "recorded ever"),
    ]
