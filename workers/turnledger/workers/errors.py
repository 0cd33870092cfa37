"""What can go wrong where completed turns are committed."""

from typing import ClassVar

from turnledger.store import TurnledgerError


class TurnRejected(TurnledgerError):
    """The turn was refused for good at the commit point; its record says why."""

    retry: ClassVar[bool] = False


class CommitPostponed(TurnledgerError):
    """The commit met trouble that will pass; the job goes back to the queue."""

    retry: ClassVar[bool] = True


class RewritingPostponed(TurnledgerError):
    """The rewriting of a turn goes back to its queue."""

    retry: ClassVar[bool] = True


class ForbiddenFunction(TurnledgerError):
    """The job names a function that this worker does not run."""

    retry: ClassVar[bool] = False


class UnsafeRedis(TurnledgerError):
    """This Redis may lose or evict what it was given."""

    retry: ClassVar[bool] = False
