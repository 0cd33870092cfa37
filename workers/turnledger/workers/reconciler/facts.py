"""From what was read of a turn to the facts that a decision rests on; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from turnledger.checkpoint.keys import readable_ledger
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor
from turnledger.checkpoint.sighting import Sighting
from turnledger.checkpoint.upkeep import UNREADABLE
from turnledger.store import LedgerName
from turnledger.store.standing import Asked, Standing
from turnledger.store.times import milliseconds, time_of
from turnledger.workers.reconciler.decisions import (
    Age,
    Block,
    Copy,
    CursorState,
    Delivery,
    Facts,
    Indexes,
    Job,
    Lease,
    Pending,
    Recording,
    RecordState,
    Rejected,
    Sql,
)

_STATES = {
    state.value: state
    for state in RecordState
    if state not in (RecordState.MISSING, RecordState.QUARANTINED, RecordState.UNREADABLE, RecordState.FOREIGN)
}
_UNFINISHED = (RecordState.RUNNING, RecordState.PARKED)
_WITHOUT_CONTENT = (RecordState.MISSING, RecordState.QUARANTINED, RecordState.UNREADABLE, RecordState.FOREIGN)
_FAILED_JOBS = frozenset({"failed", "canceled", "stopped"})
_ledger = lru_cache(maxsize=4_096)(readable_ledger)  # a sweep meets the same ledgers again and again
_NO_CURSOR = Cursor(None, -1, -1, None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a turn is old, in milliseconds: pending for longer, or begun longer ago and without a record."""

    pending_ms: int
    unfinished_ms: int


@dataclass(frozen=True, slots=True)
class Content:
    """The fields of a record that decisions rest on, decoded; without a readable record, what stands for them."""

    state: RecordState
    ledger: LedgerName | None = None
    work_key: str | None = None
    epoch: int = 0
    lease_until_ms: int = 0
    started_at_ms: int = 0
    completed_at_ms: int = 0
    completion_no: int = 0
    kept_steps: int = 0
    recorded: bool = True
    replaced_by: int = 0
    cursor: Cursor = _NO_CURSOR


def content_of(seen: Sighting) -> Content:
    """The record's content; a record that cannot be read is no error but a state."""
    if not seen.kind:
        state = RecordState.QUARANTINED if seen.quarantined else RecordState.MISSING
        return Content(state, ledger=_ledger(seen.ledger))
    found = seen.fields
    if found.get("format", "") not in ("", RECORD_FORMAT):
        return Content(RecordState.FOREIGN, ledger=_ledger(seen.ledger))
    try:
        return _decoded(found)
    except (*UNREADABLE, KeyError):
        return Content(RecordState.UNREADABLE, ledger=_ledger(seen.ledger))


def question_of(seen: Sighting, content: Content) -> Asked:
    """What Postgres has to be asked about the turn."""
    return Asked(seen.turn_id, content.ledger, content.work_key, content.cursor.history_version, content.cursor.seq)


def facts_of(seen: Sighting, content: Content, standing: Standing, *, bounds: Bounds) -> Facts:
    """The facts of one turn."""
    sql = _sql(seen, content, standing)
    return Facts(
        record=content.state,
        lease=Lease.LIVE if content.lease_until_ms > seen.now_ms else Lease.LAPSED,
        delivery=Delivery.UNDER_WAY if seen.fields.get("delivery") == "delivering" else Delivery.NONE,
        block=Block.SET if seen.fields.get("blocked") else Block.NONE,
        recording=Recording.ON if content.recorded else Recording.OFF,
        sql=sql,
        cursor=_cursor(content, standing),
        indexes=_indexes(seen, content.state),
        pending=_pending(seen.pending),
        rejected=Rejected.LISTED if seen.rejected else Rejected.ABSENT,
        job=_job(seen.job),
        copy=Copy.WHOLE if _is_whole(seen, content) else Copy.GONE,
        age=_age(seen, content, standing, bounds=bounds),
    )


