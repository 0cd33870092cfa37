"""What Redis holds of turns, as plain text and many at a time; nothing is decoded and nothing is written.

Each turn is looked at for itself, so that other clients are served in between. What is read may have changed before it
is acted upon: whoever writes has the record checked again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.scripting import load_script
from turnledger.store import InvalidInput
from turnledger.store.identity import check_turn_id
from turnledger.store.logs import get_logger

log = get_logger(__name__)

FIELDS = (
    "format", "state", "owner", "revision", "epoch", "lease_until", "touched_at", "started_at", "ledger", "work_key",
    "recorded", "entry_id", "cursor", "replaced_by", "delivery", "blocked", "completed_at", "completion_no",
    "kept_steps", "code", "failure_id", "failure", "first",
)  # fmt: skip
LIST_PART = 1_000  # ids of a list read at once: about 40 KB, well under a millisecond
_STEPS = ":steps"
_NAMES = " ".join(FIELDS)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One turn as Redis has it at `now_ms`, by its own clock.

    `kind` is the type of the record's key, '' without a record. `fields` are '' where they are absent. `ledger` is the
    encoded name of the ledger, from the record or from the list in which the turn was found; '' when neither says it.
    `indexed` is whether it stands in the index of all turns. `pending` counts how often it stands in its ledger's list.
    `job` is the status of the job that it should have now; `waits` is whether it waits for a rewriting, its own or that
    of a turn before it.
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
    waits: bool = False


class Sightings:
    """Reads turns from one Redis, best through a client to which bytes that are no text are no error."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._sight = load_script(redis, "sight")
        self._absent = load_script(redis, "absent", helpers=())

    def scan_turns(self, *, page: int) -> Iterator[list[str]]:
        """The ids of all turns with a record, page by page; one that is there throughout is seen at least once."""
        prefix = self._keys.turn_prefix
        for keys in self._scan(f"{prefix}*", page=page):
            found = {key.removeprefix(prefix) for key in keys if not key.endswith(_STEPS)}
            yield sorted(filter(_is_turn_id, found))

    def scan_unrecorded(self, *, page: int) -> Iterator[dict[str, str]]:
        """Turns that a list or index names although they have no record: turn_id -> encoded ledger, or ''."""
        for keys in self._scan(f"{self._keys.ledger_prefix}*", page=page):
            for members in self._members(keys):
                yield from self._without_record(members, page=page)
        for index in (self._keys.turns, self._keys.backlog):
            for turn_ids in self._indexed(index, page=page):
                yield from self._without_record(dict.fromkeys(turn_ids, ""), page=page)

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
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.time()
            for turn_id in turn_ids:
                arguments = [turn_id, self._keys.ledger_prefix, ledgers.get(turn_id, ""), _NAMES]
                arguments.append(self._keys.turn_prefix)
                self._sight(keys=self._sight_keys(turn_id), args=arguments, client=pipeline)
            time, *rows = pipeline.execute()
        now_ms = _milliseconds(time)
        seen = [
            _sighting(turn_id, row, now_ms=now_ms, ledger=ledgers.get(turn_id, ""))
            for turn_id, row in zip(turn_ids, rows, strict=True)
        ]
        return self._in_lists(seen, rows)

    def _sight_keys(self, turn_id: str) -> list[str]:
        keys = self._keys
        ours = [keys.record(turn_id), keys.steps(turn_id), keys.turns, keys.backlog]
        return [*ours, keys.job(turn_id), keys.quarantine(turn_id), keys.fit_job(turn_id)]

    def _in_lists(self, seen: Sequence[Sighting], rows: Sequence[Sequence[Any]]) -> list[Sighting]:
        """With the places in those lists that hold anything."""
        lists = self._whole_lists(
            {
                f"{self._keys.ledger_prefix}{sighting.ledger}:{kind}"
                for sighting, row in zip(seen, rows, strict=True)
                for kind, length in (("pending", row[8]), ("rejected", row[9]))
                if length
            }
        )
        return [self._listed(sighting, lists) for sighting in seen] if lists else list(seen)

    def _listed(self, sighting: Sighting, lists: Mapping[str, Counter[str]]) -> Sighting:
        prefix, turn_id = f"{self._keys.ledger_prefix}{sighting.ledger}:", sighting.turn_id
        pending, rejected = lists.get(f"{prefix}pending"), lists.get(f"{prefix}rejected")
        if pending is None and rejected is None:
            return sighting
        return replace(
            sighting,
            pending=pending[turn_id] if pending else 0,
            rejected=bool(rejected and rejected[turn_id]),
        )

    def _whole_lists(self, keys: Iterable[str]) -> dict[str, Counter[str]]:
        """How often each id stands in each list. A long list is read in parts, so that nobody waits for all of it."""
        found: dict[str, Counter[str]] = {key: Counter() for key in keys}
        for key, turn_ids in self._parts(sorted(found)):
            found[key].update(turn_ids)
        return found

    def _parts(self, keys: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """The lists, each in parts; a key of another type is passed over."""
        unread, first = list(keys), 0
        while unread:
            with translated(), self._redis.pipeline(transaction=False) as pipeline:
                for key in unread:
                    pipeline.lrange(key, first, first + LIST_PART - 1)
                answers = zip(unread, pipeline.execute(raise_on_error=False), strict=True)
                parts = [(key, _checked(answer, key=key)) for key, answer in answers]
            yield from parts
            unread = [key for key, part in parts if len(part) == LIST_PART]
            first += LIST_PART

    def _members(self, keys: Sequence[str]) -> Iterator[dict[str, str]]:
        """What the lists and sets among these keys of ledgers name: turn_id -> encoded ledger."""
        named = {key: key.removeprefix(self._keys.ledger_prefix).rpartition(":") for key in keys}
        for key, turn_ids in self._parts([key for key in keys if named[key][2] in ("pending", "rejected")]):
            yield dict.fromkeys(turn_ids, named[key][0])
        opens = [key for key in keys if named[key][2] == "open"]
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for key in opens:
                pipeline.smembers(key)
            found = zip(opens, pipeline.execute(raise_on_error=False) if opens else [], strict=True)
            members = {turn_id: named[key][0] for key, ids in found for turn_id in _checked(ids, key=key)}
        yield members

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

    def _indexed(self, key: str, *, page: int) -> Iterator[list[str]]:
        cursor = 0
        while True:
            with translated():
                answer: Any = self._redis.zscan(key, cursor, count=page)
            cursor, pairs = answer
            yield [member for member, _ in pairs]
            if not cursor:
                return

    def _without_record(self, members: Mapping[str, str], *, page: int) -> Iterator[dict[str, str]]:
        turn_ids = list(members)
        for first in range(0, len(turn_ids), page):
            asked = turn_ids[first : first + page]
            with translated():
                absent = self._absent(keys=[], args=[self._keys.turn_prefix, *asked])
            if absent:
                yield {turn_id: members[turn_id] for turn_id in absent}


def _sighting(turn_id: str, row: Sequence[Any], *, now_ms: int, ledger: str) -> Sighting:
    kind, quarantined, is_open, indexed, in_backlog, job, entry_bytes, steps, _, _, values, waits = row
    fields = {name: value or "" for name, value in zip(FIELDS, values, strict=True)} if values else {}
    return Sighting(
        turn_id=turn_id,
        now_ms=now_ms,
        kind="" if kind == "none" else kind,
        fields=fields,
        ledger=fields.get("ledger") or ledger,
        quarantined=bool(quarantined),
        open=bool(is_open),
        indexed=bool(indexed),
        in_backlog=bool(in_backlog),
        job=job,
        entry_bytes=entry_bytes,
        steps=steps,
        waits=bool(waits),
    )


def _checked(answer: Any, *, key: str) -> list[str]:
    """The answer itself, nothing for a key of another type; any other trouble is raised."""
    if not isinstance(answer, Exception):
        return list(answer)
    if not isinstance(answer, ResponseError) or "WRONGTYPE" not in str(answer):
        raise answer
    log.error("key_of_another_type", key=key)
    return []


def _milliseconds(time: tuple[int, int]) -> int:
    return time[0] * 1000 + time[1] // 1000


def _is_turn_id(text: str) -> bool:
    try:
        check_turn_id(text)
    except InvalidInput:
        return False
    return True
