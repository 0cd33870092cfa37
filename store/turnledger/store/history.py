"""Reading a ledger back: the replayable model history of a version, and the events as they stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, RowMapping, Select, and_, or_, select, tuple_
from sqlalchemy import Text as SqlText

from turnledger.store.activity import ROLLBACK
from turnledger.store.errors import InvalidInput, UnsupportedEvent
from turnledger.store.events import AGENT_STEP, Event, is_known, known_types, read_event
from turnledger.store.ledger import Head, is_swept
from turnledger.store.replacement import COMPACTION, HANDOFF, decode_replacement
from turnledger.store.schema import ledger_event
from turnledger.store.steps import Step, decode_stored

_event = ledger_event.c
_columns = [_event.content.cast(SqlText).label("content") if column.name == "content" else column for column in _event]
_kind = tuple_(_event.type, _event.schema_version)
_REPLACEMENTS = (COMPACTION.name, HANDOFF.name)
_REPLAYED = frozenset({AGENT_STEP.name, ROLLBACK.name})
# What nobody knows is refused, in type or in version, unless a later history version left it behind.
_NOT_REPLAYED = sorted(pair for pair in known_types() if pair[0] not in _REPLAYED)


@dataclass(frozen=True, slots=True)
class _Base:
    """What a version begins with: the replacement's row, and where the steps that follow it are found."""

    steps: tuple[Step, ...]
    seq: int
    through_seq: int
    turn_id: str | None


_BEGINNING = _Base(steps=(), seq=-1, through_seq=-1, turn_id=None)


def replay(connection: Connection, head: Head, *, version: int | None = None) -> list[Step]:
    """The model history of the current or an older version, oldest first, each step's content byte for byte.

    It is the version's replacement, then the steps after its `through_seq`, less those of the replacing turn that
    the replacement covers. The cost depends on these rows, not on the ledger's age.

    Raises:
        InvalidInput: the ledger has no such version, or retention has removed it.
        UnsupportedEvent: the version holds an event this release cannot replay; names seq and type.
        CorruptData: a row does not have its type's shape.
    """
    wanted = head.history_version if version is None else version
    if not 0 <= wanted <= head.history_version:
        raise InvalidInput(f"the ledger has history versions 0 to {head.history_version}, not {wanted}")
    base = _base(connection, head, wanted)
    query = select_events(head).where(_event.seq > base.through_seq, _kind.not_in(_NOT_REPLAYED))
    query = query.where(or_(_event.type.in_(_REPLAYED), _event.history_version == wanted))
    if wanted < head.history_version:
        query = query.where(_event.history_version <= wanted)
    if base.turn_id is not None:
        covered = and_(_event.turn_id == base.turn_id, _event.seq < base.seq, _event.type == AGENT_STEP.name)
        query = query.where(or_(_event.turn_id.is_(None), ~covered))
    return [*base.steps, *_followers(connection.execute(query.order_by(_event.seq)).mappings().all())]


def events(connection: Connection, head: Head, *, first_seq: int = 0, most: int = 1_000) -> list[Event]:
    """At most `most` events from `first_seq` on, in order; rows past the bound are not decoded."""
    query = select_events(head).where(_event.seq >= first_seq).order_by(_event.seq).limit(most)
    return list(read_events(connection, query))


def steps_in_log(connection: Connection, head: Head, turn_id: str, *, first: int) -> list[Step]:
    """One turn's own steps that are in the log, in order, less the first so many; without the arguments of their calls.

    Raises:
        CorruptData: a row does not have its type's shape.
    """
    query = select_events(head).where(_event.turn_id == turn_id, _event.type == AGENT_STEP.name)
    rows = connection.execute(query.order_by(_event.seq).offset(first)).mappings().all()
    return [decode_stored(row["payload"], row["content"]) for row in rows]


def _base(connection: Connection, head: Head, version: int) -> _Base:
    if version == 0:
        return _BEGINNING
    query = select_events(head).where(_event.history_version == version).order_by(_event.seq).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    if row is None or (row["type"] not in _REPLACEMENTS and is_swept(connection, head.ledger_id)):
        raise InvalidInput(f"history version {version} is stored no longer: retention has removed its beginning")
    _refuse_unknown(row)
    event = read_event(dict(row))
    if event.type not in _REPLACEMENTS:
        raise UnsupportedEvent(
            f"history version {version} begins with event {event.seq} of type {event.stored_type}, no replacement",
            seq=event.seq,
            type=event.stored_type,
        )
    steps = tuple(decode_replacement(str(event.content)))
    return _Base(steps, event.seq, event.payload.through_seq, event.payload.turn_id)


def _followers(rows: Sequence[RowMapping]) -> list[Step]:
    steps: list[Step] = []
    for row in rows:
        _refuse_unknown(row)
        if row["type"] == ROLLBACK.name:
            to_seq = read_event(dict(row)).payload.to_seq
            steps = [step for step in steps if (step.source or 0) <= to_seq]
        else:
            steps.append(replace(decode_stored(row["payload"], row["content"]), source=row["seq"]))
    return steps


def _refuse_unknown(row: RowMapping) -> None:
    if not is_known(row["type"], row["schema_version"]):
        raise UnsupportedEvent(
            f"event {row['seq']} of type {row['type']}, schema version {row['schema_version']}, cannot be replayed by "
            "this release; upgrade it",
            seq=row["seq"],
            type=row["type"],
        )


def select_events(head: Head) -> Select[tuple[object, ...]]:
    """All events of a ledger, with the content as the text it was stored as."""
    return select(*_columns).where(_event.ledger_id == head.ledger_id)


def read_events(connection: Connection, query: Select[tuple[object, ...]]) -> Iterator[Event]:
    """The events of a `select_events` query, decoded one by one. Raises CorruptData as `read_event`."""
    for row in connection.execute(query).mappings():
        yield read_event(dict(row))
