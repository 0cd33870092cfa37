"""How much one job carries with it, by how often its commit has failed."""

from enum import Enum


class Scope(Enum):
    """What one transaction tries to commit."""

    GROUP = "group"  # the turns at the head of the queue, of any ledger
    LEDGER = "ledger"  # the job's own ledger
    TURN = "turn"  # one turn at a time, from the front of the job's own ledger up to its own


def scope_after(failures: int) -> Scope:
    """A group that failed twice is taken apart, so that one bad turn fails alone."""
    if failures < 2:
        return Scope.GROUP
    return Scope.LEDGER if failures == 2 else Scope.TURN
