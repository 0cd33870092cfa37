"""A turn replaces its ledger's model history, or opens a child ledger for another agent."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from turnledger.checkpoint.commit_point import CommitPoint
from turnledger.checkpoint.errors import CheckpointUnavailable, StaleTurn
from turnledger.checkpoint.naming import names
from turnledger.checkpoint.record import Cursor, Record
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Database, InvalidInput, LedgerName, Step
from turnledger.store.activity import child_ended, child_started
from turnledger.store.crash_points import crash_point
from turnledger.store.history import replay
from turnledger.store.ledger import Run, append, create_ledgers, database_time, find_runs, insert_run, lock_ledger
from turnledger.store.logs import get_logger
from turnledger.store.replacement import Replacement, is_child, open_child, replace_history

log = get_logger(__name__)

CHILD_SOURCE = "child"


@dataclass(frozen=True, slots=True)
class ReplaceableHistory:
    """The model history at one moment, to compute a replacement from.

    `version` and `through_seq` say which one it was; steps that come later follow the replacement.
    """

    version: int
    through_seq: int
    steps: tuple[Step, ...]


def history_to_replace(records: Records, database: Database, *, ledger: LedgerName) -> ReplaceableHistory:
    """Commit what is pending for the ledger, then read its history from Postgres alone, under its lock.

    Raises:
        StoreUnavailable, StoreBusy, CheckpointUnavailable: try again.
        StoreRefused, CorruptData: a pending turn cannot be stored; a worker will set it aside.
        UnsupportedEvent: a stored step cannot be read.
    """
    create_ledgers(database, [ledger])
    CommitPoint(records=records, database=database, unfitted="names").commit_pending(ledger)
    with database.transaction() as connection:
        head = lock_ledger(connection, ledger)
        assert head is not None, "the ledger was just made"
        return ReplaceableHistory(head.history_version, head.next_seq - 1, tuple(replay(connection, head)))


def replace_in_postgres(database: Database, replacement: Replacement, *, record: Record) -> Cursor:
    """One transaction: the covered steps, the replacement, the new version. The cursor after it.

    A run that Postgres could not be told of at its start is made: the row counts the steps that are covered.

    Raises:
        StaleHistory: history was replaced meanwhile, or the turn taken over; nothing was written.
        InvalidInput: the replacement is refused; nothing was written.
        StoreUnavailable, StoreBusy: try again, from reading the history on.
    """
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        assert head is not None, "the history was read from this ledger"
        if record.turn_id not in find_runs(connection, [record.turn_id]):
            run = Run(record.turn_id, head.ledger_id, record.work_key, record.epoch, 0, None, None)
            insert_run(connection, run, started_at=record.started_at)
        after = replace_history(connection, head, replacement, now=database_time(connection))
    crash_point("replace.committed")
    return Cursor(after.ledger_id, after.history_version, after.next_seq - 1, replacement.turn_id)


def mark_others(records: Records, *, ledger: LedgerName, version: int, by: str) -> None:
    """Tell the ledger's other open turns, as far as Redis can be told now; the reconciler does the rest."""
    upkeep = Upkeep(records)
    try:
        marked = upkeep.mark_replaced(ledger, version=version, by=by)
        crash_point("upkeep.marked")
        upkeep.request_invalidation(ledger)
    except CheckpointUnavailable as error:
        log.warning("others_not_marked", **names(by, ledger), reason=str(error))
        return
    log.info("history_replaced", **names(by, ledger), version=version, marked=marked)


def new_child(agent: str) -> LedgerName:
    """The name of a ledger that nobody has yet."""
    return LedgerName(agent, f"{CHILD_SOURCE}:{uuid.uuid4()}")


def open_child_ledger(
    database: Database, record: Record, *, child: LedgerName, steps: Sequence[Step], model: str
) -> None:
    """One transaction: the child ledger with its first history, and `child_started` in its parent's log.

    Raises:
        StaleTurn: the turn was taken over; nothing was written.
        InvalidInput: the steps are refused; nothing was written.
        StoreUnavailable, StoreBusy: nothing was written.
    """
    create_ledgers(database, [record.ledger])
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        assert head is not None, "the ledger was just made"
        run = find_runs(connection, [record.turn_id]).get(record.turn_id)
        if run is not None and run.epoch != record.epoch:
            raise StaleTurn(f"turn {record.turn_id} was taken over; it opens no child")
        now = database_time(connection)
        replacement = Replacement(record.turn_id, record.epoch, 0, -1, tuple(steps), (), model, child.agent)
        open_child(connection, head, child, replacement=replacement, now=now)
        started = child_started(child.agent, conversation=child.conversation, now=now)
        append(connection, head, [started], turn_id=record.turn_id)


def end_child_ledger(database: Database, record: Record, *, child: LedgerName, outcome: str) -> None:
    """`child_ended` in the parent's log, once.

    Raises:
        InvalidInput: this ledger has no such child.
        StoreUnavailable, StoreBusy: nothing was written.
    """
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None or not is_child(connection, head, child):
            raise InvalidInput(f"{child.conversation} is no child ledger of {record.ledger.conversation}")
        ended = child_ended(
            child.agent, conversation=child.conversation, outcome=outcome, now=database_time(connection)
        )
        append(connection, head, [ended], turn_id=record.turn_id)