def _decoded(found: Mapping[str, str]) -> Content:
    "".join(found.values()).encode()
    state = _STATES[found["state"]]
    ended = state in (RecordState.COMPLETED, RecordState.REJECTED)
    ledger = _ledger(found["ledger"])
    if ledger is None or found["recorded"] not in ("0", "1") or found["format"] != RECORD_FORMAT:
        raise ValueError("a field holds what no release writes")
    int(found["revision"])
    return Content(
        state=state,
        ledger=ledger,
        work_key=found["work_key"],
        epoch=int(found["epoch"]),
        lease_until_ms=int(found["lease_until"]),
        started_at_ms=milliseconds(time_of(found["started_at"])),
        completed_at_ms=_number(found["completed_at"], needed=ended),
        completion_no=_number(found["completion_no"], needed=ended),
        kept_steps=_number(found["kept_steps"], needed=ended),
        recorded=found["recorded"] == "1",
        replaced_by=_number(found["replaced_by"], needed=False),
        cursor=Cursor.decode(found["cursor"]),
    )


def _number(text: str, *, needed: bool) -> int:
    return int(text) if text or needed else 0


def _sql(seen: Sighting, content: Content, standing: Standing) -> Sql:
    run = standing.run
    if run is None:
        if _is_purged(content, standing):
            return Sql.GONE
        return Sql.ANSWERED if standing.answered_by else Sql.NONE
    if run.outcome == "completed" or (run.outcome == "failed" and seen.fields.get("failure")):
        return Sql.DONE
    if run.outcome == "duplicate":
        return Sql.DUPLICATE
    if run.outcome in ("failed", "abandoned"):
        return Sql.FAILED
    if standing.answered_by:
        return Sql.ANSWERED
    if run.outcome == "lost":
        return Sql.LOST
    return Sql.ADVANCED if run.epoch > content.epoch and content.state not in _WITHOUT_CONTENT else Sql.STARTED


def _is_purged(content: Content, standing: Standing) -> bool:
    return standing.purged_at is not None and content.started_at_ms <= milliseconds(standing.purged_at)


def _cursor(content: Content, standing: Standing) -> CursorState:
    cursor, head = content.cursor, standing.head
    if cursor.ledger_id is None:
        return CursorState.UNKNOWN
    if head is None or head.ledger_id != cursor.ledger_id:
        return CursorState.OTHER
    if cursor.seq >= head.next_seq or cursor.history_version > head.history_version:
        return CursorState.AHEAD
    if standing.cursor_event and standing.cursor_event[0] != cursor.seq_turn_id:
        return CursorState.OTHER
    if cursor.history_version == head.history_version:
        return CursorState.SAME
    if standing.own_version is not None and standing.own_version > cursor.history_version:
        return CursorState.OWN
    return CursorState.MARKED if content.replaced_by >= head.history_version else CursorState.OLDER


def _indexes(seen: Sighting, state: RecordState) -> Indexes:
    if state in (RecordState.UNREADABLE, RecordState.FOREIGN):
        return Indexes.RIGHT
    unfinished = state in _UNFINISHED
    completed = state is RecordState.COMPLETED
    wanted = (unfinished, unfinished or completed or state is RecordState.REJECTED, completed)
    return Indexes.RIGHT if (seen.open, seen.indexed, seen.in_backlog) == wanted else Indexes.WRONG


def _pending(times: int) -> Pending:
    return (Pending.ABSENT, Pending.ONCE)[times] if times < 2 else Pending.TWICE


def _job(status: str) -> Job:
    if not status:
        return Job.NONE
    return Job.FAILED if status in _FAILED_JOBS else Job.THERE


def _is_whole(seen: Sighting, content: Content) -> bool:
    return seen.entry_bytes > 0 and content.completion_no > 0 and seen.steps >= content.kept_steps


def _age(seen: Sighting, content: Content, standing: Standing, *, bounds: Bounds) -> Age:
    if content.state is RecordState.COMPLETED:
        if seen.waits:
            return Age.YOUNG
        return _older(content.completed_at_ms, than_ms=seen.now_ms - bounds.pending_ms)
    open_since = standing.started_at if standing.run is not None and standing.run.outcome is None else None
    if open_since is None:
        return Age.YOUNG
    return _older(milliseconds(open_since), than_ms=seen.now_ms - bounds.unfinished_ms)


def _older(moment_ms: int, *, than_ms: int) -> Age:
    return Age.OLD if moment_ms < than_ms else Age.YOUNG
