"""The exit codes of every command, and which error ends in which."""

from turnledger.checkpoint import TurnNotFound
from turnledger.store import InvalidInput, TurnledgerError

OK = 0
NEEDS_A_PERSON = 1
INVALID = 2
AWAY = 3
INTERRUPTED = 130
READER_GONE = 141  # as a shell tells of a program that SIGPIPE has ended

MEANINGS = {
    OK: "all is well",
    NEEDS_A_PERSON: "something is wrong, and a person has to act",
    INVALID: "wrong usage, or input that is not valid or not there",
    AWAY: "a server is not there, or cannot take this now",
    INTERRUPTED: "interrupted by Ctrl-C (143: by SIGTERM)",
    READER_GONE: "nobody reads the output any more",
}


class NotThere(InvalidInput):
    """What the command names does not exist."""


def exit_code_of(error: TurnledgerError) -> int:
    """The exit code of a command that this error ends."""
    if isinstance(error, (InvalidInput, TurnNotFound)):
        return INVALID
    return AWAY if error.retry else NEEDS_A_PERSON
