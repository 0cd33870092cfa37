"""The entry: the structured account of one completed turn, shown to later turns.

Every text is kept verbatim at any length: any Python str, NUL and lone surrogates included. A field
that is None is absent, also from the stored JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite
from typing import Any

from turnledger.store.errors import CorruptData, InvalidInput
from turnledger.store.identity import check_turn_id
from turnledger.store.json_text import decode_json, encode_json, nests_deeper
from turnledger.store.steps import KINDS, OUTCOMES, Answer, Call, Kind, Outcome, Step
from turnledger.store.times import check_time

MAX_ENTRY_BYTES = 64 * 1024 * 1024  # that Redis is given; a larger entry goes by the disk
MOST_NESTED = 100  # levels of arguments; how deep Python can read JSON hangs on who calls, and every reader has to

_DECISION = re.compile(r"[a-z][a-z0-9_]{0,31}")
_TEXTS = ("triggered_by", "set_out_to", "reviewer", "outcome", "blocked_on")


@dataclass(frozen=True, slots=True)
class Replied:
    """The reply reached the party that waited. ``receipt`` is the vendor's id of the message."""

    text: str
    receipt: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.text, "reply.text")
        _check_text(self.receipt, "reply.receipt", optional=True)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Nothing reached the party that waited. The text, which may be empty, is what it would have been."""

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text, "reply.text")


@dataclass(frozen=True, slots=True)
class NoReplyOwed:
    """Nobody waited for a reply."""


Reply = Replied | Undelivered | NoReplyOwed


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call of the turn, without its result.

    ``arguments`` is any JSON value, or the text that the model wrote when it was not JSON. ``error``
    is the error's text and belongs to the outcome ``error`` alone. Unstated kind is a write.
    """

    name: str
    arguments: Any = field(default_factory=dict)
    outcome: Outcome = "unknown"
    error: str | None = None
    kind: Kind | None = None
    call_id: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.name, "call.name")
        _check_text(self.error, "call.error", optional=True)
        if self.outcome not in OUTCOMES:
            raise InvalidInput(f"call.outcome must be one of {', '.join(OUTCOMES)}", where="call.outcome")
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidInput(f"call.kind must be one of {', '.join(KINDS)}, or None", where="call.kind")
        if self.error is not None and self.outcome != "error":
            raise InvalidInput("call.error is given, so call.outcome must be 'error'", where="call.error")

    @property
    def is_read(self) -> bool:
        """Whether the call changed nothing. What is not stated to be a read is a write."""
        return self.kind == "read"


@dataclass(frozen=True, slots=True)
class Entry:
    """The account of one completed turn.

    ``completed_at`` has the form ``2026-11-30T16:20:16.123Z``. ``ordinal`` is the turn's number in its
    ledger, from 1, and None until it is committed. ``blocked_on`` is evidence that belongs to the
    outcome ``blocked`` alone. Raises InvalidInput naming the field that is not allowed.
    """

    turn_id: str
    entry_id: str
    reply: Reply
    completed_at: str | None = None
    ordinal: int | None = None
    triggered_by: str | None = None
    set_out_to: str | None = None
    calls: tuple[CallRecord, ...] = ()
    reviewer: str | None = None
    outcome: str | None = None
    blocked_on: str | None = None
    decision: str | None = None

    def __post_init__(self) -> None:
        check_turn_id(self.turn_id)
        _check_text(self.entry_id, "entry_id")
        if self.completed_at is not None:
            check_time(self.completed_at, where="completed_at")
        for name in _TEXTS:
            _check_text(getattr(self, name), name, optional=True)
        _check_calls(self.calls)
        _check_reply(self.reply)
        check_blocked_on(self.blocked_on, outcome=self.outcome)
        check_decision(self.decision)


def check_decision(decision: object) -> str | None:
    """The decision itself: None, or a word like ``done``, ``failed``, ``self_iterate``."""
    if decision is None or (isinstance(decision, str) and _DECISION.fullmatch(decision)):
        return decision
    raise InvalidInput(
        "decision must be one word of a-z, 0-9 and _, 1 to 32 characters, beginning with a letter",
        where="decision",
    )


def check_blocked_on(blocked_on: str | None, *, outcome: str | None) -> str | None:
    """The evidence itself. Raises InvalidInput when it comes with another outcome than ``blocked``."""
    if blocked_on is not None and outcome != "blocked":
        raise InvalidInput(
            "blocked_on is given, but the outcome is not 'blocked'; send it with outcome='blocked' alone",
            where="blocked_on",
        )
    return blocked_on


def calls_of(steps: Iterable[Step]) -> tuple[CallRecord, ...]:
    """The calls that the steps made, in order of issue, with their outcomes; ``unknown`` without an answer.

    A call id counts once while it waits for its answer. An id that comes again after its answer is
    another call (vendors reuse ids), and is listed too: none that took effect may be missed.
    """
    calls: list[Call] = []
    answers: dict[int, Answer] = {}
    waiting: dict[str, int] = {}
    for step in steps:
        for call in step.calls:
            if call.id not in waiting:
                waiting[call.id] = len(calls)
                calls.append(call)
        for answer in step.answers:
            if answer.call_id in waiting:
                answers[waiting.pop(answer.call_id)] = answer
    return tuple(_record(call, answers.get(index)) for index, call in enumerate(calls))


def readable_calls(calls: Iterable[CallRecord]) -> tuple[CallRecord, ...]:
    """The calls; arguments that are nested too deeply for an entry as their JSON text.

    Raises InvalidInput for what is no call, and for arguments that JSON cannot hold.
    """
    found = tuple(calls)
    _check_are_calls(found)
    return tuple(
        replace(call, arguments=encode_json(call.arguments, where=f"calls[{index}].arguments"))
        if nests_deeper(call.arguments, levels=MOST_NESTED)
        else call
        for index, call in enumerate(found)
    )


