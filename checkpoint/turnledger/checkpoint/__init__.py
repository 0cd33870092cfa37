"""The turn in progress, kept in Redis, and its hand-over into the queue of completed turns."""

from turnledger.checkpoint.errors import (
    AlreadyHandled,
    AlreadyRunning,
    CheckpointMisconfigured,
    CheckpointUnavailable,
    CompletionConflict,
    NotPersisted,
    OversizedPayload,
    SliceLimit,
    StaleTurn,
    TurnBlocked,
    TurnEnded,
    TurnNotFound,
)
from turnledger.checkpoint.replacing import ReplaceableHistory
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.checkpoint.submission import Completion
from turnledger.checkpoint.turn import Turn
from turnledger.checkpoint.turns import Snapshot, Turns

__all__ = [
    "AlreadyHandled",
    "AlreadyRunning",
    "CheckpointMisconfigured",
    "CheckpointSettings",
    "CheckpointUnavailable",
    "Completion",
    "CompletionConflict",
    "NotPersisted",
    "OversizedPayload",
    "ReplaceableHistory",
    "SliceLimit",
    "Snapshot",
    "StaleTurn",
    "Turn",
    "TurnBlocked",
    "TurnEnded",
    "TurnNotFound",
    "Turns",
]
