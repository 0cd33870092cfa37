"""The part of a resume that Postgres decides: the epoch, and whether there is anything left to do."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from turnledger.checkpoint.errors import AlreadyHandled, StaleTurn, TurnBlocked, TurnEnded
from turnledger.checkpoint.naming import names
from turnledger.checkpoint.record import OWNER_LOST, Cursor, Record
from turnledger.checkpoint.records import Claim, Fields, Records, already_handled, new_token, turn_ended
from turnledger.store import Database, StoreBusy, StoreUnavailable, TurnledgerError
from turnledger.store.database import refuse_standby
from turnledger.store.events import duplicate_event, failed_event
from turnledger.store.history import steps_in_log
from turnledger.store.ledger import (
    Answered,
    Head,
    Run,
    create_ledgers,
    database_time,
    end_run,
    find_answered,
    forget_steps,
    holds_cursor,
    insert_run,
    lock_ledger,
    of_another_life,
    raise_epoch,
    read_head,
)
from turnledger.store.logs import get_logger
from turnledger.store.steps import encode_step
from turnledger.store.times import time_text

log = get_logger(__name__)

ABANDONED_CODE = "agent_run_failed"


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What the new holder continues from: its epoch, the cursor, and how many own steps a replacement covers.

    `forgotten` are steps in wire form that a replacement has put into the log and Redis no longer has.
    """

    epoch: int
    cursor: Cursor
    covered: int
    forgotten: tuple[str, ...] = ()


def take_over(database: Database, record: Record, *, saved_steps: int, still_held: Callable[[], bool]) -> TakeOver:
    """Fence off, in Postgres, whoever held the turn before, and follow the history it was built on.

    A newer history wins: the cursor moves to it, and the own steps that its replacement covers are named. The commit
    counts on those being the turn's first ones: what Redis has lost of them comes back from the log. Redis is asked
    once more under the ledger's lock, so that epochs are raised in the order of the claims: one that comes
    late must not fence off the holder that came after it.

    Raises:
        StaleTurn: another process has claimed the turn meanwhile.
        AlreadyHandled: this run, or another of its work key, is committed.
        TurnEnded: this run failed or was abandoned.
        TurnBlocked: the history it was built on is not there: Postgres was set back, or its ledger is another.
        StoreUnavailable, StoreBusy: try again.
    """
    _refuse_superseded(record)
    unchanged = TakeOver(record.epoch + 1, record.cursor, record.covered)
    if not record.recorded:
        return unchanged
    if record.cursor.ledger_id is None:  # Postgres may never have heard of it: without a row no epoch fences it
        create_ledgers(database, [record.ledger])
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None:
            _refuse_lost_history(record, head=None, found=False)
            return unchanged
        run = _fence(connection, head, record, still_held=still_held)
        _refuse_lost_history(record, head=head, found=_is_cursor_there(connection, head, record.cursor))
        forgotten = _forgotten(connection, head, run, saved_steps=saved_steps)
    return TakeOver(run.epoch, _followed(record.cursor, head), max(record.covered, run.steps_written), forgotten)


def end_in_postgres(database: Database, record: Record, *, still_held: Callable[[], bool]) -> None:
    """Fence off whoever held the turn before, as `take_over`, and end its run as abandoned, whatever its history.

    Where its ledger is gone there is nothing to end.

    Raises:
        StaleTurn, AlreadyHandled, TurnEnded, StoreUnavailable, StoreBusy: as `take_over`; nothing was written.
    """
    _refuse_superseded(record)
    if not record.recorded:
        return
    if record.cursor.ledger_id is None:
        create_ledgers(database, [record.ledger])
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None:
            return
        run = _fence(connection, head, record, still_held=still_held)
        now = database_time(connection)
        row = failed_event(record.turn_id, code=ABANDONED_CODE, failure_id=None, now=now)
        end_run(connection, head, run=run, outcome="abandoned", started_at=record.started_at, row=row)


def check_history(database: Database, record: Record) -> None:
    """Refuse a turn whose history is not there any more; changes nothing.

    Raises:
        TurnBlocked: as `take_over`.
        StoreUnavailable, StoreBusy: try again.
    """
    with database.snapshot() as connection:
        head = read_head(connection, record.ledger)
        found = head is not None and _is_cursor_there(connection, head, record.cursor)
        try:
            _refuse_lost_history(record, head=head, found=found)
        except TurnBlocked:
            refuse_standby(connection)
            raise


def _refuse_superseded(record: Record) -> None:
    if record.superseded_by:
        first_turn_id, _, entry_id = record.superseded_by.partition(" ")
        raise already_handled(first_turn_id, entry_id=entry_id)


def _fence(connection: Connection, head: Head, record: Record, *, still_held: Callable[[], bool]) -> Run:
    """The run at its new epoch, unless somebody else has the turn, or it or its work is decided."""
    if not still_held():
        raise StaleTurn(f"turn {record.turn_id} was claimed by another process", turn_id=record.turn_id)
    run = _fenced(connection, head, record)
    wanted = (head.ledger_id, record.work_key)
    _refuse_decided(record, run=run, answered=find_answered(connection, [wanted]).get(wanted))
    return run


