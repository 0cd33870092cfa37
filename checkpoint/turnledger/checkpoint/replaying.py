"""The replayable model history as a turn sees it: committed steps, and those still on their way."""

from turnledger.checkpoint.earlier import not_committed
from turnledger.checkpoint.record import PendingTurn, Record
from turnledger.checkpoint.records import Records
from turnledger.store import CorruptData, Database, Step
from turnledger.store.history import replay
from turnledger.store.ledger import find_runs, read_head
from turnledger.store.steps import decode_step


def model_history(records: Records, database: Database, *, record: Record) -> list[Step]:
    """The steps of the ledger's other turns, oldest first, each once; Redis is read before Postgres.

    Of a turn that is not recorded: what it has put in the place of its own steps.

    Raises:
        UnsupportedEvent, CorruptData: a stored step cannot be read; names it.
        CheckpointUnavailable, StoreUnavailable, StoreBusy: try again.
    """
    if not record.recorded:
        return [decode_step(step) for step in record.replacement]
    view = records.look(record.ledger, turn_id=record.turn_id)
    uncommitted = [turn for turn in view.uncommitted if turn.turn_id != record.turn_id]
    with database.snapshot() as connection:
        head = read_head(connection, record.ledger)
        committed = [] if head is None else replay(connection, head)
        runs = find_runs(connection, [turn.turn_id for turn in uncommitted])
    moving = [
        (turn.turn_id, runs[turn.turn_id].steps_written if turn.turn_id in runs else 0, _kept_steps(turn))
        for turn in not_committed(uncommitted, runs)
    ]
    wire = records.steps_of(moving)
    return [*committed, *(decode_step(step) for steps in wire for step in steps)]


def _kept_steps(turn: PendingTurn) -> int:
    if turn.kept_steps is None:
        raise CorruptData(f"the record of pending turn {turn.turn_id} cannot be read", where=turn.turn_id)
    return turn.kept_steps
