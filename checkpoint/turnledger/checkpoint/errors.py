"""What can go wrong while a turn is in progress."""

from typing import ClassVar

from turnledger.store import InvalidInput, TurnledgerError


class CheckpointUnavailable(TurnledgerError):
    """Redis does not answer, is full, loading or read-only; try again."""

    retry: ClassVar[bool] = True


class CheckpointMisconfigured(TurnledgerError):
    """Redis is not set up as durable conversation memory needs it."""

    retry: ClassVar[bool] = False


class StaleTurn(TurnledgerError):
    """Another process holds this turn now, or this handle is behind; nothing was written."""

    turn_id: str
    retry: ClassVar[bool] = False


class AlreadyHandled(TurnledgerError):
    """The work of this turn is done; `turn_id` and `entry_id` (when known) name the run that did it."""

    turn_id: str
    entry_id: str | None
    retry: ClassVar[bool] = False


class AlreadyRunning(TurnledgerError):
    """A run of this turn or work key is open; `turn_id`, `owner` and `state` name it: resume, wait or abandon it."""

    turn_id: str
    state: str
    owner: str | None
    retry: ClassVar[bool] = False


class TurnNotFound(TurnledgerError):
    """There is no such turn, or no longer."""

    retry: ClassVar[bool] = False


class TurnEnded(TurnledgerError):
    """The turn has ended; `state` says how. An ended turn changes no more.

    `state` is `failed` or `abandoned`, or what a completed turn has come to: `completed`, `committed`, `rejected`.
    """

    turn_id: str
    state: str
    retry: ClassVar[bool] = False


class TurnBlocked(TurnledgerError):
    """The turn cannot be resumed safely; `reason` says why.

    `cursor_ahead`, `other_history` and `ledger_purged`: Postgres does not have the history it was built on.
    `delivery_unknown`: its holder died, or was interrupted, while it sent the reply. `spooled`: it is completed and
    waits on its node's disk. Whoever holds it may still complete it.
    """

    reason: str
    retry: ClassVar[bool] = False


class CompletionConflict(TurnledgerError):
    """The turn was completed before with another content; the first completion stands."""

    retry: ClassVar[bool] = False


class QueueFull(TurnledgerError):
    """Too much is pending for another turn to be queued."""

    retry: ClassVar[bool] = True


class SliceLimit(TurnledgerError):
    """The turn was taken up too often; it has been ended, with what it did so far on record."""

    turn_id: str
    retry: ClassVar[bool] = False


class NotPersisted(TurnledgerError):
    """Neither Redis nor Postgres nor the spool could take the completed turn."""

    retry: ClassVar[bool] = True


class OversizedPayload(InvalidInput):
    """More bytes than one call may carry; nothing was sent."""
