"""What comes in for a parked turn."""

from collections.abc import Sequence
from typing import NoReturn

from turnledger.checkpoint.errors import OversizedPayload
from turnledger.checkpoint.record import UNFINISHED, Record
from turnledger.checkpoint.records import already_running, turn_ended
from turnledger.checkpoint.turn_steps import byte_size
from turnledger.store import Database, InvalidInput, LedgerName, Message, Step
from turnledger.store.events import message_event
from turnledger.store.ledger import append, create_ledgers, database_time, lock_ledger
from turnledger.store.open_calls import OpenCalls
from turnledger.store.steps import decode_step, encode_step


def raise_unless_parked(record: Record) -> NoReturn:
    """Say why nothing can be appended to this turn.

    Raises:
        AlreadyRunning: it is running, or may be again.
        TurnEnded: it has ended.
    """
    if record.state in UNFINISHED:
        raise already_running(record.turn_id, state=record.state, owner=record.owner)
    raise turn_ended(record.turn_id, state=record.state)


def check_input(step: Step, *, saved: Sequence[str], most_bytes: int) -> None:
    """Refuse what may not follow these saved steps of a turn that goes on.

    Raises:
        InvalidInput: it is no input: a step of the model, or one that answers a call that is not open.
        OversizedPayload: it has more bytes than one call may carry.
    """
    OpenCalls.of(map(decode_step, saved)).check([step], allow_open=True, where="input")
    if step.role == "assistant" or step.calls:
        raise InvalidInput(f"a step of role {step.role!r} is no input for a turn; give a user step", where="step")
    size = byte_size(encode_step(step))
    if size > most_bytes:
        raise OversizedPayload(f"this call would carry {size} bytes, at most {most_bytes} are allowed")


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
