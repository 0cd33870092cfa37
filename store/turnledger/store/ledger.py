"""One ledger's row and log: its head, the append, its entries, and the beginning and end of a run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection

from turnledger.store.database import Database, run_statement
from turnledger.store.errors import InvalidInput
from turnledger.store.events import EventRow
from turnledger.store.identity import LedgerName
from turnledger.store.json_text import decode_json
from turnledger.store.logs import get_logger
from turnledger.store.times import time_text

log = get_logger(__name__)
FIRST_EPOCH = 1
EndedAs = Literal["completed", "failed", "abandoned", "duplicate", "lost"]


@dataclass(frozen=True, slots=True)
class Head:
    """Where a ledger stands: `next_seq` is the number its next event takes, `turn_count` its newest ordinal."""

    ledger_id: int
    history_version: int
    next_seq: int
    turn_count: int


class Run(NamedTuple):
    """What Postgres knows of one run of a turn; `outcome` is None while it is open."""

    turn_id: str
    ledger_id: int
    work_key: str
    epoch: int
    steps_written: int
    outcome: EndedAs | None
    duplicate_of: str | None


class Answered(NamedTuple):
    """The run that completed a work key; `entry_id` is None once its entry was trimmed or swept."""

    turn_id: str
    entry_id: str | None


class StoredEntry(NamedTuple):
    """An entry as it is stored: its ordinal, its time and its JSON text."""

    ordinal: int
    completed_at: datetime
    text: str


class _Content(NamedTuple):
    """What must be equal for two events of one key to be the same event."""

    type: str
    payload: Any
    content: str | None


class AppendResult(NamedTuple):
    """`head` after the append; `conflicts` are keys that were there with other content, which stayed."""

    head: Head
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a run found when it began. `answered` is set when its work key is: then nothing was written.

    `runs` holds those of the runs it asked about that Postgres knows, and the run itself. Where the run itself
    had ended, nothing was written either. `last_turn_id` is the turn of the ledger's newest event. `again`: a start of
    the run had been here before; whoever goes on with it has to fence that one off, once the record is its own.
    """

    head: Head
    entries: tuple[StoredEntry, ...]
    known_keys: frozenset[str]
    answered: Answered | None
    runs: Mapping[str, Run]
    last_turn_id: str | None = None
    again: bool = False


def create_ledgers(database: Database, names: Iterable[LedgerName]) -> None:
    """Make the ledgers that are missing, in a short transaction of its own."""
    ordered = sorted(set(names))
    with database.transaction() as connection:
        run_statement(
            connection,
            "create_ledgers",
            {
                "agents": [name.agent for name in ordered],
                "conversations": [name.conversation for name in ordered],
            },
        )


def database_time(connection: Connection) -> str:
    """The time of the Postgres server."""
    moment: datetime = run_statement(connection, "database_time", {})[0][0]
    return time_text(moment)


def lock_ledger(connection: Connection, name: LedgerName) -> Head | None:
    """Hold the ledger's row until the transaction ends, waiting up to `lock_timeout`; None: there is none.

    Raises:
        StoreBusy: another transaction kept the row for longer (raised by the transaction).
    """
    parameters = {"agent": name.agent, "conversation": name.conversation}
    rows = run_statement(connection, "lock_ledger", parameters)
    return Head(*rows[0]) if rows else None


def lock_free_ledgers(
    connection: Connection, names: Sequence[LedgerName], *, most: int | None = None
) -> dict[LedgerName, Head]:
    """Hold those of the ledgers that exist and that nobody else holds, the first `most` of them; never waits."""
    rows = run_statement(
        connection,
        "lock_free_ledgers",
        {
            "agents": [name.agent for name in names],
            "conversations": [name.conversation for name in names],
            "most": most,
        },
    )
    return {LedgerName(row[0], row[1]): Head(*row[2:]) for row in rows}


def read_head(connection: Connection, name: LedgerName) -> Head | None:
    """Where the ledger stands, without a lock; None: there is none."""
    parameters = {"agent": name.agent, "conversation": name.conversation}
    rows = run_statement(connection, "read_head", parameters)
    return Head(*rows[0][:4]) if rows else None


