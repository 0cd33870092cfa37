"""The rows of a ledger's log: one strict payload a type, a registry of types, a tolerant read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from turnledger.store.errors import CorruptData, InvalidInput
from turnledger.store.json_text import Text, decode_json, decode_jsonb, encode_json, encode_jsonb, escape
from turnledger.store.times import time_text

AT_COMPLETION = ""  # the time of a row that happens when its turn completes; the commit point fills it in
SEARCH_CHARACTERS = 200_000  # of a message
SEARCH_BYTES = 250_000  # a tsvector holds at most 1 MiB and, of hyphenated words, up to four times what it is made from
MESSAGE_ID_CHARACTERS = 512  # with its prefix well inside the 2,704 bytes that a Postgres index key may have
FAILURE_CODES = frozenset(
    {
        "agent_run_failed",
        "delivery_failed",
        "model_execution_failed",
        "persistence_failed",
        "slice_limit",
        "session_lost",
    }
)
PROVISIONAL_CODE = "session_lost"  # a completion that arrives later overrules it
_UNSEARCHABLE = re.compile("[\x00\ud800-\udfff]")


class Payload(BaseModel):
    """What SQL may look into; unknown members and wrong types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MessagePayload(Payload):
    """One chat record as its source holds it; the text is the event's content."""

    message_id: Text
    role: Text
    sender: Text | None = None


class MessageHandledPayload(Payload):
    """The turn that answered a message."""

    message_id: Text


class TurnStartedPayload(Payload):
    """A run began on this work key."""

    work_key: Text


class AgentStepPayload(Payload):
    """What we need to know of a step; the vendor's own is the event's content."""

    role: Text
    calls: list[dict[str, Any]] | None = None
    answers: list[dict[str, Any]] | None = None
    backend: Text | None = None
    model: Text | None = None
    tools_digest: Text | None = None
    usage: dict[str, int] | None = None


class TurnCompletedPayload(Payload):
    """The terminal of a recorded turn: its entry's id and ordinal."""

    entry_id: Text
    ordinal: int
    decision: Text | None = None


class TurnFailedPayload(Payload):
    """The terminal of a run that failed: an allow-listed code and an opaque id, never provider text.

    A run that failed after its work, when the reply could not be delivered, has an entry all the same.
    """

    code: Text
    failure_id: Text | None = None
    entry_id: Text | None = None
    ordinal: int | None = None


class TurnDuplicatePayload(Payload):
    """The terminal of a run whose work key another run had completed first."""

    duplicate_of: Text


@dataclass(frozen=True, slots=True)
class EventType:
    """One kind of event: its current schema version and what its payload must look like."""

    name: str
    payload: type[Payload]
    version: int = 1


_TYPES: dict[str, EventType] = {}


def register(event_type: EventType) -> EventType:
    """Make a type known to writers and readers; callers need no change."""
    _TYPES[event_type.name] = event_type
    return event_type


MESSAGE = register(EventType("message", MessagePayload))
MESSAGE_HANDLED = register(EventType("message_handled", MessageHandledPayload))
TURN_STARTED = register(EventType("turn_started", TurnStartedPayload))
AGENT_STEP = register(EventType("agent_step", AgentStepPayload))
TURN_COMPLETED = register(EventType("turn_completed", TurnCompletedPayload))
TURN_FAILED = register(EventType("turn_failed", TurnFailedPayload))
TURN_DUPLICATE = register(EventType("turn_duplicate", TurnDuplicatePayload))


def known_types() -> frozenset[tuple[str, int]]:
    """Name and schema version of every registered type."""
    return frozenset((kind.name, kind.version) for kind in _TYPES.values())


def is_known(name: str, version: int) -> bool:
    """Whether this release reads this version of this type."""
    known = _TYPES.get(name)
    return known is not None and known.version == version


class EventRow(NamedTuple):
    """An event ready to be written: JSON texts, no number yet. Its own JSON is a list of these seven."""

    type: str
    schema_version: int
    key: str | None
    payload: str
    content: str | None
    search_text: str | None
    occurred_at: str


