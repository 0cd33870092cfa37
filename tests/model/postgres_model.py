"""A Postgres small enough to be part of a state: the product's named statements over four immutable tables.

Each statement of the product's `sql` folder has one function here that does the same to these tables; the
constraints of the schema are checked as Postgres would. Selects that the product builds with SQLAlchemy are
run as they are, by SQLite. Locks belong to the machine that runs the actors, not to the tables.
"""

import json
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from sqlalchemy import Select, StaticPool, create_engine, insert
from sqlalchemy.engine import Engine

from tests.model.redis_model import NOW_S
from tests.model.violation import Violation
from turnledger.store.database import statement
from turnledger.store.ledger import Run
from turnledger.store.schema import ledger_event, metadata

_RUN_COLUMNS = "turn_id ledger_id work_key epoch steps_written outcome duplicate_of"
NOW = datetime.fromtimestamp(NOW_S, tz=UTC)
Parameters = Mapping[str, Any]


class LedgerRow(NamedTuple):
    """A row of `ledger`; times are left out, here and below."""

    ledger_id: int
    agent: str
    conversation_key: str
    history_version: int
    next_seq: int
    turn_count: int


class StoredEvent(NamedTuple):
    """A row of `ledger_event`, in the order of the product's COPY."""

    ledger_id: int
    seq: int
    history_version: int
    turn_id: str | None
    type: str
    schema_version: int
    idempotency_key: str | None
    payload: str
    content: str | None
    search_text: str | None
    occurred_at: str


