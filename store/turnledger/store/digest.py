"""Coalesced triggers: several inbound messages that one turn answers, merged into one ask.

The lines of a digest that are not its own begin with ``> ``, so no message can pass for another one, nor for
what the digest says of it. The rule is reversible: sender, time and text of every message can be read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from turnledger.store.errors import InvalidInput
from turnledger.store.events import Message
from turnledger.store.quoting import one_line, show_hidden
from turnledger.store.times import time_text

_HEADER_END = " before this turn, oldest first; the latest stands last. Lines behind > are what was sent."
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class _Shown(NamedTuple):
    """A message, and how many of the messages had its text and its sender."""

    message: Message
    times: int


def merged_ask(messages: Sequence[Message]) -> str:
    """The ask of a turn that answers these messages together: give it to ``start`` as ``triggered_by``.

    One message is its text, verbatim. Several are a digest: each with its sender, in the order of ``sent_at``, the
    latest last, nothing cut. Equal times keep the order given; a message without a time follows the one given before
    it. What one sender wrote more than once is shown where it came last and says how often it came; the same
    words of two senders are both kept, and so are those of nobody known. A message id given again is the same record.
    Same messages in the same order, same bytes. Raises InvalidInput when there are none.
    """
    if not messages:
        raise InvalidInput("there are no messages to merge; give at least one", where="messages")
    records = _in_time_order(_once_each(messages))
    # A text that looks like a digest is quoted in one of its own, or it could pass for what others wrote.
    if len(records) == 1 and _HEADER_END not in records[0].text:
        return records[0].text
    shown = _without_repeats(records)
    return "\n\n".join([_header(len(records)), *map(_earlier, shown[:-1]), _latest(shown[-1])])


def _once_each(messages: Iterable[Message]) -> list[Message]:
    """The first text of a record stays, as in the log."""
    first: dict[str, Message] = {}
    for message in messages:
        first.setdefault(message.message_id, message)
    return list(first.values())


def _in_time_order(messages: Iterable[Message]) -> list[Message]:
    times: list[tuple[datetime, Message]] = []
    latest = _LONG_AGO
    for message in messages:
        latest = message.sent_at or latest
        times.append((latest, message))
    return [message for _, message in sorted(times, key=lambda timed: timed[0])]


def _without_repeats(messages: Iterable[Message]) -> list[_Shown]:
    shown: dict[tuple[str, ...], _Shown] = {}
    for message in messages:
        known = (message.text, message.sender) if message.sender is not None else (message.message_id,)
        before = shown.pop(known, None)  # taken out and put in again: it stands where it came last
        shown[known] = _Shown(message, 1 + (before.times if before else 0))
    return list(shown.values())


def _header(count: int) -> str:
    return f"{'1 message' if count == 1 else f'{count} messages'} came in{_HEADER_END}"


def _earlier(shown: _Shown) -> str:
    origin = _origin(shown.message)
    return _part(f"{origin[0].upper()}{origin[1:]}:", shown)


def _latest(shown: _Shown) -> str:
    return _part(f"The latest, {_origin(shown.message)}:", shown)


def _origin(message: Message) -> str:
    sender = "sender not known" if message.sender is None else f"from {one_line(message.sender)}"
    return sender if message.sent_at is None else f"at {time_text(message.sent_at)}, {sender}"


def _part(label: str, shown: _Shown) -> str:
    lines = [label, "> " + show_hidden(shown.message.text).replace("\n", "\n> ")]
    if shown.times > 1:
        lines.append(
            f"(The same text came {shown.times} times from {one_line(shown.message.sender or '')}; this was the last.)"
        )
    return "\n".join(lines)
