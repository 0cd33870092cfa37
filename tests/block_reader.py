"""Reads a block back as a reader has to who knows the labels, and nothing of the entries."""

import re
from typing import NamedTuple

from turnledger.store.block import CONTRACT, HEADING
from turnledger.store.quoting import unquote

UNDELIVERED = "You did NOT reply: nobody received this text:"
NOTHING_SENT = "You did NOT reply: nobody received anything."
FIELDS = {
    "Triggered by:": "triggered_by",
    "You set out to:": "set_out_to",
    "You replied:": "replied",
    UNDELIVERED: "undelivered",
    "Reviewer, on what landed:": "reviewer",
    "You ended that turn blocked:": "blocked_on",
    "Turn ended:": "decision",
}
_ENTRY = re.compile(r"### (?:(\S+) \(turn (\S+)\)|Earlier turn)")


class ReadEntry(NamedTuple):
    """What a block says of one turn; `fields` holds those that have a line, calls are lines."""

    turn_id: str | None
    completed_at: str | None
    fields: dict[str, str]
    calls: tuple[str, ...]


def read_block(block: str) -> tuple[list[str], list[ReadEntry]]:
    """The lines before the first entry, and the entries. Fails on anything that a renderer would not write."""
    assert block.startswith(f"{HEADING}\n\n{CONTRACT}")
    opening, *entries = re.split(r"\n\n(?=### )", block)
    return opening.removeprefix(f"{HEADING}\n\n{CONTRACT}").split("\n\n")[1:], [_entry(text) for text in entries]


def _entry(text: str) -> ReadEntry:
    first, *lines = text.split("\n")
    found = _ENTRY.fullmatch(first)
    assert found, first
    fields: dict[str, str] = {}
    calls: list[str] = []
    while lines:
        line = lines.pop(0)
        if line == NOTHING_SENT:
            fields["undelivered"] = ""
        elif line == "You called:":
            while lines and lines[0].startswith("- "):
                calls.append(lines.pop(0))
            assert calls or lines.pop(0) == "(none)"
        else:
            label = next(label for label in FIELDS if line.startswith(label))
            quoted = line.removeprefix(label)
            while lines and lines[0].startswith("> "):
                quoted += f"\n{lines.pop(0)}"
            assert FIELDS[label] not in fields
            fields[FIELDS[label]] = unquote(quoted)
    return ReadEntry(found[2], found[1], fields, tuple(calls))