def append(connection: Connection, head: Head, rows: Sequence[EventRow], *, turn_id: str | None) -> AppendResult:
    """Number and write events under the ledger's lock; a key that is there already lands no second time.

    Numbers are dense: they are given after the known keys were dropped, also inside `rows`. An append that
    brings nothing new changes nothing, activity time included.
    """
    known = _keyed_events(connection, head, rows)
    conflicts = _report(rows, known, head=head, turn_id=turn_id)
    fresh = first_of_each_key(rows, known)
    return AppendResult(_append_fresh(connection, head, fresh, turn_id=turn_id), conflicts)


def report_conflicts(connection: Connection, head: Head, rows: Sequence[EventRow], *, turn_id: str) -> tuple[str, ...]:
    """Log and return the keys that are in the log with other content than here; what is there stays."""
    return _report(rows, _keyed_events(connection, head, rows), head=head, turn_id=turn_id)


def _report(
    rows: Sequence[EventRow], known: Mapping[str, _Content], *, head: Head, turn_id: str | None
) -> tuple[str, ...]:
    conflicts = _conflicts(rows, known)
    if conflicts:
        log.warning("event_key_conflict", ledger_id=head.ledger_id, turn_id=turn_id, keys=conflicts)
    return conflicts


def _append_fresh(connection: Connection, head: Head, rows: Sequence[EventRow], *, turn_id: str | None) -> Head:
    if not rows:
        return head
    insert_events(connection, head, rows, turn_id=turn_id)
    advanced = replace(head, next_seq=head.next_seq + len(rows))
    advance_heads(connection, [advanced])
    return advanced


def insert_events(connection: Connection, head: Head, rows: Sequence[EventRow], *, turn_id: str | None) -> None:
    """Write rows at the head, numbered from `head.next_seq`; the caller holds the lock and advances the head."""
    run_statement(
        connection,
        "insert_events",
        {
            "ledger_id": head.ledger_id,
            "history_version": head.history_version,
            "seqs": list(range(head.next_seq, head.next_seq + len(rows))),
            "types": [row.type for row in rows],
            "schema_versions": [row.schema_version for row in rows],
            "turn_ids": [turn_id] * len(rows),
            "keys": [row.key for row in rows],
            "payloads": [row.payload for row in rows],
            "contents": [row.content for row in rows],
            "search_texts": [row.search_text for row in rows],
            "occurred_at": [row.occurred_at for row in rows],
        },
    )


def advance_heads(connection: Connection, heads: Sequence[Head]) -> None:
    """Store where these ledgers now stand; activity time never moves back."""
    run_statement(
        connection,
        "advance_heads",
        {
            "ledger_ids": [head.ledger_id for head in heads],
            "next_seqs": [head.next_seq for head in heads],
            "turn_counts": [head.turn_count for head in heads],
        },
    )


def look_around(
    connection: Connection,
    head: Head,
    *,
    turn_id: str,
    work_key: str,
    watched_keys: Sequence[str],
    watched_runs: Sequence[str],
    most_entries: int,
) -> Beginning:
    """What a run has to know of its ledger before it begins; writes nothing.

    `watched_keys` and `watched_runs` are idempotency keys and runs to look for.

    Raises:
        InvalidInput: the turn_id is another run's.
    """
    runs = find_runs(connection, [turn_id, *watched_runs])
    run = runs.get(turn_id)
    if run is not None and (run.ledger_id, run.work_key) != (head.ledger_id, work_key):
        raise InvalidInput(f"turn_id {turn_id!r} belongs to another run; every run needs an id of its own")
    answered = find_answered(connection, [(head.ledger_id, work_key)]).get((head.ledger_id, work_key))
    entries = recent_entries(connection, head.ledger_id, most=most_entries)
    known = find_keys(connection, [(head.ledger_id, key) for key in watched_keys])
    return Beginning(head, entries, frozenset(key for _, key in known), answered, runs)


