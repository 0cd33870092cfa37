"""What must hold: of one store, of both together, of what the engine was told, and in the end.

`Memory` is what the stores do not say: which turns an engine was told are complete, who was superseded, who died.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.execution import Report, Stores
from tests.model.postgres_model import StoredEvent, Tables
from tests.model.recovery import Recovery
from tests.model.view import KEYS, ON_ITS_WAY, RedisFacts, named_steps, outcome, replayed
from tests.model.violation import Violation
from turnledger.store.settings import StoreSettings

DECIDED = ("completed", "duplicate")
TERMINALS = {"completed": "turn_completed", "duplicate": "turn_duplicate", "failed": "turn_failed",
             "abandoned": "turn_failed"}  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """What was promised on this path.

    `told`: (actor, turn, epoch) of turns that an engine was told are complete. `lost`: those of them whose
    completion a failover took back. `superseded`: (actor, turn) whose turn another has taken over since.
    """

    told: frozenset[tuple[str, str, int]] = frozenset()
    lost: frozenset[str] = frozenset()
    spooled: frozenset[str] = frozenset()
    holders: frozenset[tuple[str, str]] = frozenset()
    superseded: frozenset[tuple[str, str]] = frozenset()
    known_at_start: frozenset[tuple[str, str]] = frozenset()
    dead: frozenset[str] = frozenset()
    failed_over: bool = False

    def with_dead(self, actor: str) -> "Memory":
        """After this actor died."""
        return replace(self, dead=self.dead | {actor})

    def turns_told(self) -> set[str]:
        """The turns that some engine takes for complete."""
        return {turn_id for _, turn_id, _ in self.told}


@dataclass(frozen=True)
class Invariants:
    """Every promise that is checked. `recovery` does what workers and clock do once nothing goes wrong any more."""

    recovery: Recovery
    most_entries: int = field(default_factory=lambda: StoreSettings(database_url="postgresql://model/model").max_entries)

    def memory(self) -> Memory:
        """Before anything happened."""
        return Memory()

    def observe(self, memory: Memory, report: Report, *, actor: str, redis: RedisFacts, tables: Tables) -> Memory:
        """Check what an operation reports, and remember it."""
        del redis
        match report.what:
            case "begins" if report.turn_id == "start":
                known = {(actor, turn_id) for turn_id in memory.turns_told() - memory.lost}
                return replace(memory, known_at_start=frozenset(known))
            case "started":
                _check_block(memory, report, actor=actor, tables=tables)
                return _held(replace(memory, known_at_start=frozenset()), actor=actor, turn_id=report.turn_id)
            case "resumed":
                _check_bootstrap(report)
                return _held(memory, actor=actor, turn_id=report.turn_id)
            case "completed":
                return _completed(memory, report, actor=actor)
            case "spooled":
                return replace(memory, spooled=memory.spooled | {report.turn_id})
            case "saved" | "parked" | "replaced history after":
                _refuse_superseded(memory, report, actor=actor)
        return memory

    def after_failover(self, memory: Memory, *, redis: RedisFacts, tables: Tables) -> Memory:
        """Remember what an engine was told and Redis has forgotten."""
        lost = {turn_id for turn_id in memory.turns_told() if not _is_safe(turn_id, memory, redis, tables)}
        return replace(memory, failed_over=True, lost=memory.lost | lost)

    def check_redis(self, redis: RedisFacts) -> None:
        """CK-3, QU-1: expiry, indexes and states agree."""
        for turn_id, fields in redis.records.items():
            _check_expiry(redis, turn_id, state=fields["state"])
            _check_places(redis, turn_id, fields)

    def check_tables(self, tables: Tables) -> None:
        """EV-4, EN-11, EV-6, EV-13, HV-4, HV-6: numbers, terminals, entries, replay."""
        for row in tables.ledgers:
            events = [event for event in tables.events if event.ledger_id == row.ledger_id]
            _equal("seq", [event.seq for event in events], list(range(row.next_seq)))
            ordinals = [json.loads(event.payload)["ordinal"] for event in events if event.type == "turn_completed"]
            _equal("ordinals", ordinals, list(range(1, row.turn_count + 1)))
        for run in tables.runs:
            ended = [event.type for event in tables.events if event.idempotency_key == f"ended:{run.turn_id}"]
            _equal(f"terminals of {run.turn_id}", ended, [TERMINALS[run.outcome]] if run.outcome in TERMINALS else [])
        _check_replay(tables)
        _check_no_bootstrap(tables.events)

    def check_both(self, memory: Memory, *, redis: RedisFacts, tables: Tables) -> None:
        """What an engine was told is complete is committed, pending, rejected or on a node's disk."""
        for turn_id in memory.turns_told() - memory.lost:
            if not _is_safe(turn_id, memory, redis, tables):
                raise Violation(f"turn {turn_id} is complete for its engine, and neither pending nor committed")
        for turn_id, fields in redis.records.items():
            if fields["state"] == "committed" and outcome(tables, turn_id) not in (*DECIDED, "failed"):
                raise Violation(f"the record of turn {turn_id} is committed, Postgres does not have it (RC-9)")
            if fields["state"] == "completed" and not memory.failed_over and turn_id not in redis.jobs:
                raise Violation(f"turn {turn_id} is pending and its job is over: no worker will look at it (QU-1)")

    def check_end(self, memory: Memory, stores: Stores, *, helpers: str) -> None:
        """Once workers, and after a mishap the clock, have done what there is: every completed turn is history."""
        self.recovery.run(stores, helpers=helpers)
        redis, tables = RedisFacts.of(stores.redis), stores.tables
        self.check_redis(redis)
        self.check_tables(tables)
        self.check_both(memory, redis=redis, tables=tables)
        if redis.pending:
            raise Violation(f"turns {redis.pending} stay pending for ever: {helpers} find nothing to do")
        for told in memory.told:
            _check_history(memory, told, redis=redis, tables=tables)


