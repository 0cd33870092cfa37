"""What must hold: of one store, of both together, of what the engine was told, and in the end.

`Memory` is what the stores do not say: which turns an engine was told are complete, who was superseded, who died.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.model.execution import Report
from tests.model.postgres_model import StoredEvent, Tables
from tests.model.view import KEYS, ON_ITS_WAY, RedisFacts, named_steps, outcome, owner_name, replayed
from tests.model.violation import Violation

DECIDED = ("completed", "duplicate")
TERMINALS = {"completed": "turn_completed", "duplicate": "turn_duplicate", "failed": "turn_failed",
             "abandoned": "turn_failed"}  # fmt: skip


class Told(NamedTuple):
    """An actor was told that it has completed a turn, which it held at this epoch."""

    actor: str
    turn_id: str
    epoch: int


class Holder(NamedTuple):
    """A handle of a turn."""

    turn_id: str
    owner: str
    epoch: int


@dataclass(frozen=True)
class Memory:
    """What was promised on this path.

    `told`: what engines were told is complete. `lost`: what a failover took back of that. `holders`: the newest handles
    that were given out; `superseded`: the owners of older ones. `known_at_start`: (actor, turn) of starts under way,
    with the turns that had been completed before. `unsaved`: a start could not ask Redis.
    """

    told: frozenset[Told] = frozenset()
    lost: frozenset[Told] = frozenset()
    spooled: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()
    holders: frozenset[Holder] = frozenset()
    superseded: frozenset[str] = frozenset()
    known_at_start: frozenset[tuple[str, str]] = frozenset()
    dead: frozenset[str] = frozenset()
    failed_over: bool = False
    unsaved: bool = False

    def with_dead(self, actor: str) -> "Memory":
        """After this actor died."""
        return replace(self, dead=self.dead | {actor})

    def complete(self) -> set[str]:
        """The turns that an engine takes for complete, less those that a failover took back."""
        return {told.turn_id for told in self.told - self.lost}


class Invariants:
    """Every promise that is checked."""

    def observe(self, memory: Memory, report: Report, *, actor: str, redis: RedisFacts, tables: Tables) -> Memory:
        """Check what an operation reports, and remember it."""
        match report:
            case Report("begins", "start"):
                known = {(actor, turn_id) for turn_id in memory.complete()}
                return replace(memory, known_at_start=memory.known_at_start | known)
            case Report("started", turn_id, (owner, epoch, is_saved, block)):
                _check_block(memory, turn_id, block, actor=actor, tables=tables)
                known_to_others = frozenset(pair for pair in memory.known_at_start if pair[0] != actor)
                after = replace(memory, known_at_start=known_to_others)
                if not is_saved:
                    return replace(after, unsaved=True)
                return _held(after, Holder(turn_id, owner, epoch), redis=redis)
            case Report("resumed", turn_id, (owner, epoch, bootstrap, version)):
                _check_bootstrap(turn_id, bootstrap, version=version)
                return _held(memory, Holder(turn_id, owner, epoch), redis=redis)
            case Report("completed", turn_id, (owner, how, epoch)):
                return _completed(memory, Told(actor, turn_id, epoch), owner=owner, how=how)
            case Report("sent", turn_id):
                if turn_id in memory.sent:
                    raise Violation(f"the reply of turn {turn_id} is sent a second time (DL-2)")
                return replace(memory, sent=memory.sent | {turn_id})
            case Report("spooled", turn_id):
                return replace(memory, spooled=memory.spooled | {turn_id})
            case Report("saved" | "parked" | "replaced history after" as what, turn_id, owner):
                _refuse_superseded(memory, owner, f"{what} turn {turn_id}")
        return memory

    def after_failover(self, memory: Memory, *, redis: RedisFacts, tables: Tables) -> Memory:
        """Remember what an engine was told and Redis has forgotten."""
        lost = {told for told in memory.told if not _is_safe(told.turn_id, memory, redis, tables)}
        owners = {fields["owner"] for fields in redis.records.values()}
        return replace(memory, failed_over=True, lost=memory.lost | lost, superseded=memory.superseded - owners)

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
        for turn_id in memory.complete():
            if not _is_safe(turn_id, memory, redis, tables):
                raise Violation(f"turn {turn_id} is complete for its engine, and neither pending nor committed")
        for turn_id, fields in redis.records.items():
            if fields["state"] == "committed" and outcome(tables, turn_id) not in (*DECIDED, "failed"):
                raise Violation(f"the record of turn {turn_id} is committed, Postgres does not have it (RC-9)")
            if fields["state"] == "completed" and not memory.failed_over and turn_id not in redis.jobs:
                raise Violation(f"turn {turn_id} is pending and its job is over: no worker will look at it (QU-1)")

    def check_end(self, memory: Memory, *, redis: RedisFacts, tables: Tables) -> None:
        """Nothing is left to do: every completed turn is history."""
        if redis.pending:
            raise Violation(f"turns {redis.pending} stay pending for ever")
        for told in memory.told:
            _check_history(memory, told, redis=redis, tables=tables)


def _held(memory: Memory, holder: Holder, *, redis: RedisFacts) -> Memory:
    """A handle was given out; it supersedes those before it, unless another claim came while it was on its way."""
    of_turn = {held for held in memory.holders if held.turn_id == holder.turn_id}
    if any(held.epoch > holder.epoch for held in of_turn):
        return memory
    if redis.records.get(holder.turn_id, {}).get("owner", holder.owner) != holder.owner:
        return replace(memory, superseded=memory.superseded | {holder.owner})
    before = {held.owner for held in of_turn} - {holder.owner}
    return replace(
        memory,
        holders=(memory.holders - of_turn) | {holder},
        superseded=(memory.superseded | before) - {holder.owner},
    )


def _completed(memory: Memory, told: Told, *, owner: str, how: str) -> Memory:
    after = replace(memory, told=memory.told | {told}, lost=memory.lost - {told})
    if how == "spooled":
        return replace(after, spooled=memory.spooled | {told.turn_id})
    _refuse_superseded(memory, owner, f"completed turn {told.turn_id}")
    return after


def _refuse_superseded(memory: Memory, owner: str, what: str) -> None:
    if owner in memory.superseded:
        raise Violation(f"a holder that was superseded (owner {owner_name(owner)}) {what} (CK-2)")


def _check_block(memory: Memory, turn_id: str, block: str | None, *, actor: str, tables: Tables) -> None:
    """A turn that could not ask one of the stores says so, and need not know what is there (FL-1, FL-2)."""
    if block is None:
        return
    for name, earlier in memory.known_at_start:
        shown = f"(turn {earlier})" in block or outcome(tables, earlier) == "duplicate"
        if name == actor and earlier != turn_id and not shown and earlier in memory.complete():
            raise Violation(f"turn {turn_id} began after turn {earlier} was complete, and does not see it (ST-1)")


def _check_bootstrap(turn_id: str, bootstrap: str, *, version: int) -> None:
    if bootstrap not in ("null", json.dumps({"bootstrap": version})):
        raise Violation(f"turn {turn_id} got {bootstrap} back at history version {version} (HV-6)")


def _is_safe(turn_id: str, memory: Memory, redis: RedisFacts, tables: Tables) -> bool:
    if outcome(tables, turn_id) in (*DECIDED, "failed") or turn_id in memory.spooled:
        return True
    state = redis.state(turn_id)
    if state == "rejected":
        return turn_id in redis.rejected
    return state == "completed" and turn_id in redis.pending


def _check_history(memory: Memory, told: Told, *, redis: RedisFacts, tables: Tables) -> None:
    turn_id = told.turn_id
    if outcome(tables, turn_id) in (*DECIDED, "failed") or turn_id in memory.spooled:
        return
    run = tables.run(turn_id)
    taken_over = run is not None and run.epoch > told.epoch
    gone = told in memory.lost and (told.actor in memory.dead or taken_over)
    kept = turn_id in redis.rejected and taken_over and (memory.failed_over or memory.unsaved)
    if not gone and not kept:
        where = "rejected" if turn_id in redis.rejected else "nowhere"
        raise Violation(f"turn {turn_id} is complete for {told.actor}, and in the end it is {where}")


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
