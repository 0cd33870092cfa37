"""What Redis holds of turns, as plain text and many at a time; nothing is decoded and nothing is written.

Reading goes in pipelines, so that other clients are served in between. What is read may have changed before it is
acted upon: whoever writes has the record checked again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import Keys
from turnledger.store import InvalidInput
from turnledger.store.identity import check_turn_id

FIELDS = (
    "format", "state", "owner", "revision", "epoch", "lease_until", "touched_at", "started_at", "ledger", "work_key",
    "recorded", "entry_id", "cursor", "replaced_by", "delivery", "blocked", "completed_at", "completion_no",
    "kept_steps", "code", "failure_id", "failure", "first",
)  # fmt: skip
log = structlog.get_logger(__name__)

_LISTS = ("pending", "rejected", "open")
_STEPS = ":steps"
LIST_PART = 1_000  # ids of a list read at once: about 40 KB, well under a millisecond


@dataclass(frozen=True, slots=True)
class Sighting:
    """One turn as Redis has it at `now_ms`, by its own clock.

    `kind` is the type of the record's key, '' without a record. `fields` are '' where they are absent. `ledger` is the
    encoded name of the ledger, from the record or from the list in which the turn was found; '' when neither says it.
    `pending` counts how often it stands in its ledger's list. `entry_bytes` and `steps` are read of committed turns.
    """

    turn_id: str
    now_ms: int
    kind: str
    fields: Mapping[str, str]
    ledger: str
    quarantined: bool = False
    open: bool = False
    indexed: bool = False
    in_backlog: bool = False
    pending: int = 0
    rejected: bool = False
    job: str = ""
    entry_bytes: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Lists:
    """The turns in some ledgers' lists."""

    pending: dict[str, Counter[str]] = field(default_factory=dict)
    rejected: dict[str, frozenset[str]] = field(default_factory=dict)