class StoredEntry(NamedTuple):
    """A row of `ledger_entry`, in the order of the product's COPY."""

    ledger_id: int
    ordinal: int
    entry_id: str
    turn_id: str
    work_key: str
    completed_at: str
    entry: str


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows of one Postgres."""

    ledgers: tuple[LedgerRow, ...] = ()
    runs: tuple[Run, ...] = ()
    events: tuple[StoredEvent, ...] = ()
    entries: tuple[StoredEntry, ...] = ()

    def run(self, turn_id: str) -> Run | None:
        """The row of one run."""
        return next((run for run in self.runs if run.turn_id == turn_id), None)


class Answered(NamedTuple):
    """What a statement did: the tables after it, and the rows it returns."""

    tables: Tables
    columns: str = ""
    rows: tuple[tuple[Any, ...], ...] = ()


class Result:
    """As much of SQLAlchemy's result as the product uses."""

    def __init__(self, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        row_type = _row_type(columns)
        self._rows = [row_type(*row) for row in rows]

    def __iter__(self) -> Any:
        return iter(self._rows)

    def all(self) -> list[Any]:
        """Every row."""
        return self._rows

    def one(self) -> Any:
        """The only row."""
        (row,) = self._rows
        return row

    def one_or_none(self) -> Any:
        """The only row, or None."""
        return self.one() if self._rows else None

    def scalar_one_or_none(self) -> Any:
        """The first column of the only row, or None."""
        return self.scalar_one() if self._rows else None

    def scalar(self) -> Any:
        """The same."""
        return self.scalar_one_or_none()

    def scalar_one(self) -> Any:
        """The first column of the only row."""
        return self.one()[0]

    def mappings(self) -> "_Mappings":
        """The rows by column name."""
        return _Mappings("", [])._of([row._asdict() for row in self._rows])


class _Mappings(Result):
    def _of(self, rows: list[dict[str, Any]]) -> "_Mappings":
        self._rows = rows
        return self


@cache
def _row_type(columns: str) -> Any:
    return namedtuple("Row", columns)  # the columns are known at run time only


@cache
def statement_names() -> Mapping[str, str]:
    """The name of each statement of the product, by its text."""
    names = [file.name.removesuffix(".sql") for file in (files("turnledger.store") / "sql").iterdir()]
    return {statement(name).text: name for name in names}


def run_statement(tables: Tables, *, name: str, parameters: Parameters) -> Answered:
    """Run one named statement; a unique key that is violated is a violation of the protocol."""
    answered = STATEMENTS[name](tables, parameters)
    if answered.tables is not tables:
        check_unique(answered.tables)
    return answered


def copy_into(tables: Tables, *, target: str, rows: Sequence[Sequence[Any]]) -> Tables:
    """What the product writes with COPY."""
    if target.startswith("ledger_event "):
        after = replace(tables, events=(*tables.events, *(StoredEvent(*row) for row in rows)))
    else:
        after = replace(tables, entries=(*tables.entries, *(StoredEntry(*row) for row in rows)))
    check_unique(after)
    return after


def check_unique(tables: Tables) -> None:
    """The primary keys and unique indexes of the schema."""
    keyed: dict[str, list[Any]] = {
        "ledger_event": [(event.ledger_id, event.seq) for event in tables.events],
        "ledger_event_key": [(e.ledger_id, e.idempotency_key) for e in tables.events if e.idempotency_key is not None],
        "ledger_entry": [(entry.ledger_id, entry.ordinal) for entry in tables.entries],
        "ledger_entry_id": [entry.entry_id for entry in tables.entries],
        "ledger_entry_turn": [entry.turn_id for entry in tables.entries],
        "ledger_turn": [run.turn_id for run in tables.runs],
        "ledger_turn_work": [
            (run.ledger_id, run.work_key) for run in tables.runs if run.outcome == "completed" and run.work_key
        ],
    }
    for name, keys in keyed.items():
        if len(set(keys)) < len(keys):
            raise Violation(f"Postgres refuses the transaction: {name} is unique, and would hold {sorted(keys)}")


def _named(tables: Tables, parameters: Parameters) -> LedgerRow | None:
    wanted = (parameters["agent"], parameters["conversation"])
    return next((row for row in tables.ledgers if (row.agent, row.conversation_key) == wanted), None)


def _with_run(tables: Tables, run: Run) -> Tables:
    others = [other for other in tables.runs if other.turn_id != run.turn_id]
    return replace(tables, runs=tuple(sorted([*others, run])))


def _create_ledgers(tables: Tables, parameters: Parameters) -> Answered:
    rows = list(tables.ledgers)
    for agent, conversation in zip(parameters["agents"], parameters["conversations"], strict=True):
        if (agent, conversation) not in [(row.agent, row.conversation_key) for row in rows]:
            rows.append(LedgerRow(len(rows) + 1, agent, conversation, 0, 0, 0))
    return Answered(replace(tables, ledgers=tuple(rows)) if len(rows) > len(tables.ledgers) else tables)


def _lock_ledger(tables: Tables, parameters: Parameters) -> Answered:
    row = _named(tables, parameters)
    return Answered(
        tables, "ledger_id history_version next_seq turn_count", () if row is None else ((row[0], *row[3:]),)
    )


def _lock_free_ledgers(tables: Tables, parameters: Parameters) -> Answered:
    wanted = set(zip(parameters["agents"], parameters["conversations"], strict=True))
    rows = [(*row[1:3], row[0], *row[3:]) for row in tables.ledgers if row[1:3] in wanted]
    return Answered(tables, "agent conversation_key ledger_id history_version next_seq turn_count", tuple(rows))


def _read_head(tables: Tables, parameters: Parameters) -> Answered:
    row = _named(tables, parameters)
    columns = "ledger_id history_version next_seq turn_count created_at active_at"
    return Answered(tables, columns, () if row is None else ((row[0], *row[3:], NOW, NOW),))


def _find_runs(tables: Tables, parameters: Parameters) -> Answered:
    found = tuple(tuple(run) for run in tables.runs if run.turn_id in parameters["turn_ids"])
    return Answered(tables, _RUN_COLUMNS, found)


def _find_answered(tables: Tables, parameters: Parameters) -> Answered:
    wanted = set(zip(parameters["ledger_ids"], parameters["work_keys"], strict=True))
    entries = {entry.turn_id: entry.entry_id for entry in tables.entries}
    found = [
        (run.ledger_id, run.work_key, run.turn_id, entries.get(run.turn_id))
        for run in tables.runs
        if run.outcome == "completed" and run.work_key and (run.ledger_id, run.work_key) in wanted
    ]
    return Answered(tables, "ledger_id work_key turn_id entry_id", tuple(found))


def _find_keys(tables: Tables, parameters: Parameters) -> Answered:
    wanted = set(zip(parameters["ledger_ids"], parameters["keys"], strict=True))
    stored = [(event.ledger_id, event.idempotency_key) for event in tables.events]
    return Answered(tables, "ledger_id idempotency_key", tuple(pair for pair in stored if pair in wanted))


def _find_keyed_events(tables: Tables, parameters: Parameters) -> Answered:
    found = [
        (event.type, json.loads(event.payload), event.content, event.idempotency_key)
        for event in tables.events
        if event.ledger_id == parameters["ledger_id"] and event.idempotency_key in parameters["keys"]
    ]
    return Answered(tables, "type payload content idempotency_key", tuple(found))


def _recent_entries(tables: Tables, parameters: Parameters) -> Answered:
    mine = sorted(entry for entry in tables.entries if entry.ledger_id == parameters["ledger_id"])
    newest = [(entry.ordinal, NOW, entry.entry) for entry in reversed(mine)][: parameters["most"]]
    return Answered(tables, "ordinal completed_at entry", tuple(newest))


def _insert_run(tables: Tables, parameters: Parameters) -> Answered:
    turn_id, ledger_id, work_key, epoch = (parameters[name] for name in ("turn_id", "ledger_id", "work_key", "epoch"))
    run = Run(turn_id, ledger_id, work_key, epoch, 0, None, None)
    return Answered(replace(tables, runs=tuple(sorted([*tables.runs, run]))))


def _raise_epoch(tables: Tables, parameters: Parameters) -> Answered:
    run = tables.run(parameters["turn_id"])
    if run is None:
        return Answered(tables, _RUN_COLUMNS)
    raised = run._replace(epoch=max(run.epoch, int(str(parameters["known"]))) + 1)
    return Answered(_with_run(tables, raised), _RUN_COLUMNS, (tuple(raised),))


def _turn_at(tables: Tables, parameters: Parameters) -> Answered:
    wanted = (parameters["ledger_id"], parameters["seq"])
    found = tuple((event.turn_id,) for event in tables.events if event[:2] == wanted)
    return Answered(tables, "turn_id", found)


def _holds_cursor(tables: Tables, parameters: Parameters) -> Answered:
    """Nothing is ever swept here."""
    wanted = (parameters["ledger_id"], parameters["seq"])
    there = any(event[:2] == wanted and event.turn_id == parameters["turn_id"] for event in tables.events)
    return Answered(tables, "holds", ((there,),))


def _is_swept(tables: Tables, _: Parameters) -> Answered:
    return Answered(tables, "swept", ((False,),))


def _close_runs(tables: Tables, parameters: Parameters) -> Answered:
    names = ("turn_ids", "ledger_ids", "work_keys", "epochs", "outcomes", "duplicates_of")
    for turn_id, ledger_id, work_key, epoch, outcome, first in zip(*(parameters[name] for name in names), strict=True):
        run = tables.run(turn_id) or Run(turn_id, ledger_id, work_key, epoch, 0, None, None)
        tables = _with_run(tables, run._replace(outcome=outcome, duplicate_of=first))
    return Answered(tables)


def _insert_events(tables: Tables, parameters: Parameters) -> Answered:
    names = ("seqs", "turn_ids", "types", "schema_versions", "keys", "payloads", "contents", "search_texts")
    columns = [parameters[name] for name in (*names, "occurred_at")]
    ledger_id, version = parameters["ledger_id"], parameters["history_version"]
    rows = [StoredEvent(ledger_id, seq, version, *rest) for seq, *rest in zip(*columns, strict=True)]
    return Answered(replace(tables, events=(*tables.events, *rows)) if rows else tables)


def _advance_heads(tables: Tables, parameters: Parameters) -> Answered:
    names = ("ledger_ids", "next_seqs", "turn_counts")
    heads = {row[0]: row[1:] for row in zip(*(parameters[name] for name in names), strict=True)}
    rows = [
        row._replace(next_seq=heads[row.ledger_id][0], turn_count=heads[row.ledger_id][1])
        if row.ledger_id in heads
        else row
        for row in tables.ledgers
    ]
    return Answered(replace(tables, ledgers=tuple(rows)))


def _replace_version(tables: Tables, parameters: Parameters) -> Answered:
    run = tables.run(parameters["turn_id"])
    if run is not None:
        tables = _with_run(tables, run._replace(steps_written=parameters["steps_written"]))
    rows = [
        row._replace(history_version=parameters["version"]) if row.ledger_id == parameters["ledger_id"] else row
        for row in tables.ledgers
    ]
    return Answered(replace(tables, ledgers=tuple(rows)))


def _trim_entries(tables: Tables, parameters: Parameters) -> Answered:
    last = dict(zip(parameters["ledger_ids"], parameters["last_dropped"], strict=True))
    kept = [entry for entry in tables.entries if entry.ordinal > last.get(entry.ledger_id, 0)]
    return Answered(replace(tables, entries=tuple(kept)))


def _database_time(tables: Tables, parameters: Parameters) -> Answered:
    del parameters
    return Answered(tables, "moment", ((NOW,),))


STATEMENTS: Mapping[str, Callable[[Tables, Parameters], Answered]] = {
    "advance_heads": _advance_heads,
    "close_runs": _close_runs,
    "create_ledgers": _create_ledgers,
    "database_time": _database_time,
    "find_answered": _find_answered,
    "find_keyed_events": _find_keyed_events,
    "find_keys": _find_keys,
    "find_runs": _find_runs,
    "holds_cursor": _holds_cursor,
    "insert_events": _insert_events,
    "insert_run": _insert_run,
    "is_swept": _is_swept,
    "lock_free_ledgers": _lock_free_ledgers,
    "lock_ledger": _lock_ledger,
    "raise_epoch": _raise_epoch,
    "read_head": _read_head,
    "recent_entries": _recent_entries,
    "replace_version": _replace_version,
    "trim_entries": _trim_entries,
    "turn_at": _turn_at,
}


@cache
def _engine() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine, tables=[ledger_event])
    return engine


def run_select(tables: Tables, query: Select[Any]) -> tuple[str, list[tuple[Any, ...]]]:
    """Run one of the product's own selects over the events; columns and rows."""
    with _engine().connect() as connection:
        if tables.events:
            connection.execute(insert(ledger_event), [_as_inserted(event) for event in tables.events])
        found = connection.execute(query)
        columns, rows = " ".join(found.keys()), [tuple(row) for row in found]
        connection.rollback()
    return columns, rows


def _as_inserted(event: StoredEvent) -> dict[str, Any]:
    content = None if event.content is None else json.loads(event.content)
    return {**event._asdict(), "payload": json.loads(event.payload), "content": content, "occurred_at": NOW,
            "recorded_at": NOW}  # fmt: skip
