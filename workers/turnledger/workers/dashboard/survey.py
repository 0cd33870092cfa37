"""Counts the turns by state in the background, so that an open page costs the same whatever waits.

Redis keeps no index by state, on purpose: each would be one more thing to keep right. So one thread a process looks at
every turn on its way, step by step, and rests between the steps and after the last: it works about a tenth of the time,
however many turns there are and whoever watches.
"""

import threading
import time
from dataclasses import dataclass

from turnledger.checkpoint.records import Records
from turnledger.store import TurnledgerError
from turnledger.store.logs import get_logger
from turnledger.workers.cli.counting import Survey, survey_turns

log = get_logger(__name__)

MOST_NAMED = 25  # of a kind on the page; the number tells of the rest
_STEP_PAUSE_S = 0.03  # a step takes half as long, and a page that is asked for meanwhile does not wait for the next
_REST = 3.0


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The last count, and when it ended, by this process' own clock."""

    survey: Survey
    at: float


class Surveyor:
    """Keeps the last count. Thread-safe."""

    def __init__(self, records: Records, *, pause_s: float) -> None:
        self._records = records
        self._pause_s = pause_s
        self._last: Surveyed | None = None
        self._changed = threading.Event()

    @property
    def last(self) -> Surveyed:
        """The last count; one with nothing in it before the first has ended."""
        return self._last or Surveyed(Survey({}, {"rejected": (), "blocked": (), "replaced": ()}), time.monotonic())

    def look(self) -> None:
        """Count now.

        Raises:
            CheckpointUnavailable: Redis cannot be asked; the last count stays.
        """
        self._last = Surveyed(survey_turns(self._records, most_named=MOST_NAMED, between=_pause), time.monotonic())

    def look_soon(self) -> None:
        """Something was changed: do not wait for the end of the pause."""
        self._changed.set()

    def start(self) -> None:
        """Count again and again, until the process ends."""
        threading.Thread(target=self._run, name="survey", daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self.look()
            except TurnledgerError as error:
                log.info("survey_missed", reason=str(error))
            self._changed.wait(max(self._pause_s, _REST * (time.monotonic() - began)))
            self._changed.clear()


def _pause() -> None:
    time.sleep(_STEP_PAUSE_S)
