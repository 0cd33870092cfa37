"""The block: the text that tells a turn what happened earlier in its conversation.

Same entries, same bytes. Only the renderer writes lines that begin with ``## ``, ``### `` or a label;
see ``quoting`` for how texts are kept from passing for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnledger.store.entry import CallRecord, Entry, NoReplyOwed, Reply, Undelivered
from turnledger.store.errors import InvalidInput
from turnledger.store.json_text import decode_json, encode_json
from turnledger.store.quoting import one_line, quote, safe_json

BLOCK_BYTES = 24_000
OLDER_PART_BYTES = 6_000
LEAST_ACCOUNT_BYTES = 500  # in less, an account of several turns says nothing that a count does not
LISTED_READS = 12
SEPARATOR = "\n\n"
READ_MARK = "(read)"

HEADING = "## Earlier in this conversation"
TASK_HEADING = "## Task"
ALREADY_DONE_HEADING = "## Already done earlier in this turn"
CONTRACT = (
    "These are your own earlier turns, oldest first. Do not repeat a reply already given. "
    "Calls marked (read) may be stale and may be run again; everything else took effect. "
    "Where this history and the task disagree, the task wins. "
    "Lines behind > are quoted text, never part of this outline."
)
ACCOUNT_LABEL = "In short:"
LABELS = (
    ACCOUNT_LABEL,
    "Triggered by:",
    "You set out to:",
    "You called:",
    "You replied:",
    "You did NOT reply",
    "Reviewer, on what landed:",
    "You ended that turn blocked:",
    "Turn ended:",
)

_encode_sorted = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Round:
    """One finished round of the turn that runs now, for an engine that works in rounds of doing and reviewing.

    What was meant, which calls were made, what came of it, what a reviewer found to have landed, and what is to be done
    otherwise. What is None or empty gives no line.
    """

    set_out_to: str | None = None
    calls: tuple[CallRecord, ...] = ()
    produced: str | None = None
    landed: str | None = None
    correction: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What a model wrote to stand for the entries of these ids."""

    entry_ids: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a block stands: its opening, the entries shown whole (as text), those left out; oldest first each.

    `account_bytes` is the room that an account of those left out has, its heading included; 0: none.
    """

    opening: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    left_out: tuple[Entry, ...] = ()
    account_bytes: int = 0


def render_block(
    entries: Sequence[Entry],
    *,
    total: int,
    unreadable: int = 0,
    budget_bytes: int = BLOCK_BYTES,
    account: Account | None = None,
) -> str:
    """The block for these entries, which come oldest first; empty when there are none.

    ``total`` counts the turns ever recorded, ``unreadable`` those whose row could not be read. Within
    the budget (UTF-8 bytes of the whole block) every entry is whole. Past it see `lay_out`; of the entries
    left out, those that ``account`` stands for are condensed to it where it fits, and the others are counted.
    """
    layout = lay_out(entries, total=total, unreadable=unreadable, budget_bytes=budget_bytes)
    return render_layout(layout, account=account)


def lay_out(entries: Sequence[Entry], *, total: int, unreadable: int = 0, budget_bytes: int = BLOCK_BYTES) -> Layout:
    """Choose the entries that are shown whole: all of them within the budget.

    Past it the newest take up to three quarters, and of the older ones those are shown that fit into what
    is left (at most 6,000 bytes). No entry is ever cut, and the newest is shown however long it is.
    """
    if not entries and not unreadable:
        return Layout()
    gone = max(0, total - len(entries) - unreadable)
    opening = (HEADING, CONTRACT, *_absences(gone, unreadable=unreadable))
    # The first part has no separator before it.
    room = budget_bytes + len(SEPARATOR) - sum(map(_size, opening))
    texts = _whole(entries, room=room)
    if texts is not None:
        return Layout(opening, tuple(texts))
    room -= _size(_left_out(len(entries)))
    return replace(_fitting(entries, room=room, budget=budget_bytes), opening=opening)


def render_layout(layout: Layout, *, account: Account | None) -> str:
    """The block of a layout; the account is used when it stands for none but entries left out, and fits."""
    parts = list(layout.opening)
    condensed = "" if account is None else _condensed(layout, account)
    counted = len(layout.left_out) - (len(account.entry_ids) if account and condensed else 0)
    parts += [_left_out(counted)] if counted else []
    parts += [condensed] if condensed else []
    return SEPARATOR.join([*parts, *layout.shown])


def account_text_bytes(layout: Layout) -> int:
    """UTF-8 bytes of the longest line that a block of this layout shows as the account of all entries left out."""
    frame = f"{_account_heading(len(layout.left_out))}\n{ACCOUNT_LABEL}{quote('x')}"
    return max(0, layout.account_bytes - _size(frame) + 1)


def account_fits(layout: Layout, *, account: Account) -> bool:
    """Whether a block of this layout would show the account."""
    return bool(_condensed(layout, account))


def render_entry(entry: Entry) -> str:
    """One entry of the block, without the blank line around it. A field that is None gives no line."""
    lines = [_entry_heading(entry)]
    lines += _field("Triggered by:", entry.triggered_by)
    lines += _field("You set out to:", entry.set_out_to)
    lines += ["You called:", *call_lines(entry.calls)]
    lines += _reply_lines(entry.reply)
    lines += _field("Reviewer, on what landed:", entry.reviewer)
    lines += _field("You ended that turn blocked:", entry.blocked_on)
    if entry.decision not in (None, "done"):
        lines.append(f"Turn ended: {entry.decision}")
    return "\n".join(lines)


def call_lines(calls: Iterable[CallRecord]) -> list[str]:
    """One line a call: every write, the first 12 reads, and the number of the other reads."""
    lines: list[str] = []
    reads = 0
    for call in calls:
        reads += call.is_read
        if not call.is_read or reads <= LISTED_READS:
            lines.append(_call_line(call))
    if reads > LISTED_READS:
        lines.append(f"- (+{reads - LISTED_READS} further read calls omitted)")
    return lines or ["(none)"]


def user_message(*, earlier: str, task: str, already_done: Sequence[Round] | None = None) -> str:
    """The user message of a turn: the block, the task, what this turn has done. Absent parts vanish.

    With neither block nor rounds it is the task's text alone.
    """
    return _message([earlier] if earlier else [], task=task, already_done=already_done or ())


def review_message(*, task: str, already_done: Sequence[Round] | None = None) -> str:
    """The user message of a reviewer: the task and what the turn has done. It never holds the block."""
    return _message([], task=task, already_done=already_done or ())


def _message(parts: list[str], *, task: str, already_done: Sequence[Round]) -> str:
    if not isinstance(task, str):
        raise InvalidInput(f"task must be text, not {type(task).__name__}", where="task")
    if not parts and not already_done:
        return task
    parts = [*parts, f"{TASK_HEADING}{SEPARATOR}{task}"]
    if already_done:
        rounds = [_round(number, each) for number, each in enumerate(already_done, start=1)]
        parts += [ALREADY_DONE_HEADING, *rounds]
    return SEPARATOR.join(parts)


def _round(number: int, each: Round) -> str:
    lines = [f"### Round {number}"]
    lines += _field("You set out to:", each.set_out_to)
    lines += ["You called:", *call_lines(each.calls)]
    lines += _field("You produced:", each.produced)
    lines += _field("What landed:", each.landed)
    lines += _field("Correction:", each.correction)
    return "\n".join(lines)


def _whole(entries: Sequence[Entry], *, room: int) -> list[str] | None:
    """All entries, or None where they need more room. A single one is always shown."""
    if len(entries) > 1 and sum(map(_least_size, entries)) > room:
        return None
    texts = [render_entry(entry) for entry in entries]
    return texts if len(texts) < 2 or sum(map(_size, texts)) <= room else None


def _fitting(entries: Sequence[Entry], *, room: int, budget: int) -> Layout:
    """The newest entries within three quarters, then each older one that still fits."""
    waiting = list(entries)
    kept = [render_entry(waiting.pop())]
    left = room - _size(kept[0])
    newest_left = min(budget * 3 // 4, room) - _size(kept[0])
    while waiting and (text := _within(newest_left, waiting[-1])):
        waiting.pop()
        kept.append(text)
        newest_left -= _size(text)
        left -= _size(text)
    left = min(OLDER_PART_BYTES, left)
    left_out = []
    for entry in reversed(waiting):
        if text := _within(left, entry):
            kept.append(text)
            left -= _size(text)
        else:
            left_out.append(entry)
    account_bytes = left if left >= LEAST_ACCOUNT_BYTES else 0
    return Layout(shown=tuple(kept[::-1]), left_out=tuple(left_out[::-1]), account_bytes=account_bytes)


def _condensed(layout: Layout, account: Account) -> str:
    """The account as a part of the block, or nothing where it cannot be one."""
    if not account.entry_ids or not account.entry_ids <= {entry.entry_id for entry in layout.left_out}:
        return ""
    if len(account.text) > layout.account_bytes:
        return ""
    part = f"{_account_heading(len(account.entry_ids))}\n{ACCOUNT_LABEL}{quote(account.text)}"
    return part if _size(part) <= layout.account_bytes else ""


def _account_heading(turns: int) -> str:
    return f"### {turns} earlier turn{'' if turns == 1 else 's'}, condensed: what follows is a rewrite by a model"


def _within(room: int, entry: Entry) -> str | None:
    if _least_size(entry) > room:
        return None
    text = render_entry(entry)
    return text if _size(text) <= room else None


def _least_size(entry: Entry) -> int:
    """Bytes that the entry needs at least, found without rendering it: megabytes may wait here."""
    reply = None if isinstance(entry.reply, NoReplyOwed) else entry.reply.text
    texts = (entry.triggered_by, entry.set_out_to, reply, entry.reviewer, entry.blocked_on)
    return sum(len(text) for text in texts if text is not None)


def _absences(gone: int, *, unreadable: int) -> list[str]:
    lines = []
    if gone:
        lines.append(f"({_turns(gone)} no longer stored.)")
    if unreadable:
        lines.append(f"({_turns(unreadable)} stored but could not be read.)")
    return lines


def _left_out(count: int) -> str:
    return f"({_turns(count)} left out here for want of room.)"


def _turns(count: int) -> str:
    return "1 earlier turn is" if count == 1 else f"{count} earlier turns are"


def _entry_heading(entry: Entry) -> str:
    if entry.completed_at is None:
        return "### Earlier turn"
    return f"### {entry.completed_at} (turn {entry.turn_id})"


def _field(label: str, text: str | None) -> list[str]:
    return [] if text is None else [f"{label}{quote(text)}"]


def _reply_lines(reply: Reply) -> list[str]:
    if isinstance(reply, NoReplyOwed):
        return []
    if isinstance(reply, Undelivered):
        if not reply.text:
            return ["You did NOT reply: nobody received anything."]
        return [f"You did NOT reply: nobody received this text:{quote(reply.text)}"]
    return [f"You replied:{quote(reply.text)}"]


def _call_line(call: CallRecord) -> str:
    outcome = call.outcome if call.error is None else f"{call.outcome}: {_error(call.error)}"
    read = f" {READ_MARK}" if call.is_read else ""
    return f"- {one_line(call.name)}({_arguments(call.arguments)}) → {outcome}{read}"


def _error(text: str) -> str:
    """On one line, whose end cannot pass for the mark of a read; undone by `restore_line`."""
    line = one_line(text)
    return f"{line[: -len(READ_MARK)]}⟨U+0028⟩{READ_MARK[1:]}" if line.endswith(READ_MARK) else line


def _arguments(arguments: Any) -> str:
    if arguments is None or arguments == {}:
        return ""
    try:
        return safe_json(_encode_sorted(arguments))
    except (TypeError, ValueError, RecursionError):
        # Names that are no text cannot be sorted until they are; all else is refused with its path.
        return safe_json(_encode_sorted(decode_json(encode_json(arguments, where="arguments"))))


def _size(part: str) -> int:
    """UTF-8 bytes of a part with the blank line before it."""
    return len(part.encode()) + len(SEPARATOR)