class Event(NamedTuple):
    """An event as it was read. `payload` is the type's model, or a plain value where `type` is `unknown`."""

    seq: int
    history_version: int
    type: str
    stored_type: str
    schema_version: int
    turn_id: str | None
    key: str | None
    payload: Any
    content: str | None
    occurred_at: datetime
    recorded_at: datetime

    @property
    def text(self) -> str | None:
        """The text of a message, exactly as it was given."""
        return None if self.content is None else str(decode_json(self.content))


@dataclass(frozen=True, slots=True)
class Message:
    """One exact chat record, as it came in.

    `message_id` is the vendor's, 1 to 512 characters, and names the record for ever in its ledger: the first text
    stays. `role` is whose it is in the chat (user, assistant, system), `sender` a name or handle as the source has it.
    `sent_at` is an aware datetime. Raises InvalidInput for what is refused.
    """

    message_id: str
    text: str
    sender: str | None = None
    role: str = "user"
    sent_at: datetime | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "message_id", "text", "role", *([] if self.sender is None else ["sender"]))
        if not 1 <= len(self.message_id) <= MESSAGE_ID_CHARACTERS:
            raise InvalidInput(
                f"a message id of {len(self.message_id)} characters: use the vendor's own, 1 to {MESSAGE_ID_CHARACTERS}"
            )
        if not self.role:
            raise InvalidInput(f"message {self.message_id!r} has an empty role: say user, assistant or system")
        if not (self.sent_at is None or _is_aware(self.sent_at)):
            raise InvalidInput(f"message {self.message_id!r}: sent_at must be an aware datetime, with its time zone")


def _is_aware(moment: object) -> bool:
    return isinstance(moment, datetime) and moment.utcoffset() is not None


def _check_texts(message: Message, *names: str) -> None:
    for name in names:
        value = getattr(message, name)
        if not isinstance(value, str):
            raise InvalidInput(f"message.{name} must be text, not {type(value).__name__}", where=f"message.{name}")


def message_event(message: Message, *, now: str) -> EventRow:
    """A message keyed by its id: recorded once, the first text stays."""
    payload = MessagePayload(message_id=message.message_id, role=message.role, sender=message.sender)
    return event_row(
        MESSAGE,
        payload,
        key=message_key(message.message_id),
        content=encode_json(message.text, where=f"message {message.message_id!r}"),
        search_text=search_text(message.text),
        occurred_at=now if message.sent_at is None else time_text(message.sent_at),
    )


def handled_event(message_id: str, *, now: str) -> EventRow:
    """A turn has answered this message."""
    return event_row(
        MESSAGE_HANDLED,
        MessageHandledPayload(message_id=message_id),
        key=handled_key(message_id),
        occurred_at=now,
    )


def started_event(turn_id: str, *, work_key: str, now: str) -> EventRow:
    """A run began; once a turn."""
    return event_row(TURN_STARTED, TurnStartedPayload(work_key=work_key), key=f"started:{turn_id}", occurred_at=now)


def completed_event(turn_id: str, *, entry_id: str, ordinal: int, decision: str | None, now: str) -> EventRow:
    """The terminal of a recorded turn."""
    payload = TurnCompletedPayload(entry_id=entry_id, ordinal=ordinal, decision=decision)
    return event_row(TURN_COMPLETED, payload, key=terminal_key(turn_id), occurred_at=now)


def failed_event(
    turn_id: str,
    *,
    code: str,
    now: str,
    failure_id: str | None = None,
    entry_id: str | None = None,
    ordinal: int | None = None,
) -> EventRow:
    """The terminal of a run that failed, with the entry it files all the same, if it does.

    Raises:
        InvalidInput: the code is not one of `FAILURE_CODES`.
    """
    if not any(code == known for known in FAILURE_CODES):
        raise InvalidInput(f"failure code {code!r} is not known; use one of {', '.join(sorted(FAILURE_CODES))}")
    payload = TurnFailedPayload(code=code, failure_id=failure_id, entry_id=entry_id, ordinal=ordinal)
    key = lost_key(turn_id) if code == PROVISIONAL_CODE else terminal_key(turn_id)
    return event_row(TURN_FAILED, payload, key=key, occurred_at=now)


def duplicate_event(turn_id: str, *, duplicate_of: str, now: str) -> EventRow:
    """The terminal of a run that another run of its work key had forestalled."""
    payload = TurnDuplicatePayload(duplicate_of=duplicate_of)
    return event_row(TURN_DUPLICATE, payload, key=terminal_key(turn_id), occurred_at=now)