def begin_run(
    connection: Connection,
    head: Head,
    *,
    turn_id: str,
    work_key: str,
    started_at: str,
    rows: Sequence[EventRow],
    watched_keys: Sequence[str],
    watched_runs: Sequence[str],
    most_entries: int,
) -> Beginning:
    """Look around under the ledger's lock and, unless the work or this run is decided, record that it began.

    `rows` are the inbound messages and `turn_started`.

    Raises:
        InvalidInput: the turn_id is another run's.
    """
    found = look_around(
        connection,
        head,
        turn_id=turn_id,
        work_key=work_key,
        watched_keys=_keys(rows, watched_keys),
        watched_runs=watched_runs,
        most_entries=most_entries,
    )
    run = found.runs.get(turn_id)
    if found.answered is not None or (run is not None and run.outcome is not None):
        return found
    begun = run or Run(turn_id, head.ledger_id, work_key, FIRST_EPOCH, 0, None, None)
    if run is None:
        insert_run(connection, begun, started_at=started_at)
    advanced = _append_known(connection, head, rows, known_keys=found.known_keys, turn_id=turn_id)
    last_turn_id = turn_id if advanced != head else turn_at(connection, head.ledger_id, head.next_seq - 1)
    runs = {**found.runs, turn_id: begun}
    return replace(found, head=advanced, runs=runs, last_turn_id=last_turn_id, again=run is not None)


def _append_known(
    connection: Connection, head: Head, rows: Sequence[EventRow], *, known_keys: Collection[str], turn_id: str
) -> Head:
    """What keyed events hold is compared only where a key comes again: most messages come once."""
    fresh = first_of_each_key(rows, known_keys)
    if len(fresh) < len(rows):
        return append(connection, head, rows, turn_id=turn_id).head
    return _append_fresh(connection, head, fresh, turn_id=turn_id)


def turn_at(connection: Connection, ledger_id: int, seq: int) -> str | None:
    """The turn of the event at this seq; None: it belongs to no turn, or there is no such event."""
    rows = run_statement(connection, "turn_at", {"ledger_id": ledger_id, "seq": seq})
    return rows[0][0] if rows else None


def holds_cursor(connection: Connection, *, ledger_id: int, seq: int, turn_id: str | None) -> bool:
    """Whether the event at this seq is this turn's, or one that retention has removed."""
    named = {"ledger_id": ledger_id, "seq": seq, "turn_id": turn_id}
    rows = run_statement(connection, "holds_cursor", named)
    return bool(rows and rows[0][0])


def is_swept(connection: Connection, ledger_id: int) -> bool:
    """Whether retention has ever removed an event of this ledger."""
    rows = run_statement(connection, "is_swept", {"ledger_id": ledger_id})
    return bool(rows and rows[0][0])


def insert_run(connection: Connection, run: Run, *, started_at: str) -> None:
    """Record an open run; the caller holds the ledger's lock."""
    row = {"turn_id": run.turn_id, "ledger_id": run.ledger_id, "work_key": run.work_key}
    run_statement(connection, "insert_run", {**row, "epoch": run.epoch, "started_at": started_at})


def end_run(connection: Connection, head: Head, *, run: Run, outcome: EndedAs, started_at: str, row: EventRow) -> Run:
    """Write a run's one terminal under the lock; a run that has ended stays as it ended. Returns what stands.

    That it failed or was abandoned only its holder can say: where the stored epoch is higher than that of `run`, it was
    taken over, and nothing is written. A duplicate or a lost run is one whoever holds it.
    """
    stored = find_runs(connection, [run.turn_id]).get(run.turn_id, run)
    if stored.outcome not in (None, "lost"):
        return stored
    if outcome in ("failed", "abandoned") and stored.epoch > run.epoch:
        return stored
    ended = stored._replace(outcome=outcome, duplicate_of=run.duplicate_of, ledger_id=head.ledger_id)
    close_runs(connection, [ended], started_at=[started_at], ended_at=[row.occurred_at])
    append(connection, head, [row], turn_id=run.turn_id)
    return ended


