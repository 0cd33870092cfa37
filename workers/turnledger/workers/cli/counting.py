"""How many turns there are of each kind, counted in Redis in bounded steps."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.record import UNFINISHED
from turnledger.checkpoint.records import Records

READ_AT_ONCE = 500  # turns a step: Redis answers it in about a millisecond, and serves others before the next
NAMED = 10  # turns that are named; the number tells of the rest
MARKED = ("rejected", "blocked", "replaced")
_FIELDS = ("state", "blocked", "replaced_by")
_NOTHING: list[str | None] = [None] * len(_FIELDS)

Marked = tuple[str, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Counted:
    """Turns that have not ended, by the state of their record; of the unfinished also those that bear a mark.

    Of the blocked and the rejected the first ten that were met are named.
    """

    running: int
    parked: int
    blocked: int
    blocked_turns: tuple[str, ...]
    replaced: int
    rejected: int
    rejected_turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """Turns by the state of their record or the mark that it bears, and the first of each marked kind that were met."""

    counts: Mapping[str, int]
    named: Mapping[str, tuple[str, ...]]


def count_turns(records: Records) -> Counted:
    """Look at every turn in the index of turns that have not ended. Costs what `survey_turns` costs."""
    return counted(survey_turns(records, most_named=NAMED))


def survey_turns(records: Records, *, most_named: int, between: Callable[[], None] = lambda: None) -> Survey:
    """Look at every turn in the index of turns that have not ended, 500 at a time; memory stays the same.

    The cost grows with the turns on their way, not with those that have ended: some 10 ms a thousand. It is no
    snapshot: a turn that changes meanwhile counts as it was or as it is. A turn that the index lacks is counted
    once a sweep of the reconciler has put it back. `between` is called after each step.
    """
    counts: Counter[str] = Counter()
    named: dict[str, dict[str, None]] = {kind: {} for kind in MARKED}
    for turn_id, state, blocked, replaced_by in _turns(records, between):
        found = [state or ""]
        if state in UNFINISHED:
            found += ["blocked"] * bool(blocked) + ["replaced"] * bool(replaced_by)
        counts.update(found)
        for kind in named.keys() & set(found):
            if len(named[kind]) < most_named:
                named[kind][turn_id] = None
    return Survey(counts, {kind: tuple(turn_ids) for kind, turn_ids in named.items()})


def counted(survey: Survey) -> Counted:
    """The same as `turnledger status` tells it."""
    return Counted(
        **{name: survey.counts.get(name, 0) for name in ("running", "parked", "blocked", "replaced", "rejected")},
        blocked_turns=survey.named["blocked"][:NAMED],
        rejected_turns=survey.named["rejected"][:NAMED],
    )


def _turns(records: Records, between: Callable[[], None]) -> Iterator[Marked]:
    cursor = 0
    while True:
        with translated():
            answer: Any = records.redis.zscan(records.keys.turns, cursor, count=READ_AT_ONCE)
        cursor, found = answer
        turn_ids = [turn_id for turn_id, _ in found]
        yield from zip(turn_ids, *_marks(records, turn_ids), strict=True)
        if not cursor:
            return
        between()


def _marks(records: Records, turn_ids: Sequence[str]) -> list[list[str | None]]:
    """Of these turns the state, the block and the replacing version: a list each. A record that is none has nothing."""
    with translated(), records.redis.pipeline(transaction=False) as pipeline:
        for turn_id in turn_ids:
            pipeline.hmget(records.keys.record(turn_id), _FIELDS)
        answers = pipeline.execute(raise_on_error=False) if turn_ids else []
    rows = [_NOTHING if isinstance(answer, ResponseError) else answer for answer in answers]
    return [[row[place] for row in rows] for place in range(len(_FIELDS))]
