"""What the model calls of committed turns cost in the last day, by model.

Figures for whoever watches, kept like those of `tally`: no decision rests on them, and a look costs the same whatever
was committed. Steps say what they cost; those that name no model are added up under `unknown`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.scripting import load_script
from turnledger.store import TurnledgerError
from turnledger.store.logs import get_logger
from turnledger.store.steps import stated_usage

log = get_logger(__name__)

HOURS = 24
KEPT_MS = (HOURS + 1) * 3_600_000  # a little longer than is shown
MOST_MODELS = 50  # an hour; a name made anew for every call must not fill Redis
LONGEST_NAME = 100  # characters of a model's name
UNKNOWN = "unknown"
_KINDS = ("calls", "input", "output", "cached")

Counts = Mapping[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls of one model, and their tokens as the steps state them; input includes what was cached."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class UsageTally:
    """The usage that one Redis knows of. Thread-safe."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = redis
        self._prefix = f"{keys.prefix}:usage:"
        self._script = load_script(redis, "usage")

    def note(self, wire_steps: Iterable[str]) -> None:
        """These steps were committed just now. Raises nothing: the commit has succeeded, whatever becomes of this."""
        spent = _added_up(wire_steps)
        if not spent:
            return
        try:
            with translated():
                self._script(keys=[], args=[self._prefix, KEPT_MS, MOST_MODELS, *_arguments(spent)])
        except TurnledgerError as error:
            log.info("usage_missed", models=len(spent), reason=str(error))

    def last_day(self) -> list[Spent]:
        """The last 24 hours, the one that runs included; the costliest model first. Two round trips.

        Raises:
            CheckpointUnavailable: Redis cannot be asked.
        """
        with translated():
            newest = int(self._redis.time()[0]) // 3_600
            with self._redis.pipeline(transaction=False) as pipeline:
                for hour in range(newest - HOURS + 1, newest + 1):
                    pipeline.hgetall(f"{self._prefix}{hour}")
                hours: list[Any] = pipeline.execute()
        return sorted(_together(hours), key=lambda each: (-each.input_tokens - each.output_tokens, each.model))


def _added_up(wire_steps: Iterable[str]) -> Counts:
    spent: dict[str, Counter[str]] = defaultdict(Counter)
    for model, usage in filter(None, map(stated_usage, wire_steps)):
        spent[_shown(model or UNKNOWN)].update(
            calls=1, input=usage.input_tokens, output=usage.output_tokens, cached=usage.cached_tokens
        )
    return spent


def _shown(model: str) -> str:
    """A name that Redis can be sent, whatever stands in it."""
    return model[:LONGEST_NAME].encode("utf-8", "replace").decode("utf-8")


def _arguments(spent: Counts) -> Iterator[str | int]:
    for model, counts in spent.items():
        yield model
        yield from (counts[kind] for kind in _KINDS)


def _together(hours: Iterable[Mapping[str, str]]) -> Iterator[Spent]:
    spent: dict[str, Counter[str]] = defaultdict(Counter)
    for hour in hours:
        for field, number in hour.items():
            kind, _, model = field.partition(":")
            spent[model][kind] += int(number)
    for model, counts in spent.items():
        yield Spent(model, *(counts[kind] for kind in _KINDS))
