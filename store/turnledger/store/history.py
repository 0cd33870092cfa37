"""Reading a ledger back: the replayable model history, and the events as they stand."""

from collections.abc import Iterator

from sqlalchemy import Connection, RowMapping, Select, select
from sqlalchemy import Text as SqlText

from turnledger.store.errors import UnsupportedEvent
from turnledger.store.events import AGENT_STEP, Event, read_event
from turnledger.store.ledger import Head
from turnledger.store.schema import ledger_event
from turnledger.store.steps import Step, decode_stored

_columns = [
    ledger_event.c.content.cast(SqlText).label("content") if column.name == "content" else column
    for column in ledger_event.c
]


def replay(connection: Connection, head: Head) -> list[Step]:
    """The model history of the ledger's current version, oldest first, each step's content byte for byte.

    Raises:
        UnsupportedEvent: the version holds a step this release cannot read; names seq and type.
        CorruptData: a row does not have its type's shape.
    """
    query = (
        select(*_columns)
        .where(ledger_event.c.ledger_id == head.ledger_id)
        .where(ledger_event.c.history_version == head.history_version)
        .where(ledger_event.c.type == AGENT_STEP.name)
        .order_by(ledger_event.c.seq)
    )
    return [_step(row) for row in connection.execute(query).mappings()]


def events(connection: Connection, head: Head, *, first_seq: int = 0, most: int = 1_000) -> list[Event]:
    """At most `most` events from `first_seq` on, in order; rows past the bound are not decoded."""
    query = (
        select(*_columns)
        .where(ledger_event.c.ledger_id == head.ledger_id)
        .where(ledger_event.c.seq >= first_seq)
        .order_by(ledger_event.c.seq)
        .limit(most)
    )
    return list(_events(connection, query))


def _events(connection: Connection, query: Select[tuple[object, ...]]) -> Iterator[Event]:
    for row in connection.execute(query).mappings():
        yield read_event(dict(row))


def _step(row: RowMapping) -> Step:
    if row["schema_version"] != AGENT_STEP.version:
        raise UnsupportedEvent(
            f"event {row['seq']} of type {row['type']}, schema version {row['schema_version']}, cannot be replayed "
            "by this release; upgrade it",
            seq=row["seq"],
            type=row["type"],
        )
    return decode_stored(row["payload"], row["content"])
