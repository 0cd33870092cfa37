"""What commands print: lines for a person, or one JSON object; never a byte that a terminal would obey."""

import re
import sys
from contextlib import suppress
from typing import Literal

from rich.console import Console
from rich.text import Text

from turnledger.store.json_text import encode_json

Output = Literal["text", "json"]

# Everything that moves the cursor or changes the terminal; line feed and tab are left to the caller.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: the command ends as `told_in_one_line` says, and not as if something were wrong."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output for a person."""
    return _Console(highlight=False)


def error_console() -> Console:
    """Standard error for a person."""
    return _Console(stderr=True, highlight=False)


def print_line(screen: Console, line: Text) -> None:
    """One line on a terminal, cut at its edge; whole where it goes into a file."""
    if screen.is_terminal:
        screen.print(line, no_wrap=True, overflow="ellipsis")
    else:
        screen.print(line, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON value on one line, alone on standard output."""
    sys.stdout.write(encode_json(value) + "\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """One line on standard error that says what is wrong."""
    with suppress(OSError):  # nobody reads it: the exit code still tells
        sys.stderr.write(f"turnledger: {visible(' '.join(message.split()))}\n")
        sys.stderr.flush()


def many(number: int, noun: str) -> str:
    """Such as 1 turn, or 1,490 turns."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def visible(text: str) -> str:
    """The text with control characters spelled out: content must not steer the terminal that shows it."""
    return _CONTROL.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Text of many lines, each safe to show."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _spell(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
