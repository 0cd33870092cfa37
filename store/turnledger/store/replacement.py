"""Replacing a ledger's model history: one row, atomic, version + 1; older versions stay readable.

The replacement covers the log up to `through_seq`, and so many of the own steps of the turn that makes it. Steps
that other turns commit later take the ledger's version at their commit, so every step is in the new history
exactly once: in the replacement, after `through_seq`, or in the new version.
"""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from turnledger.store.database import statement
from turnledger.store.errors import InvalidInput, StaleHistory
from turnledger.store.events import EventRow, EventType, Payload, event_row, register, step_row
from turnledger.store.identity import LedgerName, check_label
from turnledger.store.json_text import Text, decode_json, encode_json
from turnledger.store.ledger import Head, Run, advance_heads, find_runs, insert_events
from turnledger.store.open_calls import OpenCalls
from turnledger.store.steps import Step, decode_step, encode_step


class ReplacementPayload(Payload):
    """What a replacement covers and which model it is for. `covered_steps` counts the turn's own."""

    through_seq: int
    turn_id: Text
    covered_steps: int
    model: Text
    step_count: int


class HandoffPayload(ReplacementPayload):
    """A replacement that passes the work to another model profile of the same agent."""

    profile: Text


COMPACTION = register(EventType("compaction", ReplacementPayload))
HANDOFF = register(EventType("handoff", HandoffPayload))


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement, as a turn asks for it.

    `version` and `through_seq` are those of the history it was computed from. `covered` are the turn's own steps
    that it stands for, all from its first, in wire form.
    """

    turn_id: str
    epoch: int
    version: int
    through_seq: int
    steps: tuple[Step, ...]
    covered: tuple[str, ...]
    model: str
    profile: str | None = None


def check_replacement(replacement: Replacement) -> None:
    """Refuse steps that a model would refuse: a call without its result, a result without its call.

    Calls that the covered steps leave open must be in the replacement, still open.

    Raises:
        InvalidInput: names the call; or the model or profile has no name.
    """
    check_label(replacement.model, where="model")
    if replacement.profile is not None:
        check_label(replacement.profile, where="profile")
    still_open = OpenCalls.of(decode_step(step) for step in replacement.covered).open
    calls = OpenCalls()
    calls.advance(calls.check(replacement.steps, allow_open=True, where="replacement"))
    if calls.open != still_open:
        names = ", ".join(repr(call_id) for call_id in sorted(calls.open ^ still_open))
        raise InvalidInput(
            f"the replacement and the steps it covers differ in their open calls: {names}; keep a call together "
            "with its result, and every call that is still open",
            where="replacement",
        )


def replace_history(connection: Connection, head: Head, replacement: Replacement, *, now: str) -> Head:
    """Write the replacement under the ledger's lock and return the head after it.

    Raises:
        StaleHistory: the history it was computed from is no longer the newest; nothing was written.
        InvalidInput: see `check_replacement`; nothing was written.
    """
    run = find_runs(connection, [replacement.turn_id]).get(replacement.turn_id)
    _refuse_stale(head, run, replacement)
    check_replacement(replacement)
    written = 0 if run is None else run.steps_written
    covered = [step_row(step, now=now) for step in replacement.covered[written:]]
    insert_events(connection, head, covered, turn_id=replacement.turn_id)
    after = replace(head, next_seq=head.next_seq + len(covered), history_version=head.history_version + 1)
    insert_events(connection, after, [_replacement_row(replacement, now=now)], turn_id=replacement.turn_id)
    advanced = replace(after, next_seq=after.next_seq + 1)
    advance_heads(connection, [advanced])
    connection.execute(
        statement("replace_version"),
        {
            "ledger_id": head.ledger_id,
            "version": advanced.history_version,
            "turn_id": replacement.turn_id,
            "steps_written": len(replacement.covered),
        },
    )
    return advanced


def open_child(connection: Connection, parent: Head, child: LedgerName, *, replacement: Replacement, now: str) -> None:
    """Make a child ledger whose first history is the replacement; its parent can never change.

    Raises:
        InvalidInput: see `check_replacement`; nothing was written.
    """
    check_replacement(replacement)
    row = {"agent": child.agent, "conversation": child.conversation, "parent_id": parent.ledger_id}
    ledger_id: int = connection.execute(statement("insert_child"), row).scalar_one()
    head = Head(ledger_id, history_version=1, next_seq=0, turn_count=0)
    insert_events(connection, head, [_replacement_row(replacement, now=now)], turn_id=replacement.turn_id)


def is_child(connection: Connection, parent: Head, child: LedgerName) -> bool:
    """Whether this ledger was opened by that one."""
    names = {"agent": child.agent, "conversation": child.conversation, "parent_id": parent.ledger_id}
    return connection.execute(statement("find_child"), names).one_or_none() is not None


def decode_replacement(content: str) -> list[Step]:
    """The steps of a replacement's content; each copy keeps the seq of the event it came from."""
    return [replace(decode_step(item["step"]), source=item["source"]) for item in decode_json(content)]


def _refuse_stale(head: Head, run: Run | None, replacement: Replacement) -> None:
    if head.history_version != replacement.version:
        raise StaleHistory(
            f"the ledger is at history version {head.history_version}, the replacement was computed from "
            f"{replacement.version}; read the history again"
        )
    if run is None or run.epoch != replacement.epoch or run.outcome not in (None, "lost"):
        raise StaleHistory(f"turn {replacement.turn_id} was taken over or has ended; it may not replace history")
    if replacement.through_seq >= head.next_seq or len(replacement.covered) < run.steps_written:
        raise InvalidInput("the replacement covers what is not there; read the history again", where="replacement")


def _replacement_row(replacement: Replacement, *, now: str) -> EventRow:
    known: dict[str, Any] = {
        "through_seq": replacement.through_seq,
        "turn_id": replacement.turn_id,
        "covered_steps": len(replacement.covered),
        "model": replacement.model,
        "step_count": len(replacement.steps),
    }
    content = encode_json([{"step": encode_step(step), "source": step.source} for step in replacement.steps])
    if replacement.profile is None:
        return event_row(COMPACTION, ReplacementPayload(**known), key=None, content=content, occurred_at=now)
    payload = HandoffPayload(**known, profile=replacement.profile)
    return event_row(HANDOFF, payload, key=None, content=content, occurred_at=now)
