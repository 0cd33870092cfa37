"""Events that a turn writes while it runs, and those that messages gather later."""

from typing import Any

from turnledger.store.errors import InvalidInput
from turnledger.store.events import (
    MESSAGE,
    MESSAGE_HANDLED,
    EventRow,
    EventType,
    Payload,
    check_row,
    event_row,
    register,
)
from turnledger.store.json_text import Text, encode_json, escape

UNTIMED = ""  # the time of an event that happens when it is recorded
MOST_SUMMARY_IDS = 500  # a summary names at most so many of the messages it covers, and counts all


class MessageUpdatedPayload(Payload):
    """What became of a message later: delivery or hydration state, never another text."""

    message_id: Text
    state: dict[str, Any]


class MessagesSummarizedPayload(Payload):
    """A summary that stands for the messages before the first live one in what is shown."""

    first_live_message_id: Text | None = None
    message_ids: list[Text]
    message_count: int


class AuthorizationPayload(Payload):
    """A turn waits for somebody's permission, or has it."""

    authorization_id: Text
    provider: Text | None = None
    granted: bool | None = None


class ToolExecutionPayload(Payload):
    """A tool runs, or has run; never its arguments or its result."""

    call_id: Text
    name: Text
    outcome: Text | None = None


class ChildPayload(Payload):
    """A child ledger that this one has opened, or that has ended."""

    agent: Text
    conversation: Text
    outcome: Text | None = None


class RollbackPayload(Payload):
    """An import's mark: the steps after this seq, up to here, do not count."""

    to_seq: int


MESSAGE_UPDATED = register(EventType("message_updated", MessageUpdatedPayload))
MESSAGES_SUMMARIZED = register(EventType("messages_summarized", MessagesSummarizedPayload))
AUTHORIZATION_REQUESTED = register(EventType("authorization_requested", AuthorizationPayload))
AUTHORIZATION_COMPLETED = register(EventType("authorization_completed", AuthorizationPayload))
TOOL_EXECUTION_STARTED = register(EventType("tool_execution_started", ToolExecutionPayload))
TOOL_EXECUTION_ENDED = register(EventType("tool_execution_ended", ToolExecutionPayload))
CHILD_STARTED = register(EventType("child_started", ChildPayload))
CHILD_ENDED = register(EventType("child_ended", ChildPayload))
ROLLBACK = register(EventType("rollback", RollbackPayload))
# What a turn may write while it runs: the rest says how turns begin and end, or is model history.
RECORDABLE = (
    MESSAGE,
    MESSAGE_HANDLED,
    MESSAGE_UPDATED,
    MESSAGES_SUMMARIZED,
    AUTHORIZATION_REQUESTED,
    AUTHORIZATION_COMPLETED,
    TOOL_EXECUTION_STARTED,
    TOOL_EXECUTION_ENDED,
)
_RECORDABLE = frozenset(event_type.name for event_type in RECORDABLE)


def check_recordable(row: EventRow) -> None:
    """Refuse an event that a running turn may not write.

    Raises:
        InvalidInput: its type is not in `RECORDABLE`, it has no key to land once by, or it could not be read back.
    """
    if row.type not in _RECORDABLE:
        allowed = ", ".join(sorted(_RECORDABLE))
        raise InvalidInput(f"a turn records no event of type {row.type!r}; it may record {allowed}", where="type")
    if not row.key:
        raise InvalidInput(f"an event of type {row.type!r} needs an idempotency key: it lands once by it", where="key")
    check_row(row)


def message_updated(message_id: str, *, state: dict[str, Any], update_id: str, now: str = UNTIMED) -> EventRow:
    """A later state of a message, keyed by the vendor's id of the update."""
    payload = MessageUpdatedPayload(message_id=message_id, state=state)
    return event_row(MESSAGE_UPDATED, payload, key=escape(f"updated:{update_id}"), occurred_at=now)


def messages_summarized(
    summary: str, *, message_ids: list[str], first_live_message_id: str | None, now: str = UNTIMED
) -> EventRow:
    """A summary of these messages, in order; it stores the last 500 ids and the true count.

    Raises:
        InvalidInput: there are no messages.
    """
    if not message_ids:
        raise InvalidInput("a summary needs the ids of the messages it stands for")
    payload = MessagesSummarizedPayload(
        first_live_message_id=first_live_message_id,
        message_ids=message_ids[-MOST_SUMMARY_IDS:],
        message_count=len(message_ids),
    )
    key = escape(f"summarized:{message_ids[-1]}:{len(message_ids)}")
    return event_row(MESSAGES_SUMMARIZED, payload, key=key, content=encode_json(summary), occurred_at=now)


def authorization_requested(authorization_id: str, *, provider: str | None = None, now: str = UNTIMED) -> EventRow:
    """A turn waits for permission."""
    payload = AuthorizationPayload(authorization_id=authorization_id, provider=provider)
    return event_row(AUTHORIZATION_REQUESTED, payload, key=escape(f"asked:{authorization_id}"), occurred_at=now)


def authorization_completed(authorization_id: str, *, granted: bool | None = None, now: str = UNTIMED) -> EventRow:
    """The wait is over."""
    payload = AuthorizationPayload(authorization_id=authorization_id, granted=granted)
    return event_row(AUTHORIZATION_COMPLETED, payload, key=escape(f"answered:{authorization_id}"), occurred_at=now)


def tool_started(turn_id: str, *, call_id: str, name: str, now: str = UNTIMED) -> EventRow:
    """A tool begins to run."""
    payload = ToolExecutionPayload(call_id=call_id, name=name)
    return event_row(TOOL_EXECUTION_STARTED, payload, key=escape(f"tool:{turn_id}:{call_id}"), occurred_at=now)


def tool_ended(turn_id: str, *, call_id: str, name: str, outcome: str, now: str = UNTIMED) -> EventRow:
    """A tool has run."""
    payload = ToolExecutionPayload(call_id=call_id, name=name, outcome=outcome)
    return event_row(TOOL_EXECUTION_ENDED, payload, key=escape(f"tool-end:{turn_id}:{call_id}"), occurred_at=now)


def child_started(agent: str, *, conversation: str, now: str = UNTIMED) -> EventRow:
    """A child ledger was opened; once in its parent's log."""
    payload = ChildPayload(agent=agent, conversation=conversation)
    return event_row(CHILD_STARTED, payload, key=escape(f"child:{agent}:{conversation}"), occurred_at=now)


def child_ended(agent: str, *, conversation: str, outcome: str, now: str = UNTIMED) -> EventRow:
    """A child ledger's work has ended; once in its parent's log."""
    payload = ChildPayload(agent=agent, conversation=conversation, outcome=outcome)
    return event_row(CHILD_ENDED, payload, key=escape(f"child-end:{agent}:{conversation}"), occurred_at=now)
