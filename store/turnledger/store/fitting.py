"""Fitting: over-long tool arguments and errors of an entry are replaced by a short stand-in.

Only two things are ever replaced: the value of one tool argument, and the error of a failed call,
when it is longer than 200 characters. The stand-in is an account of it where a rewriter gave one, and otherwise a
*name*: the payload's size and digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from turnledger.store.entry import CallRecord, Entry
from turnledger.store.json_text import encode_json

MAX_PIECE_CHARACTERS = 200
CONDENSED = "(condensed) "  # what stands before every account: a reader must know that these are not the words
CONDENSED_BYTES = 200  # of the account with its prefix
ACCOUNT_BYTES = CONDENSED_BYTES - len(CONDENSED)
_KIB = 1024

PieceKind = Literal["argument", "error"]
StandIn = Callable[[str, PieceKind], str]


def name_payload(text: str) -> str:
    """What stands for a text that is not shown: ``(14 KiB not shown, digest 1a2b3c4d)``.

    Size and digest (the first 4 bytes of SHA-256) are those of its UTF-8 bytes. Same text, same name.
    """
    data = text.encode("utf-8", "surrogatepass")
    return f"({_size(len(data))} not shown, digest {hashlib.sha256(data).hexdigest()[:8]})"


def needs_fitting(entry: Entry) -> bool:
    """Whether a tool argument or an error of this entry is longer than 200 characters."""
    return any(_call_needs_fitting(call) for call in entry.calls)


def condensed(account: str | None) -> str | None:
    """The stand-in made of an account; None for an account that is blank, no text, or too long."""
    if account is None or not account.strip():
        return None
    try:
        size = len(account.encode())
    except UnicodeEncodeError:
        return None
    return CONDENSED + account if size <= ACCOUNT_BYTES else None


def with_names(entry: Entry, *, rewriter: Callable[[str], str] = name_payload) -> Entry:
    """The entry with every over-long argument value and error named; as `with_stand_ins` in all else."""
    return with_stand_ins(entry, stand_in=lambda text, _: rewriter(text))


def with_stand_ins(entry: Entry, *, stand_in: StandIn) -> Entry:
    """The entry with every over-long argument value and error replaced; the entry itself when there is none.

    All other values keep their type. `stand_in` is asked once for a piece, however often it occurs.
    """
    if not needs_fitting(entry):
        return entry
    given: dict[str, str] = {}

    def fit(text: str, kind: PieceKind) -> str:
        if text not in given:
            given[text] = stand_in(text, kind)
        return given[text]

    return replace(entry, calls=tuple(_fitted_call(call, fit) for call in entry.calls))


def _call_needs_fitting(call: CallRecord) -> bool:
    values = call.arguments.values() if isinstance(call.arguments, dict) else (call.arguments,)
    return _is_long(call.error) or any(_piece(value) is not None for value in values)


def _fitted_call(call: CallRecord, fit: StandIn) -> CallRecord:
    if not _call_needs_fitting(call):
        return call
    if isinstance(call.arguments, dict):
        arguments: Any = {name: _fitted(value, fit) for name, value in call.arguments.items()}
    else:
        arguments = _fitted(call.arguments, fit)
    error = fit(call.error, "error") if call.error is not None and _is_long(call.error) else call.error
    return replace(call, arguments=arguments, error=error)


def _fitted(value: Any, fit: StandIn) -> Any:
    piece = _piece(value)
    return value if piece is None else fit(piece, "argument")


def _piece(value: Any) -> str | None:
    """The text to replace, or None for a value that stays: objects and lists are judged by their JSON."""
    if isinstance(value, (dict, list, tuple)):
        value = encode_json(value, where="arguments")
    return value if isinstance(value, str) and _is_long(value) else None


def _is_long(text: str | None) -> bool:
    return text is not None and len(text) > MAX_PIECE_CHARACTERS


def _size(count: int) -> str:
    if count < _KIB:
        return f"{count} bytes"
    if round(count / _KIB) < _KIB:
        return f"{round(count / _KIB)} KiB"
    return f"{count / _KIB / _KIB:.1f} MiB"