def message_key(message_id: str) -> str:
    """The idempotency key of a message."""
    return escape(f"message:{message_id}")


def handled_key(message_id: str) -> str:
    """The idempotency key of a message's handling."""
    return escape(f"handled:{message_id}")


def terminal_key(turn_id: str) -> str:
    """The idempotency key of a run's one terminal event."""
    return f"ended:{turn_id}"


def lost_key(turn_id: str) -> str:
    """The idempotency key of a run's provisional terminal, which leaves room for the one that overrules it."""
    return f"lost:{turn_id}"


def search_text(text: str) -> str:
    """What full-text search sees of a message: its beginning, at most 200,000 characters and 250,000 UTF-8 bytes,
    without what Postgres refuses.
    """
    beginning = _UNSEARCHABLE.sub(" ", text[:SEARCH_CHARACTERS])
    if len(beginning) * 4 <= SEARCH_BYTES or beginning.isascii():
        return beginning
    return beginning.encode()[:SEARCH_BYTES].decode(errors="ignore")


def step_row(wire_step: str, *, now: str) -> EventRow:
    """A step in wire form as an event; the arguments of its calls stay behind, its content goes in byte for byte.

    Raises:
        CorruptData: it does not have the three parts of a step.
    """
    parts = wire_step.split("\n", 2)
    if len(parts) != 3:
        raise CorruptData(f"a step cannot be read: it has {len(parts)} of its three parts")
    payload, _, content = parts
    return EventRow(AGENT_STEP.name, AGENT_STEP.version, None, payload, content, None, now)


def encode_rows(rows: Sequence[EventRow]) -> str:
    """Rows as one JSON text, as a turn's record carries them."""
    return encode_json(rows)


def decode_rows(text: str | None) -> tuple[EventRow, ...]:
    """The rows of `encode_rows`; none for None or an empty text."""
    return tuple(EventRow(*row) for row in decode_json(text)) if text else ()


def read_event(row: Mapping[str, Any]) -> Event:
    """Decode one stored row; a type or version we do not know reads as `unknown`, its payload intact.

    Raises:
        CorruptData: a row of a known type and version does not have its shape.
    """
    known = _TYPES.get(row["type"])
    supported = is_known(row["type"], row["schema_version"])
    payload = decode_jsonb(row["payload"])
    if known is not None and supported:
        payload = _validated(known, payload, seq=row["seq"])
    return Event(
        seq=row["seq"],
        history_version=row["history_version"],
        type=row["type"] if supported else "unknown",
        stored_type=row["type"],
        schema_version=row["schema_version"],
        turn_id=row["turn_id"],
        key=row["idempotency_key"],
        payload=payload,
        content=row["content"],
        occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"],
    )


def check_row(row: EventRow) -> None:
    """Refuse to write what this release could not read back.

    Raises:
        InvalidInput: the type or its version is not known, or the payload is not its type's; says where.
    """
    known = _TYPES.get(row.type)
    if known is None or known.version != row.schema_version:
        versions = "there is none" if known is None else f"its version is {known.version}"
        raise InvalidInput(f"event type {row.type!r}, version {row.schema_version}: {versions}", where="type")
    try:
        known.payload.model_validate(decode_jsonb(decode_json(row.payload, where=row.type)))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, (row.type, *problem["loc"])))
        raise InvalidInput(f"{place} cannot be written: {problem['msg']}", where=place) from None


def _validated(event_type: EventType, payload: Any, *, seq: int) -> Payload:
    try:
        return event_type.payload.model_validate(payload)
    except ValidationError as error:
        problem = error.errors()[0]
        raise CorruptData(
            f"event {seq} of type {event_type.name} is malformed at {problem['loc']}: {problem['msg']}"
        ) from None


def event_row(
    event_type: EventType,
    payload: Payload,
    *,
    key: str | None,
    occurred_at: str,
    content: str | None = None,
    search_text: str | None = None,
) -> EventRow:
    """An event of this type, ready to be written; `key` None lands as often as it is written."""
    members = {name: value for name, value in payload if value is not None}
    return EventRow(
        type=event_type.name,
        schema_version=event_type.version,
        key=key,
        payload=encode_jsonb(members, where=event_type.name),
        content=content,
        search_text=search_text,
        occurred_at=occurred_at,
    )