def encode_entry(entry: Entry) -> str:
    """JSON text of the entry without its ordinal, for a ``json`` column: every character survives."""
    record: dict[str, object] = {"turn_id": entry.turn_id, "entry_id": entry.entry_id}
    if entry.completed_at is not None:
        record["completed_at"] = entry.completed_at
    for name in _TEXTS:
        value = getattr(entry, name)
        if value is not None:
            record[name] = value
    if entry.calls:
        record["calls"] = [_call_members(call) for call in entry.calls]
    record["reply"] = _reply_members(entry.reply)
    if entry.decision is not None:
        record["decision"] = entry.decision
    return encode_json(record, where="entry")


def decode_entry(text: str, *, ordinal: int | None) -> Entry:
    """The entry that ``encode_entry`` was given, with its ordinal. Members not known here are ignored.

    Raises CorruptData, naming the member, for text that is not an entry.
    """
    try:
        record = decode_json(text, where="entry", numbers="finite")
        return Entry(
            turn_id=record["turn_id"],
            entry_id=record["entry_id"],
            reply=_reply_of(record["reply"]),
            completed_at=record.get("completed_at"),
            ordinal=ordinal,
            triggered_by=record.get("triggered_by"),
            set_out_to=record.get("set_out_to"),
            calls=tuple(_call_of(members) for members in record.get("calls", ())),
            reviewer=record.get("reviewer"),
            outcome=record.get("outcome"),
            blocked_on=record.get("blocked_on"),
            decision=record.get("decision"),
        )
    except KeyError as error:
        raise CorruptData(f"entry: member {error} is missing", where=str(error)) from None
    except InvalidInput as error:
        raise CorruptData(f"entry: {error}", where=error.where) from None
    except (TypeError, AttributeError):
        raise CorruptData("entry: a member has the wrong shape", where="entry") from None


def _record(call: Call, answer: Answer | None) -> CallRecord:
    return CallRecord(
        call.name,
        _arguments_value(call.arguments),
        answer.outcome if answer else "unknown",
        answer.error if answer and answer.outcome == "error" else None,
        call.kind,
        call.id,
    )


def _arguments_value(text: str) -> Any:
    """The decoded arguments, or the text itself where decoding would lose something of it, or nobody could read it."""
    try:
        value = _decode_losing_nothing(text) if text else {}
    except (ValueError, RecursionError):
        return text
    return text if nests_deeper(value, levels=MOST_NESTED) else value


def _same_number(number: str) -> float:
    """It may be spelled otherwise afterwards (`1.10` as `1.1`), but it is the same number."""
    value = float(number)
    if isfinite(value) and Decimal(number) == Decimal(repr(value)):
        return value
    raise ValueError("not a number that a float can hold")


def _all_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    raise ValueError("a member name stands twice")


_decode_losing_nothing = json.JSONDecoder(parse_float=_same_number, object_pairs_hook=_all_members).decode


def _call_members(call: CallRecord) -> dict[str, object]:
    members: dict[str, object] = {"name": call.name, "arguments": call.arguments, "outcome": call.outcome}
    if call.error is not None:
        members["error"] = call.error
    if call.kind is not None:
        members["kind"] = call.kind
    if call.call_id is not None:
        members["call_id"] = call.call_id
    return members


def _call_of(members: Mapping[str, Any]) -> CallRecord:
    return CallRecord(
        members["name"],
        members["arguments"],
        members["outcome"],
        members.get("error"),
        members.get("kind"),
        members.get("call_id"),
    )


def _reply_members(reply: Reply) -> dict[str, object]:
    if isinstance(reply, Replied):
        members: dict[str, object] = {"kind": "replied", "text": reply.text}
        if reply.receipt is not None:
            members["receipt"] = reply.receipt
        return members
    if isinstance(reply, Undelivered):
        return {"kind": "undelivered", "text": reply.text}
    return {"kind": "no_reply_owed"}


def _reply_of(members: Mapping[str, Any]) -> Reply:
    kind = members["kind"]
    if kind == "replied":
        return Replied(members["text"], members.get("receipt"))
    if kind == "undelivered":
        return Undelivered(members["text"])
    if kind == "no_reply_owed":
        return NoReplyOwed()
    raise InvalidInput("reply.kind is not known", where="reply.kind")


def _check_calls(calls: tuple[CallRecord, ...]) -> None:
    _check_are_calls(calls)
    for index, call in enumerate(calls):
        if nests_deeper(call.arguments, levels=MOST_NESTED):
            where = f"calls[{index}].arguments"
            raise InvalidInput(f"{where} is nested more than {MOST_NESTED} levels deep; send it as text", where=where)


def _check_are_calls(calls: Iterable[object]) -> None:
    for index, call in enumerate(calls):
        if not isinstance(call, CallRecord):
            kind = type(call).__name__
            raise InvalidInput(f"calls[{index}] must be a CallRecord, not {kind}", where=f"calls[{index}]")


def _check_reply(reply: object) -> None:
    if not isinstance(reply, (Replied, Undelivered, NoReplyOwed)):
        raise InvalidInput("reply must be Replied(...), Undelivered(...) or NoReplyOwed()", where="reply")


def _check_text(value: object, where: str, *, optional: bool = False) -> None:
    if isinstance(value, str) or (optional and value is None):
        return
    raise InvalidInput(f"{where} must be text, not {type(value).__name__}", where=where)
