"""How many turns were committed in each minute of the last hour, and how long they had been pending.

Figures for whoever watches, and nothing else: no decision rests on them. They are kept in Redis, a small hash a minute,
so that a look costs the same whatever was committed; Postgres would have to count rows. Where a process dies between a
commit and its tally, or Redis was away, turns are missing here, and here alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.scripting import load_script
from turnledger.store import TurnledgerError
from turnledger.store.logs import get_logger

log = get_logger(__name__)

MINUTES = 60
KEPT_MS = (MINUTES + 5) * 60_000  # a little longer than is shown
_STEPS_A_DOUBLING = 2  # a wait is known to within a fifth, in a few fields a minute


@dataclass(frozen=True, slots=True)
class Minute:
    """What was committed in one minute: `number` counts minutes since 1970, waits are seconds, None without turns."""

    number: int
    turns: int
    median_wait_s: float | None
    long_wait_s: float | None


class Tally:
    """The tallies of one Redis. Thread-safe."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = redis
        self._prefix = f"{keys.prefix}:tally:"
        self._script = load_script(redis, "tally")

    def note(self, completed_at_ms: Sequence[int]) -> None:
        """These turns were committed just now. Raises nothing: the commit has succeeded, whatever becomes of this."""
        try:
            with translated():
                self._script(keys=[], args=[self._prefix, KEPT_MS, *completed_at_ms])
        except TurnledgerError as error:
            log.info("tally_missed", turns=len(completed_at_ms), reason=str(error))

    def last_hour(self) -> list[Minute]:
        """The last 60 minutes, oldest first; the last of them is not over yet. Two round trips.

        Raises:
            CheckpointUnavailable: Redis cannot be asked.
        """
        with translated():
            seconds = int(self._redis.time()[0])
            newest = seconds // 60
            numbers = range(newest - MINUTES + 1, newest + 1)
            with self._redis.pipeline(transaction=False) as pipeline:
                for number in numbers:
                    pipeline.hgetall(f"{self._prefix}{number}")
                found: list[Any] = pipeline.execute()
        return [_minute(number, fields) for number, fields in zip(numbers, found, strict=True)]


def _minute(number: int, fields: Mapping[str, str]) -> Minute:
    waits = sorted((int(name[1:]), int(count)) for name, count in fields.items() if name.startswith("w"))
    return Minute(number, int(fields.get("turns", 0)), _quantile(waits, share=0.5), _quantile(waits, share=0.95))


def _quantile(waits: Sequence[tuple[int, int]], *, share: float) -> float | None:
    """The wait in seconds that this share of the turns did not exceed."""
    left = share * sum(count for _, count in waits)
    for step, count in waits:
        left -= count
        if left <= 0:
            return float(2 ** (step / _STEPS_A_DOUBLING)) / 1_000
    return None
