"""What an event says, in a few words of one line."""

from collections.abc import Callable
from typing import Any

from turnledger.store import InvalidInput
from turnledger.store.events import Event
from turnledger.store.json_text import decode_json
from turnledger.workers.replay.conversations import words


def summary(event: Event) -> str:
    """One line; an event of a type we do not know is described by its stored type."""
    describe = _DESCRIBED.get(event.type)
    if describe is None:
        return f"{event.stored_type}, schema version {event.schema_version}"
    return " ".join(describe(event).split())


def _message(event: Event) -> str:
    return f"{event.payload.sender or event.payload.role}: {event.text}"


def _step(event: Event) -> str:
    payload = event.payload
    parts = [payload.role]
    parts += [f"→ {call['name']}" for call in payload.calls or ()]
    parts += [f"{answer['outcome']} ←" for answer in payload.answers or ()]
    return f"{' '.join(parts)}: {_plain_text(event.content)}"


def _plain_text(content: str | None) -> str:
    """The words of a vendor's message, or the message itself where they are not where we look for them."""
    try:
        message: Any = decode_json(content or "null")
    except InvalidInput:
        return content or ""
    return words(message) if isinstance(message, dict) else ""


_DESCRIBED: dict[str, Callable[[Event], str]] = {
    "message": _message,
    "message_handled": lambda event: f"message {event.payload.message_id}",
    "turn_started": lambda event: f"work key {event.payload.work_key or '(none)'}",
    "agent_step": _step,
    "turn_completed": lambda event: f"ordinal {event.payload.ordinal}, decision {event.payload.decision or '(none)'}",
    "turn_failed": lambda event: event.payload.code,
    "turn_duplicate": lambda event: f"the work had been done by {event.payload.duplicate_of}",
}
