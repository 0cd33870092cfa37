"""The commit point: completed turns become history, all or nothing a turn, in one transaction.

The decision is a pure function, `plan_commit`; `commit_turns` reads what it needs under the ledgers' locks
and writes the plan. Nothing here knows where the turns came from: a worker, or an engine node by itself.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection
from structlog.contextvars import bound_contextvars

from turnledger.store.crash_points import crash_point
from turnledger.store.database import copy_rows, run_statement
from turnledger.store.events import AT_COMPLETION, EventRow, completed_event, duplicate_event, failed_event, step_row
from turnledger.store.identity import LedgerName
from turnledger.store.ledger import (
    Head,
    Run,
    advance_heads,
    close_runs,
    find_answered,
    find_keys,
    find_runs,
    first_of_each_key,
    of_another_life,
    report_conflicts,
)

Verdict = Literal["committed", "duplicate", "already", "superseded"]
_Row = tuple[object, ...]

_EVENT_TARGET = (
    "ledger_event (ledger_id, seq, history_version, turn_id, type, schema_version, idempotency_key, payload,"
    " content, search_text, occurred_at)"
)
_ENTRY_TARGET = "ledger_entry (ledger_id, ordinal, entry_id, turn_id, work_key, completed_at, entry)"


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """A turn as its engine node completed it: texts ready to be stored.

    `steps` are in wire form, in order; `before` are inbound events that could not be written at the start,
    `events` what the completion itself adds (the delivered reply, the messages it handled). A row without
    a time happened when the turn completed. `failure` is the code of a turn that files its entry and fails all
    the same, because its reply reached nobody or its slices were used up: its work key stays free. `unannounced`: the
    start could not reach Postgres, so what Postgres knows of the run may be of a former life of it.
    """

    turn_id: str
    ledger: LedgerName
    work_key: str
    epoch: int
    started_at: str
    completed_at: str
    entry_id: str
    entry: str
    decision: str | None
    failure: str | None = None
    steps: tuple[str, ...] = ()
    before: tuple[EventRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    unannounced: bool = False


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What the commit point made of a turn.

    `committed`: it is history now, at this ordinal. `duplicate`: `first` had completed its work key, only the
    terminal was written. `already`: it had been decided before (`first` set when as a duplicate), nothing was
    written. `superseded`: another run of it was taken over or ended it, nothing was written.
    """

    turn_id: str
    verdict: Verdict
    ordinal: int | None = None
    first: str | None = None


