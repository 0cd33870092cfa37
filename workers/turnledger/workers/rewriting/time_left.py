"""How long something may still take."""

import time
from collections.abc import Callable


def _never() -> bool:
    return False


class TimeLeft:
    """So many seconds from now on, and none at all once somebody wants to stop."""

    def __init__(
        self, seconds: float, *, stopped: Callable[[], bool] = _never, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ends = clock() + seconds
        self._stopped = stopped
        self._clock = clock

    @property
    def was_stopped(self) -> bool:
        """Whether somebody wants to stop."""
        return self._stopped()

    @property
    def is_up(self) -> bool:
        """Whether the time is over; a process that is to stop still takes an answer that is on its way."""
        return self._clock() >= self._ends

    def seconds(self) -> float:
        """What is left for something new, never below 0."""
        return 0.0 if self._stopped() else max(self._ends - self._clock(), 0.0)