def close_runs(
    connection: Connection, runs: Sequence[Run], *, started_at: Sequence[str], ended_at: Sequence[str]
) -> None:
    """Give runs their outcome; runs that are not there yet are made."""
    run_statement(
        connection,
        "close_runs",
        {
            "turn_ids": [run.turn_id for run in runs],
            "ledger_ids": [run.ledger_id for run in runs],
            "work_keys": [run.work_key for run in runs],
            "epochs": [run.epoch for run in runs],
            "started_at": list(started_at),
            "ended_at": list(ended_at),
            "outcomes": [run.outcome for run in runs],
            "duplicates_of": [run.duplicate_of for run in runs],
        },
    )


def raise_epoch(connection: Connection, turn_id: str, *, known: int) -> Run | None:
    """Fence off whoever held the run before, under any epoch up to `known`; the run now, None: no such run."""
    rows = run_statement(connection, "raise_epoch", {"turn_id": turn_id, "known": known})
    return Run(*rows[0]) if rows else None


def find_runs(connection: Connection, turn_ids: Sequence[str]) -> dict[str, Run]:
    """The runs of these ids that Postgres knows."""
    rows = run_statement(connection, "find_runs", {"turn_ids": list(turn_ids)})
    return {row[0]: Run(*row) for row in rows}


def of_another_life(connection: Connection, started_at: Mapping[str, str]) -> frozenset[str]:
    """Which of these runs, by turn_id, Postgres knows from another start than the one of this time."""
    rows = run_statement(connection, "run_started_at", {"turn_ids": list(started_at)}) if started_at else []
    return frozenset(turn_id for turn_id, moment in rows if time_text(moment) != started_at[turn_id])


def forget_steps(connection: Connection, run: Run) -> Run:
    """The run without the steps that it has in the log: they are another life's, which nobody goes on with."""
    run_statement(connection, "forget_steps", {"turn_id": run.turn_id})
    return run._replace(steps_written=0)


def find_answered(connection: Connection, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Answered]:
    """By (ledger_id, work_key): who completed it. An empty work key is never answered."""
    named = [pair for pair in wanted if pair[1]]
    if not named:
        return {}
    rows = run_statement(
        connection,
        "find_answered",
        {"ledger_ids": [pair[0] for pair in named], "work_keys": [pair[1] for pair in named]},
    )
    return {(row[0], row[1]): Answered(row[2], None if row[3] is None else str(row[3])) for row in rows}


def find_keys(connection: Connection, wanted: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    """Which of these (ledger_id, idempotency key) pairs are in the log."""
    if not wanted:
        return set()
    rows = run_statement(
        connection,
        "find_keys",
        {"ledger_ids": [pair[0] for pair in wanted], "keys": [pair[1] for pair in wanted]},
    )
    return {(row[0], row[1]) for row in rows}


def recent_entries(connection: Connection, ledger_id: int, *, most: int) -> tuple[StoredEntry, ...]:
    """The newest entries of a ledger, at most `most`, in order of ordinal."""
    rows = run_statement(connection, "recent_entries", {"ledger_id": ledger_id, "most": most})
    return tuple(StoredEntry(*row) for row in reversed(rows))


def first_of_each_key(rows: Sequence[EventRow], known_keys: Collection[str]) -> list[EventRow]:
    """The rows that are new: keyless ones, and the first of each key that is not known."""
    seen = set(known_keys)
    fresh = []
    for row in rows:
        if row.key is None or row.key not in seen:
            fresh.append(row)
        if row.key is not None:
            seen.add(row.key)
    return fresh


def _keys(rows: Sequence[EventRow], watched: Sequence[str]) -> list[str]:
    return [row.key for row in rows if row.key is not None] + list(watched)


def _keyed_events(connection: Connection, head: Head, rows: Sequence[EventRow]) -> dict[str, _Content]:
    keys = _keys(rows, ())
    if not keys:
        return {}
    found = run_statement(connection, "find_keyed_events", {"ledger_id": head.ledger_id, "keys": keys})
    return {row[3]: _Content(row[0], row[1], row[2]) for row in found}


def _conflicts(rows: Sequence[EventRow], known: Mapping[str, _Content]) -> tuple[str, ...]:
    first = dict(known)
    conflicts = []
    for row in rows:
        if row.key is None:
            continue
        content = _Content(row.type, decode_json(row.payload), row.content)
        if first.setdefault(row.key, content) != content:
            conflicts.append(row.key)
    return tuple(conflicts)