class Sightings:
    """Reads turns from one Redis, best through a client to which bytes that are no text are no error."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def scan_turns(self, *, page: int) -> Iterator[list[str]]:
        """The ids of all turns with a record, page by page; one that is there throughout is seen at least once."""
        prefix = self._keys.turn_prefix
        for keys in self._scan(f"{prefix}*", page=page):
            found = {key.removeprefix(prefix) for key in keys if not key.endswith(_STEPS)}
            yield sorted(filter(_is_turn_id, found))

    def scan_unrecorded(self, *, page: int) -> Iterator[dict[str, str]]:
        """Turns that a list or index names although they have no record: turn_id -> encoded ledger, or ''."""
        prefix = self._keys.ledger_prefix
        for keys in self._scan(f"{prefix}*", page=page):
            for key in keys:
                ledger, _, kind = key.removeprefix(prefix).rpartition(":")
                if kind in _LISTS:
                    yield from self._without_record(self._members(key, kind, page=page), ledger=ledger)
        for index in (self._keys.turns, self._keys.backlog):
            yield from self._without_record(self._indexed(index, page=page), ledger="")

    def open_turns(self, ledger: str) -> list[str]:
        """The ids in the index of a ledger's unfinished turns."""
        with translated():
            found: Any = self._redis.smembers(f"{self._keys.ledger_prefix}{ledger}:open")
        return sorted(found)

    def now_ms(self) -> int:
        """The time, by the clock of Redis."""
        with translated():
            return _milliseconds(self._redis.time())

    def read(self, turn_ids: Sequence[str], *, ledgers: Mapping[str, str]) -> list[Sighting]:
        """These turns, in order; `ledgers` names by turn_id the ledger of those without a readable record."""
        now_ms, found = self._records(turn_ids)
        seen = [
            Sighting(turn_id, now_ms, kind, fields, fields.get("ledger") or ledgers.get(turn_id, ""))
            for turn_id, (kind, fields) in zip(turn_ids, found, strict=True)
        ]
        lists = self._lists({sighting.ledger for sighting in seen if sighting.ledger})
        return self._places(seen, lists)

    def _scan(self, pattern: str, *, page: int) -> Iterator[list[str]]:
        cursor = 0
        while True:
            with translated():
                answer: Any = self._redis.scan(cursor, match=pattern, count=page)
            cursor, keys = answer
            if keys:
                yield keys
            if not cursor:
                return

    def _members(self, key: str, kind: str, *, page: int) -> Iterator[list[str]]:
        first = 0
        while True:
            with translated(), self._redis.pipeline(transaction=False) as pipeline:
                pipeline.smembers(key) if kind == "open" else pipeline.lrange(key, first, first + page - 1)
                (found,) = _answers(pipeline)
            if found is None:
                log.error("key_of_another_type", key=key)
            if not found:
                return
            yield list(found)
            if kind == "open":
                return
            first += page

    def _indexed(self, key: str, *, page: int) -> Iterator[list[str]]:
        cursor = 0
        while True:
            with translated():
                answer: Any = self._redis.zscan(key, cursor, count=page)
            cursor, pairs = answer
            yield [member for member, _ in pairs]
            if not cursor:
                return

    def _without_record(self, pages: Iterable[list[str]], *, ledger: str) -> Iterator[dict[str, str]]:
        for turn_ids in pages:
            with translated(), self._redis.pipeline(transaction=False) as pipeline:
                for turn_id in turn_ids:
                    pipeline.exists(self._keys.record(turn_id))
                missing = [each for each, there in zip(turn_ids, pipeline.execute(), strict=True) if not there]
            if missing:
                yield dict.fromkeys(missing, ledger)

    def _records(self, turn_ids: Sequence[str]) -> tuple[int, list[tuple[str, dict[str, str]]]]:
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            for turn_id in turn_ids:
                pipeline.hmget(self._keys.record(turn_id), FIELDS)
            time, *rows = _answers(pipeline)
        kinds = self._kinds([turn_id for turn_id, row in zip(turn_ids, rows, strict=True) if _is_nothing(row)])
        return _milliseconds(time), [
            (kinds.get(turn_id, "hash"), {} if _is_nothing(row) else _named(row))
            for turn_id, row in zip(turn_ids, rows, strict=True)
        ]

    def _kinds(self, turn_ids: Sequence[str]) -> dict[str, str]:
        """The types of keys that hold none of our fields."""
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                pipeline.type(self._keys.record(turn_id))
            kinds = pipeline.execute() if turn_ids else []
        return {turn_id: "" if kind == "none" else kind for turn_id, kind in zip(turn_ids, kinds, strict=True)}

    def _lists(self, ledgers: Iterable[str]) -> _Lists:
        names = sorted(ledgers)
        pending = self._whole_lists([f"{self._keys.ledger_prefix}{ledger}:pending" for ledger in names])
        rejected = self._whole_lists([f"{self._keys.ledger_prefix}{ledger}:rejected" for ledger in names])
        return _Lists(
            pending=dict(zip(names, pending, strict=True)),
            rejected={name: frozenset(found) for name, found in zip(names, rejected, strict=True)},
        )

    def _whole_lists(self, keys: Sequence[str]) -> list[Counter[str]]:
        """How often each id stands in each list. A long list is read in parts, so that nobody waits for all of it."""
        found: list[Counter[str]] = [Counter() for _ in keys]
        unread, first = list(range(len(keys))), 0
        while unread:
            with translated(), self._redis.pipeline(transaction=False) as pipeline:
                for index in unread:
                    pipeline.lrange(keys[index], first, first + LIST_PART - 1)
                parts = pipeline.execute()
            for index, part in zip(unread, parts, strict=True):
                found[index].update(part)
            unread = [index for index, part in zip(unread, parts, strict=True) if len(part) == LIST_PART]
            first += LIST_PART
        return found

    def _places(self, seen: Sequence[Sighting], lists: _Lists) -> list[Sighting]:
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for sighting in seen:
                self._ask_places(pipeline, sighting)
            rows = pipeline.execute() if seen else []
        width = len(rows) // len(seen) if seen else 1
        return [
            _placed(sighting, rows[first : first + width], lists)
            for sighting, first in zip(seen, range(0, len(rows), width), strict=True)
        ]

    def _ask_places(self, pipeline: Pipeline, sighting: Sighting) -> None:
        turn_id, keys = sighting.turn_id, self._keys
        pipeline.sismember(f"{keys.ledger_prefix}{sighting.ledger}:open", turn_id)
        pipeline.zscore(keys.turns, turn_id)
        pipeline.zscore(keys.backlog, turn_id)
        pipeline.hget(keys.job(turn_id), "status")
        pipeline.exists(keys.quarantine(turn_id))
        pipeline.hstrlen(keys.record(turn_id), "entry") if sighting.kind == "hash" else pipeline.echo("0")
        pipeline.llen(keys.steps(turn_id)) if sighting.kind == "hash" else pipeline.echo("0")


def _placed(sighting: Sighting, row: Sequence[Any], lists: _Lists) -> Sighting:
    is_open, indexed, in_backlog, job, quarantined, entry_bytes, steps = row
    return Sighting(
        turn_id=sighting.turn_id,
        now_ms=sighting.now_ms,
        kind=sighting.kind,
        fields=sighting.fields,
        ledger=sighting.ledger,
        quarantined=bool(quarantined),
        open=bool(is_open),
        indexed=indexed is not None,
        in_backlog=in_backlog is not None,
        pending=lists.pending.get(sighting.ledger, Counter())[sighting.turn_id],
        rejected=sighting.turn_id in lists.rejected.get(sighting.ledger, frozenset()),
        job=job or "",
        entry_bytes=int(entry_bytes),
        steps=int(steps),
    )


def _answers(pipeline: Pipeline) -> list[Any]:
    """Answers in order; a key of another type answers None, any other trouble is raised."""
    answers = pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception) and not _is_wrong_type(answer):
            raise answer
    return [None if isinstance(answer, Exception) else answer for answer in answers]


def _is_wrong_type(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


def _is_nothing(row: Sequence[str | None] | None) -> bool:
    return row is None or not any(value is not None for value in row)


def _named(row: Sequence[str | None]) -> dict[str, str]:
    return {name: value or "" for name, value in zip(FIELDS, row, strict=True)}


def _milliseconds(time: tuple[int, int]) -> int:
    return time[0] * 1000 + time[1] // 1000


def _is_turn_id(text: str) -> bool:
    try:
        check_turn_id(text)
    except InvalidInput:
        return False
    return True
