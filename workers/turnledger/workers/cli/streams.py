"""Standard input, output and error, whatever the caller has made of them."""

import os
import sys
from contextlib import suppress
from typing import TextIO

_LAST_STANDARD = 2  # input, output and error are 0, 1 and 2


def open_streams() -> None:
    """Put nothing in the place of a stream that the caller closed: no socket of ours must take its number.

    A terminal that cannot show a character gets its escape instead of an error.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        pass
    os.close(opened)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # both are text files here


def let_go() -> None:
    """Lose what cannot be written, instead of failing once more when the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _point_nowhere(stream)


def _point_nowhere(stream: TextIO) -> None:
    with suppress(OSError):  # a stream without a number needs none of this
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
