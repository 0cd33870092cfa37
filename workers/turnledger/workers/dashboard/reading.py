"""What our page shows, read with the same number of commands and statements whatever waits or is stored."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import readable_ledger
from turnledger.checkpoint.record import UNFINISHED
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.tally import Minute, Tally
from turnledger.checkpoint.usage import Spent, UsageTally
from turnledger.store import Database, TurnledgerError, read_settings
from turnledger.workers.cli.attention import attention
from turnledger.workers.cli.counting import counted
from turnledger.workers.cli.figures import Status, read_on_their_way, read_stored
from turnledger.workers.cli.fleet import JOB_PREFIX
from turnledger.workers.cli.output import visible
from turnledger.workers.dashboard.rq_pages import all_workers
from turnledger.workers.dashboard.survey import Surveyor
from turnledger.workers.settings import WorkerSettings

LONGEST_REASON = 300  # characters; `turnledger show --turn` tells the rest
MOST_MODELS = 12  # on the page, the costliest
MOST_WORKERS = 100  # on the page; all of them are counted
_FIELDS = ("state", "ledger", "blocked", "replaced_by", "refusal", "touched_at")
_UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("ledgers", "turns", "events", "swept_entries", "swept_events"), 0
) | {"estimated": False, "clock": True, "swept_since": None, "swept_at": None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListedTurn:
    """A turn that somebody may have to look after. `for_s` is since its last change."""

    turn_id: str
    agent: str
    conversation: str
    reason: str
    for_s: float


@dataclass(frozen=True, slots=True)
class ListedWorker:
    """A process that works for a queue; `turn_id` is what it has in hand, None: nothing. `heard_s` is None: never."""

    name: str
    host: str
    queue: str
    turn_id: str | None
    heard_s: float | None
    is_alive: bool
    done: int


@dataclass(frozen=True, slots=True)
class Look:
    """One look at both servers. `postgres_trouble` is None when Postgres answered; else its figures mean nothing."""

    status: Status
    attention: Sequence[str]
    postgres_trouble: str | None
    surveyed_s: float
    rejected: Sequence[ListedTurn]
    blocked: Sequence[ListedTurn]
    replaced: Sequence[ListedTurn]
    workers: Sequence[ListedWorker]
    hour: Sequence[Minute]
    usage: Sequence[Spent]


class Reader:
    """Reads the servers of one deployment. Thread-safe."""

    def __init__(self, *, records: Records, database: Database, rq: Redis, surveyor: Surveyor) -> None:
        self._records = records
        self._database = database
        self._rq = rq
        self._surveyor = surveyor
        self._tally = Tally(records.redis, keys=records.keys)
        self._usage = UsageTally(records.redis, keys=records.keys)
        self._worker_ttl_s = read_settings(WorkerSettings).worker_ttl_s

    def look(self) -> Look:
        """Both servers now, and the last survey of the turns by state.

        Raises:
            CheckpointUnavailable, CheckpointMisconfigured: Redis cannot be asked.
        """
        last = self._surveyor.last
        stored, trouble = self._stored()
        workers = self._workers()
        status = Status(
            **stored,
            **read_on_their_way(self._records),
            **asdict(counted(last.survey)),
            **self._fleet(workers),
        )
        listed = self._listed({kind: list(ids) for kind, ids in last.survey.named.items()})
        return Look(
            status=status,
            attention=[visible(sentence) for sentence in attention(status)],
            postgres_trouble=trouble,
            surveyed_s=time.monotonic() - last.at,
            rejected=listed["rejected"],
            blocked=listed["blocked"],
            replaced=listed["replaced"],
            workers=workers[:MOST_WORKERS],
            hour=self._tally.last_hour(),
            usage=[replace(each, model=visible(each.model)) for each in self._usage.last_day()[:MOST_MODELS]],
        )

    def _stored(self) -> tuple[dict[str, Any], str | None]:
        try:
            return read_stored(self._database), None
        except TurnledgerError as error:
            return _UNKNOWN, visible(str(error))

    def _workers(self) -> list[ListedWorker]:
        now = datetime.now(tz=UTC)
        with translated():
            found = [self._worker(worker, now=now) for worker in all_workers(self._rq)]
        return sorted(found, key=lambda each: (each.queue, each.host, each.name))

    def _worker(self, worker: Any, *, now: datetime) -> ListedWorker:
        heard, in_hand = worker.last_heartbeat, [each.job_id for each in worker.get_current_executions()]
        heard_s = None
        if heard is not None:
            heard_s = (now - (heard if heard.tzinfo else heard.replace(tzinfo=UTC))) / timedelta(seconds=1)
        return ListedWorker(
            name=f"{worker.name}",
            host=f"{worker.hostname or '?'}:{worker.pid or '?'}",
            queue=", ".join(queue.name for queue in worker.queues),
            turn_id=in_hand[0].removeprefix(JOB_PREFIX) if in_hand else None,
            heard_s=heard_s,
            is_alive=heard_s is not None and heard_s <= self._worker_ttl_s,
            done=worker.successful_job_count,
        )

    def _fleet(self, workers: Sequence[ListedWorker]) -> dict[str, Any]:
        settings = self._records.settings
        queues = {
            "workers": settings.commit_queue,
            "rewriters": settings.rewrite_queue,
            "upkeep": settings.upkeep_queue,
        }
        return {
            name: sum(worker.is_alive and worker.queue == queue for worker in workers) for name, queue in queues.items()
        }

    def _listed(self, named: dict[str, list[str]]) -> dict[str, list[ListedTurn]]:
        """What the records of these turns say now, without those that are no longer what they were."""
        redis, keys = self._records.redis, self._records.keys
        with translated(), redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            for turn_ids in named.values():
                for turn_id in turn_ids:
                    pipeline.hmget(keys.record(turn_id), _FIELDS)
            (seconds, _), *rows = pipeline.execute(raise_on_error=False)
        found = iter(rows)
        return {
            kind: [turn for turn_id in turn_ids if (turn := _listed(turn_id, next(found), kind=kind, now_s=seconds))]
            for kind, turn_ids in named.items()
        }


def _listed(turn_id: str, row: Any, *, kind: str, now_s: int) -> ListedTurn | None:
    if isinstance(row, ResponseError):
        return None
    fields = {name: value or "" for name, value in zip(_FIELDS, row, strict=True)}
    reason = _reason(fields, kind=kind)
    if reason is None:
        return None
    ledger = readable_ledger(fields["ledger"])
    agent, conversation = (ledger.agent, ledger.conversation) if ledger else ("", fields["ledger"])
    touched_ms = int(fields["touched_at"]) if fields["touched_at"].isdecimal() else now_s * 1_000
    return ListedTurn(turn_id, visible(agent), visible(conversation), reason, max(now_s - touched_ms / 1_000, 0.0))


def _reason(fields: dict[str, str], *, kind: str) -> str | None:
    """Why the turn is listed under this kind, None when it is not any more."""
    if kind == "rejected":
        reason = fields["refusal"] or "no reason is on record"
        return _short(reason) if fields["state"] == "rejected" else None
    if fields["state"] not in UNFINISHED:
        return None
    if kind == "blocked":
        return _short(fields["blocked"]) or None
    version = fields["replaced_by"]
    return f"its history was replaced (version {_short(version)}); a resume follows it" if version else None


def _short(reason: str) -> str:
    return visible(reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]} …")
