"""Both stores in a few lines, for invariants and for people."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.model.postgres_model import Result, StoredEvent, Tables, run_select
from tests.model.product import LEDGER
from tests.model.redis_model import Frozen
from turnledger.checkpoint.keys import Keys
from turnledger.store.history import replay
from turnledger.store.ledger import Head

KEYS = Keys("{turnledger}", "rq", "commits")
ON_ITS_WAY = ("completed", "rejected")


class Ledgers:
    """A connection that only selects, for the product's own reading of history."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def execute(self, query: Any) -> Any:
        columns, rows = run_select(self._tables, query)
        return Result(columns, rows)


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What a Redis says of the one ledger: every record by turn_id, the ledger's lists, which keys there are."""

    records: Mapping[str, Mapping[str, str]]
    steps: Mapping[str, tuple[str, ...]]
    pending: tuple[str, ...]
    rejected: tuple[str, ...]
    open: tuple[str, ...]
    queue: tuple[str, ...]
    jobs: frozenset[str]
    expiry: Mapping[str, int | None]

    @classmethod
    def of(cls, frozen: Frozen) -> "RedisFacts":
        """The facts of this Redis."""
        records = {key: value for key, (kind, value, _) in frozen.items() if kind == "hash" and _is_turn(key)}
        steps = {key: value for key, (kind, value, _) in frozen.items() if kind == "list" and _is_turn(key)}
        prefix = KEYS.job_prefix + "turn-"
        return cls(
            records={key.removeprefix(KEYS.turn_prefix): dict(value) for key, value in records.items()},
            steps={key.split(":")[2]: value for key, value in steps.items()},
            pending=_members(frozen, KEYS.pending(LEDGER)),
            rejected=_members(frozen, KEYS.rejected(LEDGER)),
            open=_members(frozen, KEYS.open(LEDGER)),
            queue=_members(frozen, KEYS.queue),
            jobs=frozenset(key.removeprefix(prefix) for key in frozen if key.startswith(prefix)),
            expiry={key: expires for key, (_, _, expires) in frozen.items()},
        )

    def state(self, turn_id: str) -> str | None:
        """The state of a turn's record."""
        fields = self.records.get(turn_id)
        return None if fields is None else fields["state"]


def _members(frozen: Frozen, key: str) -> tuple[str, ...]:
    return tuple(frozen[key][1]) if key in frozen else ()


def _is_turn(key: str) -> bool:
    return key.startswith(KEYS.turn_prefix)


def outcome(tables: Tables, turn_id: str) -> str | None:
    """How a run ended, as Postgres has it."""
    run = tables.run(turn_id)
    return None if run is None else run.outcome


def head(tables: Tables) -> Head | None:
    """Where the one ledger stands."""
    return next((Head(row.ledger_id, *row[3:]) for row in tables.ledgers), None)


def replayed(tables: Tables) -> list[tuple[str, bool]]:
    """The names of the steps in the ledger's model history, each with whether a replacement stands for it."""
    found = head(tables)
    steps = [] if found is None else replay(Ledgers(tables), found)  # type: ignore[arg-type]  # it only selects
    return [(name, isinstance(step.value, dict)) for step in steps for name in _names(step.value)]


def _names(content: Any) -> list[str]:
    return list(content["stands_for"]) if isinstance(content, dict) else [str(content)]


def named_steps(entry: str) -> list[str]:
    """The names of a turn's steps, as its engine knew them when it completed the turn."""
    return str(json.loads(entry).get("set_out_to", "")).split()


def described(redis: Frozen, tables: Tables) -> list[str]:
    """What matters of a state to somebody who follows a path, a line for each thing that may change."""
    facts = RedisFacts.of(redis)
    lines = [_record(turn_id, fields, facts) for turn_id, fields in sorted(facts.records.items())]
    lists = (("pending", facts.pending), ("rejected", facts.rejected), ("queue", facts.queue))
    lines += [f"Redis: {name} {' '.join(found) or 'is empty'}" for name, found in lists]
    runs = [
        f"Postgres: run {run.turn_id}: epoch {run.epoch}, {run.outcome or 'open'}, steps written {run.steps_written}"
        for run in tables.runs
    ]
    return [*lines, *runs, f"Postgres: log {' '.join(_events(tables.events)) or 'is empty'}"]


def _record(turn_id: str, fields: Mapping[str, str], facts: RedisFacts) -> str:
    steps = [json.loads(step.split("\n", 2)[2]) for step in facts.steps.get(turn_id, ())]
    owner = owner_name(fields["owner"])
    words = [f"Redis: turn {turn_id} {fields['state']}, owner {owner}, steps {steps}"]
    words += [f"{name} {fields[name]}" for name in ("revision", "epoch")]
    names = ("covered", "replaced_by", "blocked", "delivery", "superseded_by", "bootstrap", "refusal")
    words += [f"{name} {fields[name]}" for name in names if fields.get(name)]
    return ", ".join(words)


def owner_name(token: str) -> str:
    """An owner token of the model as the number of its actor and of that actor's operation."""
    number = f"{int(token, 16):06d}"
    return f"{int(number[:-5])}.{int(number[-5:-3])}"


def _events(events: Iterable[StoredEvent]) -> list[str]:
    return [f"{event.type}({_subject(event)})v{event.history_version}" for event in events if event.type != "message"]


def _subject(event: StoredEvent) -> str:
    return event.content if event.type == "agent_step" and event.content else str(event.turn_id)
