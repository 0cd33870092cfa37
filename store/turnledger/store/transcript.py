"""What people see of a conversation: its messages with what became of them, from the newest summary on.

Another projection of the same log than model history, and neither feeds the other: a step never becomes transcript,
a message never enters model input.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from turnledger.store.activity import MESSAGE_UPDATED, MESSAGES_SUMMARIZED
from turnledger.store.errors import CorruptData
from turnledger.store.events import MESSAGE, Event, message_key
from turnledger.store.history import read_events, select_events
from turnledger.store.ledger import Head, is_swept
from turnledger.store.schema import ledger_event

_event = ledger_event.c


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where the transcript begins: at this seq, after a summary of so many earlier messages.

    `covered` names messages that the summary stands for, where the one that it begins with was removed by retention.
    """

    first_seq: int = 0
    summary: str | None = None
    summarized: int = 0
    covered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One chat record, its exact text, and its later states in the order in which they came."""

    seq: int
    message_id: str
    role: str
    sender: str | None
    text: str
    sent_at: datetime
    states: tuple[dict[str, Any], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Transcript:
    """A summary of `summarized` messages, if there is one, and the messages from its boundary on."""

    summary: str | None
    summarized: int
    messages: tuple[TranscriptMessage, ...]


def transcript(connection: Connection, head: Head) -> Transcript:
    """The transcript of a ledger; its cost depends on what is shown, not on the ledger's age.

    Messages that retention has removed are not in it, nor are their later states.

    Raises:
        CorruptData: a message stands twice, or an update belongs to no message; names it.
    """
    boundary = _boundary(connection, head)
    query = (
        select_events(head)
        .where(_event.type.in_((MESSAGE.name, MESSAGE_UPDATED.name)), _event.seq >= boundary.first_seq)
        .order_by(_event.seq)
    )
    shown = [event for event in read_events(connection, query) if not _is_covered(event, boundary)]
    earlier = _earlier_ids(connection, head, _unexplained(shown), boundary=boundary)
    return Transcript(boundary.summary, boundary.summarized, project(shown, earlier_ids=earlier))


def project(events: Iterable[Event], *, earlier_ids: frozenset[str] = frozenset()) -> tuple[TranscriptMessage, ...]:
    """Fold updates into their messages; pure. `earlier_ids` are messages before the boundary, whose updates go.

    Raises:
        CorruptData: a message stands twice, or an update belongs to no message; names it.
    """
    messages: dict[str, TranscriptMessage] = {}
    for event in events:
        if event.type == MESSAGE.name:
            _add(messages, event)
        elif event.type == MESSAGE_UPDATED.name and event.payload.message_id not in earlier_ids:
            _update(messages, event)
    return tuple(messages.values())


def _add(messages: dict[str, TranscriptMessage], event: Event) -> None:
    payload = event.payload
    if payload.message_id in messages:
        raise CorruptData(f"event {event.seq} records message {payload.message_id!r} a second time")
    messages[payload.message_id] = TranscriptMessage(
        event.seq, payload.message_id, payload.role, payload.sender, event.text or "", event.occurred_at
    )


def _update(messages: dict[str, TranscriptMessage], event: Event) -> None:
    known = messages.get(event.payload.message_id)
    if known is None:
        raise CorruptData(f"event {event.seq} updates message {event.payload.message_id!r}, which is not recorded")
    messages[known.message_id] = replace(known, states=(*known.states, event.payload.state))


def _boundary(connection: Connection, head: Head) -> Boundary:
    query = select_events(head).where(_event.type == MESSAGES_SUMMARIZED.name).order_by(_event.seq.desc()).limit(1)
    for summary in read_events(connection, query):
        if summary.type == MESSAGES_SUMMARIZED.name:
            first = _first_live_seq(connection, head, summary)
            covered = frozenset(summary.payload.message_ids) if first is None else frozenset()
            return Boundary(first or 0, summary.text, summary.payload.message_count, covered)
    return Boundary()


def _is_covered(event: Event, boundary: Boundary) -> bool:
    return event.type == MESSAGE.name and event.payload.message_id in boundary.covered


def _first_live_seq(connection: Connection, head: Head, summary: Event) -> int | None:
    """None: retention has removed that message, and with it nearly all that came before."""
    message_id = summary.payload.first_live_message_id
    if message_id is None:
        return summary.seq + 1
    query = select(_event.seq).where(
        _event.ledger_id == head.ledger_id, _event.idempotency_key == message_key(message_id)
    )
    seq = connection.scalar(query)
    if seq is None and is_swept(connection, head.ledger_id):
        return None
    if seq is None:
        raise CorruptData(f"the summary at event {summary.seq} names message {message_id!r}, which is not recorded")
    return int(seq)


def _unexplained(events: Sequence[Event]) -> list[str]:
    shown = {event.payload.message_id for event in events if event.type == MESSAGE.name}
    updated = {event.payload.message_id for event in events if event.type == MESSAGE_UPDATED.name}
    return sorted(updated - shown)


def _earlier_ids(
    connection: Connection, head: Head, message_ids: Sequence[str], *, boundary: Boundary
) -> frozenset[str]:
    """Those of the messages, which were updated and are not shown, that need not be."""
    if not message_ids or is_swept(connection, head.ledger_id):
        return frozenset(message_ids)
    if not boundary.first_seq:
        return frozenset()
    keys = {message_key(message_id): message_id for message_id in message_ids}
    query = select(_event.idempotency_key).where(
        _event.ledger_id == head.ledger_id, _event.idempotency_key.in_(list(keys))
    )
    return frozenset(keys[key] for key in connection.scalars(query))
