"""Reads back what a replay left: ledgers from Postgres, and the times of the commits."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records
from turnledger.store import LedgerName
from turnledger.store.entry import decode_entry
from turnledger.store.events import Event
from turnledger.store.history import events
from turnledger.store.ledger import Head, read_head, recent_entries
from turnledger.store.schema import ledger, ledger_turn
from turnledger.workers.replay.verdict import LedgerContent

PAGE = 1_000


class CommitTimes(NamedTuple):
    """When a turn completed and when its commit was done, in milliseconds by the one clock of Redis."""

    completed_at_ms: int
    committed_at_ms: int

    @property
    def waited_ms(self) -> int:
        """From complete to commit."""
        return self.committed_at_ms - self.completed_at_ms


def read_ledger(connection: Connection, name: LedgerName) -> LedgerContent | None:
    """All of a ledger; None: there is none."""
    head = read_head(connection, name)
    if head is None:
        return None
    stored = recent_entries(connection, head.ledger_id, most=max(head.turn_count, 1))
    return LedgerContent(
        head=head,
        completed=_completed(connection, head.ledger_id),
        entries=[decode_entry(entry.text, ordinal=entry.ordinal) for entry in stored],
        events=list(_all_events(connection, head)),
    )


def read_first_start(connection: Connection, *, agent: str, keys: Sequence[str]) -> datetime | None:
    """When the first turn of these conversations was started."""
    query = (
        select(func.min(ledger_turn.c.started_at))
        .join(ledger, ledger.c.ledger_id == ledger_turn.c.ledger_id)
        .where(ledger.c.agent == agent)
        .where(ledger.c.conversation_key == func.any(list(keys)))
    )
    first: datetime | None = connection.scalar(query)
    return first


def read_commit_times(records: Records, turn_ids: Sequence[str]) -> list[CommitTimes]:
    """The times of those turns that were committed through the queue and whose record is there as a spare copy.

    The second time is when the worker told Redis that the transaction is committed: by then the turn is in
    Postgres, and the record, the queue and the pending list say so too. So it counts the commit and a little more,
    never less. Both times are those of Redis, so no two clocks are compared.
    """
    return [
        times for first in range(0, len(turn_ids), PAGE) for times in _times(records, turn_ids[first : first + PAGE])
    ]


def _times(records: Records, turn_ids: Sequence[str]) -> Iterator[CommitTimes]:
    with translated(), records.redis.pipeline(transaction=False) as pipeline:
        for turn_id in turn_ids:
            pipeline.hmget(records.keys.record(turn_id), ["state", "completed_at", "touched_at"])
        for state, completed_at, touched_at in pipeline.execute():
            if state == "committed" and completed_at:
                yield CommitTimes(int(completed_at), int(touched_at))


def _completed(connection: Connection, ledger_id: int) -> dict[str, str]:
    """The run that completed each work key: the evidence that a turn is committed."""
    columns = (ledger_turn.c.work_key, ledger_turn.c.turn_id)
    query = (
        select(*columns)
        .where(ledger_turn.c.ledger_id == ledger_id)
        .where(ledger_turn.c.outcome == "completed")
        .where(ledger_turn.c.work_key != "")
    )
    return {row.work_key: row.turn_id for row in connection.execute(query)}


def _all_events(connection: Connection, head: Head) -> Iterator[Event]:
    first = 0
    while found := events(connection, head, first_seq=first, most=PAGE):
        yield from found
        first = found[-1].seq + 1
