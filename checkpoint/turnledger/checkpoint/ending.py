"""What Postgres knows of a turn that ends without its commit, and of one that somebody else has taken over."""

from collections.abc import Mapping
from typing import Literal

from sqlalchemy import Connection

from turnledger.checkpoint.errors import StaleTurn
from turnledger.checkpoint.naming import names
from turnledger.checkpoint.record import Record
from turnledger.store import Database, StoreBusy, StoreUnavailable
from turnledger.store.events import failed_event
from turnledger.store.identity import check_label
from turnledger.store.ledger import EndedAs, Run, end_run, find_answered, find_runs, lock_ledger
from turnledger.store.logs import get_logger

log = get_logger(__name__)

Intention = Literal["send", "write"]
# The ends of a run that its holder may still follow; a write after its own commit changes nothing there.
_MAY_FOLLOW: Mapping[Intention, tuple[str | None, ...]] = {
    "send": (None, "lost"),
    "write": (None, "lost", "completed", "duplicate"),
}


def check_failure(record: Record, *, code: str, failure_id: str | None) -> None:
    """Raises InvalidInput: this is no reason that the log of a ledger may hold."""
    if failure_id is not None:
        check_label(failure_id, where="failure_id")
    failed_event(record.turn_id, code=code, failure_id=failure_id, now="")


def write_terminal(
    database: Database, record: Record, *, outcome: EndedAs, code: str, failure_id: str | None, now: str
) -> None:
    """The end of the run and its event, once; nothing for a turn that is not recorded, or whose ledger is gone.

    Raises:
        StaleTurn: the turn was taken over; nothing was written.
        StoreUnavailable, StoreBusy: try again.
    """
    if not record.recorded:
        return
    terminal = failed_event(record.turn_id, code=code, failure_id=failure_id, now=now)
    with database.transaction() as connection:
        head = lock_ledger(connection, record.ledger)
        if head is None:
            return
        run = Run(record.turn_id, head.ledger_id, record.work_key, record.epoch, 0, None, None)
        stands = end_run(connection, head, run=run, outcome=outcome, started_at=record.started_at, row=terminal)
    if stands.epoch > record.epoch:
        raise StaleTurn(f"turn {record.turn_id} was taken over; it has not ended", turn_id=record.turn_id)


def refuse_if_taken_over(database: Database, record: Record, *, before: Intention) -> None:
    """Who takes a turn over raises its epoch in Postgres; where that cannot be asked, nothing is known against it.

    Before a reply is sent, one to the same work key by another run stands against it too, as does an own one.

    Raises:
        StaleTurn: the turn was taken over or has ended, or its work key is answered.
    """
    try:
        with database.transaction() as connection:
            run = find_runs(connection, [record.turn_id]).get(record.turn_id)
            wanted = [] if run is None else [(run.ledger_id, record.work_key)]
            answered = find_answered(connection, wanted)
    except (StoreUnavailable, StoreBusy) as error:
        log.warning("ownership_not_checked", **names(record.turn_id, record.ledger), reason=str(error))
        return
    if run is None:
        return
    is_answered = before == "send" and bool(answered)
    if run.epoch > record.epoch or run.outcome not in _MAY_FOLLOW[before] or is_answered:
        raise StaleTurn(f"turn {record.turn_id} was taken over or has ended; nothing was sent", turn_id=record.turn_id)


def refuse_stale(connection: Connection, record: Record) -> None:
    """Refuse a holder that was taken over; the caller has the ledger's lock.

    Raises:
        StaleTurn: the turn's epoch in Postgres is a later one.
    """
    run = find_runs(connection, [record.turn_id]).get(record.turn_id)
    if run is not None and run.epoch > record.epoch:
        raise StaleTurn(f"turn {record.turn_id} was taken over; nothing was written", turn_id=record.turn_id)
