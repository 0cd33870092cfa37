"""What `turnledger show` reads: one ledger, or one turn, from Postgres and from Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, Text, select

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable, TurnNotFound
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.record import OpenTurn, PendingTurn, Record
from turnledger.checkpoint.upkeep import UNREADABLE
from turnledger.store import CorruptData, LedgerName, Step, TurnledgerError, check_revision
from turnledger.store.events import Event, read_event
from turnledger.store.history import events, replay
from turnledger.store.identity import check_turn_id
from turnledger.store.ledger import Head, StoredEntry, read_head, recent_entries
from turnledger.store.schema import ledger, ledger_entry, ledger_event, ledger_turn
from turnledger.store.steps import decode_step
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.servers import database_to_look_at, records_to_look_at

ASKER = "-"  # `look` wants a turn that asks; no turn has this id, since ours are longer
MOST_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class LedgerLook:
    """A ledger: entries and events oldest first, and the turns that Redis has. `head` None: nothing is stored yet.

    `redis_error` says why Redis could not be asked; what is stored is complete without it.
    """

    name: LedgerName
    head: Head | None
    entries: tuple[StoredEntry, ...]
    events: tuple[Event, ...]
    uncommitted: tuple[PendingTurn, ...]
    open: tuple[OpenTurn, ...]
    redis_error: str | None


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A run as Postgres knows it; `outcome` None: it has not ended there."""

    ledger: LedgerName
    work_key: str
    epoch: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    duplicate_of: str | None
    entry: StoredEntry | None
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A turn as Redis knows it."""

    record: Record | None = None
    refusal: str = ""
    steps: tuple[Step, ...] = ()
    trouble: str = ""
    error: TurnledgerError | None = None


@dataclass(frozen=True, slots=True)
class TurnLook:
    """A turn as Postgres and as Redis know it; at least one of them does.

    `trouble` says why there is no record to show although there may be one: Redis is away, or nobody can read it.
    """

    turn_id: str
    stored: StoredTurn | None
    record: Record | None
    refusal: str
    saved_steps: tuple[Step, ...]
    trouble: str = ""


def look_at_history(name: LedgerName, *, version: int) -> list[Step]:
    """The model history of one version.

    Raises:
        NotThere: there is no such ledger.
        InvalidInput: the ledger has no such version.
        UnsupportedEvent, CorruptData: it cannot be replayed.
    """
    with snapshot() as connection:
        head = read_head(connection, name)
        if head is None:
            raise NotThere(f"Postgres has no ledger of {name.agent} on {name.conversation}")
        return replay(connection, head, version=version)


def look_at_ledger(name: LedgerName, *, last: int) -> LedgerLook:
    """The ledger with its `last` newest events.

    Raises:
        NotThere: neither server knows it.
        StoreUnavailable, SchemaMismatch, ...: Postgres cannot be asked.
    """
    uncommitted, opened, error = _on_their_way(name)
    with snapshot() as connection:
        head = read_head(connection, name)
        entries = () if head is None else recent_entries(connection, head.ledger_id, most=MOST_ENTRIES)
        found = [] if head is None else events(connection, head, first_seq=max(0, head.next_seq - last), most=last)
    if head is None and not uncommitted and not opened:
        raise NotThere(f"there is no ledger of agent {name.agent!r} on conversation {name.conversation!r}")
    return LedgerLook(name, head, entries, tuple(found), uncommitted, opened, error)


def look_at_turn(turn_id: str) -> TurnLook:
    """The turn, wherever it is known.

    Raises:
        InvalidInput: this is no turn id.
        NotThere: neither server knows it.
        CheckpointUnavailable, CheckpointMisconfigured, CorruptData: Postgres does not know it, and Redis cannot tell.
    """
    look = _recorded(check_turn_id(turn_id))
    with snapshot() as connection:
        stored = _stored_turn(connection, turn_id)
    if stored is None and look.record is None and not look.trouble:
        raise NotThere(f"there is no turn {turn_id}, or no longer")
    if stored is None and look.error is not None:
        raise look.error
    return TurnLook(turn_id, stored, look.record, look.refusal, look.steps, look.trouble)


@contextmanager
def snapshot() -> Iterator[Connection]:
    """One moment of a database that has this version's schema."""
    with database_to_look_at() as database:
        check_revision(database)
        with database.snapshot() as connection:
            yield connection


def _on_their_way(name: LedgerName) -> tuple[tuple[PendingTurn, ...], tuple[OpenTurn, ...], str | None]:
    try:
        with records_to_look_at() as records:
            view = records.look(name, turn_id=ASKER)
    except CheckpointUnavailable as error:
        return (), (), str(error)
    return view.uncommitted, view.open, None


def _recorded(turn_id: str) -> _Recorded:
    try:
        with records_to_look_at() as records, translated():
            if records.redis.zscore(records.keys.quarantined, turn_id) is not None:
                return _Recorded(
                    trouble=f"its record could not be read: it lies under {records.keys.quarantine(turn_id)}"
                )
            record, steps = records.read(turn_id)
            refusal = records.redis.hget(records.keys.record(turn_id), "refusal")
            return _Recorded(record, str(refusal or ""), tuple(decode_step(step) for step in steps))
    except TurnNotFound:
        return _Recorded()
    except (CheckpointUnavailable, CheckpointMisconfigured, CorruptData) as error:
        return _Recorded(trouble=str(error), error=error)
    except (*UNREADABLE, KeyError):
        return _Recorded(trouble="its record cannot be read; the next sweep of `turnledger upkeep` sets it aside")


def _stored_turn(connection: Connection, turn_id: str) -> StoredTurn | None:
    query = select(ledger_turn, ledger.c.agent, ledger.c.conversation_key).join(
        ledger, ledger.c.ledger_id == ledger_turn.c.ledger_id
    )
    row = connection.execute(query.where(ledger_turn.c.turn_id == turn_id)).one_or_none()
    if row is None:
        return None
    return StoredTurn(
        ledger=LedgerName(row.agent, row.conversation_key),
        work_key=row.work_key,
        epoch=row.epoch,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        duplicate_of=row.duplicate_of,
        entry=_entry_of(connection, turn_id),
        events=_events_of(connection, row),
    )


def _entry_of(connection: Connection, turn_id: str) -> StoredEntry | None:
    columns = (ledger_entry.c.ordinal, ledger_entry.c.completed_at, ledger_entry.c.entry.cast(Text))
    row = connection.execute(select(*columns).where(ledger_entry.c.turn_id == turn_id)).one_or_none()
    return None if row is None else StoredEntry(*row)


def _events_of(connection: Connection, turn: Row[tuple[object, ...]]) -> tuple[Event, ...]:
    columns = [
        ledger_event.c.content.cast(Text).label("content") if column.name == "content" else column
        for column in ledger_event.c
    ]
    query = (
        select(*columns)
        .where(ledger_event.c.ledger_id == turn.ledger_id)
        .where(ledger_event.c.turn_id == turn.turn_id)
        .order_by(ledger_event.c.seq)
    )
    return tuple(read_event(dict(row)) for row in connection.execute(query).mappings())