def _held(memory: Memory, *, actor: str, turn_id: str) -> Memory:
    before = {(other, held) for other, held in memory.holders if held == turn_id and other != actor}
    return replace(
        memory,
        holders=(memory.holders - before) | {(actor, turn_id)},
        superseded=(memory.superseded | before) - {(actor, turn_id)},
    )


def _completed(memory: Memory, report: Report, *, actor: str) -> Memory:
    how, epoch = report.detail
    told = memory.told | {(actor, report.turn_id, epoch)}
    if how == "spooled":
        return replace(memory, told=told, spooled=memory.spooled | {report.turn_id})
    _refuse_superseded(memory, report, actor=actor)
    return replace(memory, told=told, lost=memory.lost - {report.turn_id})


def _refuse_superseded(memory: Memory, report: Report, *, actor: str) -> None:
    if (actor, report.turn_id) in memory.superseded:
        raise Violation(f"{actor} was superseded on turn {report.turn_id}, and yet it {report.what} it (CK-2)")


def _check_block(memory: Memory, report: Report, *, actor: str, tables: Tables) -> None:
    """Where Redis could not be asked, the turn says so, and need not know of what is pending (FL-2)."""
    if report.detail is None:
        return
    for name, turn_id in memory.known_at_start:
        shown = f"(turn {turn_id})" in report.detail or outcome(tables, turn_id) == "duplicate"
        if name == actor and not shown and turn_id not in memory.lost:
            raise Violation(f"turn {report.turn_id} began after turn {turn_id} was complete, and does not see it (ST-1)")


def _check_bootstrap(report: Report) -> None:
    bootstrap, version = report.detail
    if bootstrap not in ("null", json.dumps({"bootstrap": version})):
        raise Violation(f"turn {report.turn_id} got {bootstrap} back at history version {version} (HV-6)")


def _is_safe(turn_id: str, memory: Memory, redis: RedisFacts, tables: Tables) -> bool:
    if outcome(tables, turn_id) in (*DECIDED, "failed") or turn_id in memory.spooled:
        return True
    state = redis.state(turn_id)
    if state == "rejected":
        return turn_id in redis.rejected
    return state == "completed" and turn_id in redis.pending


def _check_history(memory: Memory, told: tuple[str, str, int], *, redis: RedisFacts, tables: Tables) -> None:
    actor, turn_id, epoch = told
    if outcome(tables, turn_id) in (*DECIDED, "failed") or turn_id in memory.spooled:
        return
    run = tables.run(turn_id)
    taken_over = run is not None and run.epoch > epoch
    gone = turn_id in memory.lost and (actor in memory.dead or taken_over)
    kept = turn_id in redis.rejected and memory.failed_over and taken_over
    if not gone and not kept:
        where = "rejected" if turn_id in redis.rejected else "nowhere"
        raise Violation(f"turn {turn_id} is complete for {actor}, and in the end it is {where}")


def _check_expiry(redis: RedisFacts, turn_id: str, *, state: str) -> None:
    record = redis.expiry[KEYS.record(turn_id)]
    steps = redis.expiry.get(KEYS.steps(turn_id), record)
    if state in ON_ITS_WAY and (record is not None or steps is not None):
        raise Violation(f"turn {turn_id} is {state} and would expire (CK-3)")
    if state not in ON_ITS_WAY and record is None:
        raise Violation(f"turn {turn_id} is {state} and would never expire (CK-3)")
    if record != steps:
        raise Violation(f"record and steps of turn {turn_id} would expire apart (CK-3)")


def _check_places(redis: RedisFacts, turn_id: str, fields: Mapping[str, str]) -> None:
    state = fields["state"]
    _equal(f"turn {turn_id}, {state}: places in pending", redis.pending.count(turn_id), int(state == "completed"))
    _equal(f"turn {turn_id}, {state}: places in rejected", redis.rejected.count(turn_id), int(state == "rejected"))
    unfinished = state in ("running", "parked")
    _equal(f"turn {turn_id}, {state}: in open", turn_id in redis.open, unfinished)
    if not unfinished and fields.get("bootstrap"):
        raise Violation(f"turn {turn_id} is {state} and still has its bootstrap (HV-6)")


def _check_replay(tables: Tables) -> None:
    """HV-4: every step of every committed turn once, in order; beside them only what a replacement stands for."""
    found = replayed(tables)
    names = [name for name, _ in found]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise Violation(f"the replay has {doubled} more than once: {names} (HV-4)")
    wanted: set[str] = set()
    for entry in tables.entries:
        own = named_steps(entry.entry)
        wanted |= set(own)
        _equal(f"steps of committed turn {entry.turn_id} in the replay", [n for n in names if n in set(own)], own)
    stray = [name for name, replaced in found if name not in wanted and not replaced]
    if stray:
        raise Violation(f"the replay has {stray}, which no committed turn has: {names} (HV-4)")


def _check_no_bootstrap(events: tuple[StoredEvent, ...]) -> None:
    if any("bootstrap" in f"{event.payload}{event.content}" for event in events):
        raise Violation("a bootstrap is in the log (HV-6)")


def _equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Violation(f"{what}: {found}, not {expected}")