@dataclass(slots=True)
class CommitPlan:
    """All that one transaction writes, and what it means for each turn."""

    outcomes: list[TurnOutcome] = field(default_factory=list)
    events: list[_Row] = field(default_factory=list)
    entries: list[_Row] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    run_times: list[tuple[str, str]] = field(default_factory=list)
    heads: dict[LedgerName, Head] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What Postgres says under the locks: the runs by turn_id, who answered which work key, which keys are in."""

    runs: Mapping[str, Run]
    answered: Mapping[tuple[int, str], str]
    keys: Collection[tuple[int, str]]


def commit_turns(
    connection: Connection,
    *,
    heads: Mapping[LedgerName, Head],
    turns: Sequence[CompletedTurn],
    most_entries: int,
) -> list[TurnOutcome]:
    """Commit the turns in the order given; the caller holds the lock of every ledger in `heads`.

    Exactly-once: a turn that is committed already is told so and written no second time, nor is a second
    run of one work key. `seq` and `ordinal` stay dense. One outcome a turn, in order.
    """
    plan = CommitPlan(heads=dict(heads))
    evidence = _evidence(connection, heads, turns)
    copy_rows(connection, target=_EVENT_TARGET, rows=_plan_turns(plan, turns, evidence=evidence))
    _write_rest(connection, plan, before=heads, most_entries=most_entries)
    return plan.outcomes


def plan_commit(turns: Sequence[CompletedTurn], *, heads: Mapping[LedgerName, Head], evidence: Evidence) -> CommitPlan:
    """Decide each turn and number what it writes; pure."""
    plan = CommitPlan(heads=dict(heads))
    for _ in _plan_turns(plan, turns, evidence=evidence):
        pass  # the plan keeps them
    return plan


def _plan_turns(plan: CommitPlan, turns: Sequence[CompletedTurn], *, evidence: Evidence) -> Iterator[_Row]:
    """Plan turn by turn and hand out its events: Postgres stores the first ones while the next are worked out."""
    answered = dict(evidence.answered)
    runs = dict(evidence.runs)
    keys: dict[int, set[str]] = {}
    for ledger_id, key in evidence.keys:
        keys.setdefault(ledger_id, set()).add(key)
    for turn in turns:
        planned = len(plan.events)
        head = plan.heads[turn.ledger]
        run = runs.get(turn.turn_id) or _new_run(turn, head)
        outcome = _judge(turn, run, first=answered.get((head.ledger_id, turn.work_key)))
        if outcome.verdict == "committed":
            outcome = _plan_committed(plan, turn, run, known=keys.setdefault(head.ledger_id, set()))
            if turn.failure is None:
                answered[head.ledger_id, turn.work_key] = turn.turn_id
        elif outcome.verdict == "duplicate":
            _plan_duplicate(plan, turn, run, first=str(outcome.first))
        if outcome.verdict in ("committed", "duplicate"):
            runs[turn.turn_id] = plan.runs[-1]
        plan.outcomes.append(outcome)
        yield from plan.events[planned:]


def _new_run(turn: CompletedTurn, head: Head) -> Run:
    return Run(turn.turn_id, head.ledger_id, turn.work_key, turn.epoch, 0, None, None)


def _judge(turn: CompletedTurn, run: Run, *, first: str | None) -> TurnOutcome:
    if run.outcome == "completed":
        return TurnOutcome(turn.turn_id, "already")
    if run.outcome == "duplicate":
        return TurnOutcome(turn.turn_id, "already", first=run.duplicate_of)
    if run.epoch > turn.epoch:
        return TurnOutcome(turn.turn_id, "superseded")
    if run.outcome in ("failed", "abandoned"):
        return TurnOutcome(turn.turn_id, "superseded" if turn.failure is None else "already")
    if turn.work_key and first is not None:
        return TurnOutcome(turn.turn_id, "duplicate", first=first)
    return TurnOutcome(turn.turn_id, "committed")


def _plan_committed(plan: CommitPlan, turn: CompletedTurn, run: Run, *, known: set[str]) -> TurnOutcome:
    head = plan.heads[turn.ledger]
    ordinal = head.turn_count + 1
    terminal = _terminal(turn, ordinal=ordinal)
    before = first_of_each_key(turn.before, known)
    known.update(row.key for row in before if row.key)
    after = first_of_each_key(turn.events, known)
    known.update(row.key for row in after if row.key)
    steps = turn.steps[run.steps_written :]
    rows = [*before, *(step_row(step, now=AT_COMPLETION) for step in steps), *after, terminal]
    plan.entries.append(
        (head.ledger_id, ordinal, turn.entry_id, turn.turn_id, turn.work_key, turn.completed_at, turn.entry)
    )
    _plan_rows(plan, turn, rows, turn_count=ordinal)
    _plan_run(plan, turn, run._replace(outcome="completed" if turn.failure is None else "failed"))
    return TurnOutcome(turn.turn_id, "committed", ordinal=ordinal)


def _terminal(turn: CompletedTurn, *, ordinal: int) -> EventRow:
    now, entry_id = turn.completed_at, turn.entry_id
    if turn.failure is not None:
        return failed_event(turn.turn_id, code=turn.failure, entry_id=entry_id, ordinal=ordinal, now=now)
    return completed_event(turn.turn_id, entry_id=entry_id, ordinal=ordinal, decision=turn.decision, now=now)


def _plan_duplicate(plan: CommitPlan, turn: CompletedTurn, run: Run, *, first: str) -> None:
    terminal = duplicate_event(turn.turn_id, duplicate_of=first, now=turn.completed_at)
    _plan_rows(plan, turn, [terminal], turn_count=plan.heads[turn.ledger].turn_count)
    _plan_run(plan, turn, run._replace(outcome="duplicate", duplicate_of=first))


def _plan_rows(plan: CommitPlan, turn: CompletedTurn, rows: Sequence[EventRow], *, turn_count: int) -> None:
    head = plan.heads[turn.ledger]
    ledger_id, version, turn_id = head.ledger_id, head.history_version, turn.turn_id
    plan.events += [
        (ledger_id, seq, version, turn_id, *row[:-1], row.occurred_at or turn.completed_at)
        for seq, row in enumerate(rows, head.next_seq)
    ]
    plan.heads[turn.ledger] = Head(ledger_id, version, head.next_seq + len(rows), turn_count)


def _plan_run(plan: CommitPlan, turn: CompletedTurn, run: Run) -> None:
    plan.runs.append(run)
    plan.run_times.append((turn.started_at, turn.completed_at))


def _evidence(connection: Connection, heads: Mapping[LedgerName, Head], turns: Sequence[CompletedTurn]) -> Evidence:
    ledger_ids = {name: head.ledger_id for name, head in heads.items()}
    answered = find_answered(connection, [(ledger_ids[turn.ledger], turn.work_key) for turn in turns])
    keyed = [
        (ledger_ids[turn.ledger], row.key)
        for turn in turns
        for row in (*turn.before, *turn.events)
        if row.key is not None
    ]
    keys = find_keys(connection, keyed)
    if keys:
        _report_conflicts(connection, heads, turns, keys=keys)
    return Evidence(
        runs=_runs(connection, turns),
        answered={pair: found.turn_id for pair, found in answered.items()},
        keys=keys,
    )


def _runs(connection: Connection, turns: Sequence[CompletedTurn]) -> dict[str, Run]:
    """The runs of these turns; one that was begun anew has none of its own steps in the log yet."""
    runs = find_runs(connection, [turn.turn_id for turn in turns])
    doubtful = {
        turn.turn_id: turn.started_at
        for turn in turns
        if turn.unannounced and turn.turn_id in runs and runs[turn.turn_id].steps_written
    }
    anew = of_another_life(connection, doubtful)
    return {turn_id: run._replace(steps_written=0) if turn_id in anew else run for turn_id, run in runs.items()}


def _report_conflicts(
    connection: Connection,
    heads: Mapping[LedgerName, Head],
    turns: Sequence[CompletedTurn],
    *,
    keys: Collection[tuple[int, str]],
) -> None:
    """What keyed events hold is compared only where a key comes again."""
    for turn in turns:
        head = heads[turn.ledger]
        again = [row for row in (*turn.before, *turn.events) if (head.ledger_id, row.key) in keys]
        if again:
            with bound_contextvars(agent=turn.ledger.agent, conversation=turn.ledger.conversation):
                report_conflicts(connection, head, again, turn_id=turn.turn_id)


def _write_rest(
    connection: Connection, plan: CommitPlan, *, before: Mapping[LedgerName, Head], most_entries: int
) -> None:
    if not plan.runs:
        return
    copy_rows(connection, target=_ENTRY_TARGET, rows=plan.entries)
    close_runs(
        connection,
        plan.runs,
        started_at=[started for started, _ in plan.run_times],
        ended_at=[ended for _, ended in plan.run_times],
    )
    changed = [head for name, head in plan.heads.items() if head != before[name]]
    advance_heads(connection, changed)
    _trim(connection, changed, most_entries=most_entries)
    crash_point("commit.written")


def _trim(connection: Connection, heads: Sequence[Head], *, most_entries: int) -> None:
    full = [head for head in heads if head.turn_count > most_entries]
    if not full:
        return
    run_statement(
        connection,
        "trim_entries",
        {
            "ledger_ids": [head.ledger_id for head in full],
            "last_dropped": [head.turn_count - most_entries for head in full],
        },
    )
