"""What an event says, in a few words of one line."""

from collections.abc import Callable
from typing import Any

from turnledger.store import InvalidInput
from turnledger.store.events import Event
from turnledger.store.json_text import decode_json, encode_json
from turnledger.workers.cli.output import many
from turnledger.workers.replay.conversations import words

FACTS_CHARACTERS = 120  # what a line of a table can hold beside the other columns of a wide terminal


def summary(event: Event) -> str:
    """One line, the words of messages and steps included; of an event we do not know its stored type."""
    return _one_line(event, _DESCRIBED.get(event.type))


def facts(event: Event) -> str:
    """One line of at most `FACTS_CHARACTERS` from the payload alone: who, which, how many, never what was said."""
    line = _one_line(event, _FACTS.get(event.type) or _DESCRIBED.get(event.type))
    return line if len(line) <= FACTS_CHARACTERS else f"{line[: FACTS_CHARACTERS - 1]}…"


def _one_line(event: Event, describe: Callable[[Event], str] | None) -> str:
    if describe is None:
        return f"{event.stored_type}, schema version {event.schema_version}"
    return " ".join(describe(event).split())


def _message(event: Event) -> str:
    return f"{event.payload.sender or event.payload.role}: {event.text}"


def _message_facts(event: Event) -> str:
    payload = event.payload
    return f"{payload.message_id} of {payload.sender or payload.role}"


def _step(event: Event) -> str:
    return f"{_step_head(event)}: {_plain_text(event.content)}"


def _step_head(event: Event) -> str:
    payload = event.payload
    parts = [payload.role]
    parts += [f"→ {call['name']}" for call in payload.calls or ()]
    parts += [f"{answer['outcome']} ←" for answer in payload.answers or ()]
    return " ".join(parts)


def _step_facts(event: Event) -> str:
    return ", ".join([_step_head(event), *([event.payload.model] if event.payload.model else [])])


def _plain_text(content: str | None) -> str:
    """The words of a vendor's message, or the message itself where they are not where we look for them."""
    try:
        message: Any = decode_json(content or "null")
    except InvalidInput:
        return content or ""
    return words(message) if isinstance(message, dict) else ""


def _failure(event: Event) -> str:
    payload = event.payload
    return f"{payload.code}, {payload.failure_id}" if payload.failure_id else f"{payload.code}"


def _replacement(event: Event) -> str:
    payload = event.payload
    covered = f"{many(payload.step_count, 'step')} for what came through seq {payload.through_seq}"
    own = f" and {many(payload.covered_steps, 'step')} of its turn" if payload.covered_steps else ""
    return f"{covered}{own}, for {payload.model}"


def _handoff(event: Event) -> str:
    return f"to {event.payload.profile}: {_replacement(event)}"


def _summarized(event: Event) -> str:
    payload = event.payload
    return f"{many(payload.message_count, 'message')}, shown from {payload.first_live_message_id or '(none)'} on"


def _authorization(event: Event) -> str:
    payload = event.payload
    answer = {None: "", True: ", granted", False: ", refused"}[payload.granted]
    return f"{payload.authorization_id}{f' of {payload.provider}' if payload.provider else ''}{answer}"


def _tool(event: Event) -> str:
    payload = event.payload
    return f"{payload.name}, call {payload.call_id}" + (f": {payload.outcome}" if payload.outcome else "")


def _child(event: Event) -> str:
    payload = event.payload
    return f"{payload.agent} · {payload.conversation}" + (f": {payload.outcome}" if payload.outcome else "")


_DESCRIBED: dict[str, Callable[[Event], str]] = {
    "message": _message,
    "message_updated": lambda event: f"message {event.payload.message_id}: {encode_json(event.payload.state)}",
    "message_handled": lambda event: f"message {event.payload.message_id}",
    "messages_summarized": _summarized,
    "turn_started": lambda event: f"work key {event.payload.work_key or '(none)'}",
    "agent_step": _step,
    "turn_completed": lambda event: f"ordinal {event.payload.ordinal}, decision {event.payload.decision or '(none)'}",
    "turn_failed": _failure,
    "turn_duplicate": lambda event: f"the work had been done by {event.payload.duplicate_of}",
    "compaction": _replacement,
    "handoff": _handoff,
    "authorization_requested": _authorization,
    "authorization_completed": _authorization,
    "tool_execution_started": _tool,
    "tool_execution_ended": _tool,
    "child_started": _child,
    "child_ended": _child,
    "rollback": lambda event: f"the steps after seq {event.payload.to_seq} do not count",
}
_FACTS: dict[str, Callable[[Event], str]] = {"message": _message_facts, "agent_step": _step_facts}
