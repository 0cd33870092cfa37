"""Every error that turnledger raises, under one root.

``retry`` tells the two families apart: True means that the same call may succeed later without
any change, False means that it will not.
"""

from __future__ import annotations

from typing import ClassVar


class TurnledgerError(Exception):
    """Something went wrong in turnledger.

    The first line of a class's docstring is its default message. Details become attributes, and
    both survive pickling, so that a worker's failure can be read by another process.
    """

    retry: ClassVar[bool] = False

    def __init__(self, message: str | None = None, **details: object) -> None:
        super().__init__(message or _default_message(type(self)))
        self.__dict__.update(details)


class InvalidInput(TurnledgerError, ValueError):
    """Refused: the input is not valid, and nothing was written."""

    where: str | None = None


class CorruptData(TurnledgerError):
    """What is stored cannot be read back: it is not what turnledger writes."""

    where: str | None = None


class UnsupportedEvent(TurnledgerError):
    """The history holds an event that this version of turnledger does not know."""

    seq: int | None = None
    type: str | None = None


class StaleHistory(TurnledgerError):
    """The history was replaced meanwhile, or the turn is no longer this process's; nothing was written."""


class StoreUnavailable(TurnledgerError):
    """Postgres cannot be reached now; try again later."""

    retry = True
    is_read_only: bool = False  # it answers, and takes no write: a standby, which may be behind what was committed


class StoreBusy(TurnledgerError):
    """Postgres is busy (a lock, a deadlock, a timeout); try again."""

    retry = True
    is_lock: bool = False  # another transaction kept a row for longer than we wait


class StoreRefused(TurnledgerError):
    """Postgres refused what was written; the same data will be refused again."""

    sqlstate: str | None = None
    constraint: str | None = None


class StoreMisconfigured(TurnledgerError):
    """Postgres is not set up for turnledger; a person has to repair it."""

    sqlstate: str | None = None


class SchemaMismatch(StoreMisconfigured):
    """The database schema is of another revision than this version of turnledger."""

    expected: str | None = None
    found: str | None = None


def without_content(error: Exception) -> str:
    """What may be told of an error: our own words, and of any other its type, since its words may quote what it met."""
    return str(error) if isinstance(error, TurnledgerError) else type(error).__name__


def _default_message(kind: type[TurnledgerError]) -> str:
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0]