def _fenced(connection: Connection, head: Head, record: Record) -> Run:
    """The run at its new epoch; a run that Postgres was never told of is made, so that the epoch can fence it."""
    raised = raise_epoch(connection, record.turn_id, known=record.epoch)
    if raised is not None:
        return _of_this_life(connection, raised, record)
    run = Run(record.turn_id, head.ledger_id, record.work_key, record.epoch + 1, 0, None, None)
    insert_run(connection, run, started_at=record.started_at)
    return run


def _of_this_life(connection: Connection, run: Run, record: Record) -> Run:
    """The run without the steps of a former life: a record that was made without Postgres knows nothing of those."""
    if not run.steps_written or record.cursor.ledger_id is not None:
        return run
    anew = of_another_life(connection, {run.turn_id: record.started_at})
    return forget_steps(connection, run) if anew else run


def _forgotten(connection: Connection, head: Head, run: Run, *, saved_steps: int) -> tuple[str, ...]:
    if run.steps_written <= saved_steps:
        return ()
    return tuple(encode_step(step) for step in steps_in_log(connection, head, run.turn_id, first=saved_steps))


def _followed(cursor: Cursor, head: Head) -> Cursor:
    """The cursor at the head's version; one that was made without Postgres takes the head."""
    if cursor.ledger_id is None:
        return replace(cursor, ledger_id=head.ledger_id, history_version=head.history_version)
    return replace(cursor, history_version=head.history_version)


def _refuse_decided(record: Record, *, run: Run, answered: Answered | None) -> None:
    if run.outcome in ("completed", "duplicate"):
        entry_id = None if run.duplicate_of else record.entry_id
        raise already_handled(run.duplicate_of or record.turn_id, entry_id=entry_id)
    if run.outcome in ("failed", "abandoned"):
        raise turn_ended(record.turn_id, state=run.outcome)
    if answered is not None:
        raise already_handled(answered.turn_id, entry_id=answered.entry_id)


def _is_cursor_there(connection: Connection, head: Head, cursor: Cursor) -> bool:
    return holds_cursor(connection, ledger_id=head.ledger_id, seq=cursor.seq, turn_id=cursor.seq_turn_id)


def _refuse_lost_history(record: Record, *, head: Head | None, found: bool) -> None:
    cursor = record.cursor
    if cursor.ledger_id is None or cursor.seq < 0:
        return
    if head is None or head.ledger_id != cursor.ledger_id:
        raise _blocked(record, "other_history", "its ledger was purged or replaced")
    if head.history_version < cursor.history_version or head.next_seq <= cursor.seq:
        raise _blocked(record, "cursor_ahead", "Postgres does not have all of the history it was built on")
    if not found:
        raise _blocked(record, "other_history", "Postgres has another history than the one it was built on")


def _blocked(record: Record, reason: str, words: str) -> TurnBlocked:
    return TurnBlocked(f"turn {record.turn_id} cannot be resumed: {words} ({reason})", reason=reason)


def let_go(records: Records, database: Database, *, claim: Claim, record: Record, error: TurnledgerError) -> None:
    """After a take-over that came to nothing: end a turn that has ended or whose work is done, park any other again.

    A turn that somebody else has claimed is theirs.
    """
    if isinstance(error, StaleTurn):
        return
    if isinstance(error, TurnEnded):
        records.end(claim, ledger=record.ledger, state=error.state, fields={}, operation=new_token())
    elif isinstance(error, AlreadyHandled):
        _end_handled(records, database, claim=claim, record=record, first=error.turn_id)
    else:
        blocked = error.reason if isinstance(error, TurnBlocked) else record.blocked
        fields: Fields = {"state": "parked", "reason": record.reason or OWNER_LOST, "blocked": blocked}
        records.save(claim, fields={**fields, "slice": record.slice - 1}, lease="give up")  # nobody ran the turn


def _end_handled(records: Records, database: Database, *, claim: Claim, record: Record, first: str) -> None:
    """The work is done: by this run itself, or by `first`, another run of its work key."""
    own = first == record.turn_id
    ended_at_ms = records.end(
        claim,
        ledger=record.ledger,
        state="committed" if own else "abandoned",
        fields={"outcome": "completed" if own else "duplicate", "first": "" if own else first},
        operation=new_token(),
    )
    if own or not record.recorded:
        return
    try:
        _write_duplicate(database, record, first=first, now=time_text(ended_at_ms))
    except (StoreBusy, StoreUnavailable) as trouble:  # upkeep writes it; the caller is to hear that the work is done
        log.warning("duplicate_not_written", **names(record.turn_id, record.ledger), first=first, reason=str(trouble))


def _write_duplicate(database: Database, record: Record, *, first: str, now: str) -> None:
    terminal = duplicate_event(record.turn_id, duplicate_of=first, now=now)
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None:  # the first run is not committed either
            return
        run = Run(record.turn_id, head.ledger_id, record.work_key, record.epoch, 0, None, first)
        end_run(connection, head, run=run, outcome="duplicate", started_at=record.started_at, row=terminal)
