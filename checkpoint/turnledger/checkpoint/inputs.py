"""What comes in for a parked turn."""

from typing import NoReturn

from turnledger.checkpoint.record import UNFINISHED, Record
from turnledger.checkpoint.records import already_running, turn_ended
from turnledger.store import Database, LedgerName, Message
from turnledger.store.events import message_event
from turnledger.store.ledger import append, create_ledgers, database_time, lock_ledger


def raise_unless_parked(record: Record) -> NoReturn:
    """Say why nothing can be appended to this turn.

    Raises:
        AlreadyRunning: it is running, or may be again.
        TurnEnded: it has ended.
    """
    if record.state in UNFINISHED:
        raise already_running(record.turn_id, state=record.state, owner=record.owner)
    raise turn_ended(record.turn_id, state=record.state)


def record_message(database: Database, ledger: LedgerName, *, message: Message, turn_id: str) -> None:
    """Write the chat record into the ledger's log, once.

    Raises:
        StoreUnavailable, StoreBusy: try again.
    """
    create_ledgers(database, [ledger])
    with database.transaction() as connection:
        head = lock_ledger(connection, ledger)
        assert head is not None, "the ledger was just made"
        append(connection, head, [message_event(message, now=database_time(connection))], turn_id=turn_id)
