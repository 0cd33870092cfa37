"""The part of a resume that Postgres decides: the epoch, and whether there is anything left to do."""

from turnledger.checkpoint.errors import AlreadyHandled, TurnBlocked, TurnEnded
from turnledger.checkpoint.record import Record
from turnledger.checkpoint.records import Claim, Records, already_handled, new_token, turn_ended
from turnledger.store import Database, TurnledgerError
from turnledger.store.events import duplicate_event
from turnledger.store.ledger import Answered, Head, Run, end_run, find_answered, lock_ledger, raise_epoch
from turnledger.store.times import time_text


def take_over(database: Database, record: Record) -> int:
    """Fence off, in Postgres, whoever held the turn before. Returns the new epoch.

    Raises:
        AlreadyHandled: this run, or another of its work key, is committed.
        TurnEnded: this run failed or was abandoned.
        TurnBlocked: its history was replaced.
        StoreUnavailable, StoreBusy: try again.
    """
    if record.superseded_by:
        first_turn_id, _, entry_id = record.superseded_by.partition(" ")
        raise already_handled(first_turn_id, entry_id=entry_id)
    if not record.recorded:
        return record.epoch + 1
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None:
            return record.epoch + 1
        raised = raise_epoch(connection, record.turn_id)
        wanted = (head.ledger_id, record.work_key)
        answered = find_answered(connection, [wanted]).get(wanted)
    epoch, outcome, first = raised or (record.epoch + 1, None, None)
    _refuse_decided(record, outcome=outcome, first=first, answered=answered)
    _refuse_replaced(record, head)
    return epoch


def _refuse_decided(record: Record, *, outcome: str | None, first: str | None, answered: Answered | None) -> None:
    if outcome in ("completed", "duplicate"):
        raise already_handled(first or record.turn_id, entry_id=None if first else record.entry_id)
    if outcome in ("failed", "abandoned"):
        raise turn_ended(record.turn_id, state=outcome)
    if answered is not None:
        raise already_handled(answered.turn_id, entry_id=answered.entry_id)


def _refuse_replaced(record: Record, head: Head) -> None:
    if head.history_version != record.cursor.history_version:
        raise TurnBlocked(
            f"turn {record.turn_id} was built on history version {record.cursor.history_version}, its ledger is "
            f"at {head.history_version}",
            reason="history_replaced",
        )


def let_go(records: Records, database: Database, *, claim: Claim, record: Record, error: TurnledgerError) -> None:
    """After a take-over that came to nothing: end a turn that has ended or whose work is done, park any other again."""
    if isinstance(error, TurnEnded):
        records.end(claim, ledger=record.ledger, state=error.state, fields={}, operation=new_token())
        return
    if not isinstance(error, AlreadyHandled):
        fields: dict[str, str | int] = {"state": "parked", "reason": record.reason or "owner_lost"}
        records.save(claim, fields=fields, lease="give up")
        return
    first = error.turn_id
    own = first == record.turn_id
    ended_at_ms = records.end(
        claim,
        ledger=record.ledger,
        state="committed" if own else "abandoned",
        fields={"outcome": "completed" if own else "duplicate", "first": "" if own else first},
        operation=new_token(),
    )
    if not own:
        _write_duplicate(database, record, first=first, now=time_text(ended_at_ms))


def _write_duplicate(database: Database, record: Record, *, first: str, now: str) -> None:
    terminal = duplicate_event(record.turn_id, duplicate_of=first, now=now)
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        assert head is not None, "the ledger of a committed turn is there"
        run = Run(record.turn_id, head.ledger_id, record.work_key, record.epoch, 0, None, first)
        end_run(connection, head, run=run, outcome="duplicate", started_at=record.started_at, row=terminal)
