"""How long a turn was run: the time of all the processes that held it, without the waits between them."""

import time
from collections.abc import Callable


class RunningTime:
    """A stopwatch that goes on from where the processes before this one had come."""

    def __init__(self, before_ms: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._before_ms = before_ms
        self._clock = clock
        self._began = clock()
        self._stopped: float | None = None

    @property
    def milliseconds(self) -> int:
        """Up to now, or to when it was stopped."""
        until = self._clock() if self._stopped is None else self._stopped
        return self._before_ms + round((until - self._began) * 1_000)

    def stop(self) -> None:
        """The turn is parked or has ended; repeated, the first time counts."""
        if self._stopped is None:
            self._stopped = self._clock()
