"""How many of the ledgers at the head of the queue one group takes."""

import time
from collections.abc import Callable

_SHARED_FOR_S = 1.0  # then it is tried again whether the other worker is still there
_MOSTLY_FREE = 0.75  # starts hold a ledger for a moment, and no group is to be smaller for that


class LedgerShare:
    """All of them; half while another worker is at them too.

    A worker that takes all leaves a second one nothing but to wait for it, and both together commit less than one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shared_until = clock()

    def of(self, ledgers: int) -> int:
        """How many of so many ledgers to ask for."""
        return (ledgers + 1) // 2 if self._clock() < self._shared_until else ledgers

    def note(self, *, asked: int, got: int) -> None:
        """So many were asked for, and so many were free."""
        if got < _MOSTLY_FREE * asked:
            self._shared_until = self._clock() + _SHARED_FOR_S
