"""Kills a worker at the worst moment: while it holds a turn that is not committed yet."""

import os
import signal
from dataclasses import dataclass

from turnledger.checkpoint import TurnNotFound
from turnledger.checkpoint.records import Records
from turnledger.workers.cli.fleet import Fleet
from turnledger.workers.supervisor import Supervisor

PENDING = "completed"


@dataclass(frozen=True, slots=True)
class Killed:
    """A worker that is gone, and the turn that it had in hand."""

    process_id: int
    turn_id: str


def kill_a_busy_worker(supervisor: Supervisor, *, fleet: Fleet, records: Records) -> Killed | None:
    """SIGKILL the first worker found with an uncommitted turn in hand; None: none has one right now.

    Each is frozen while it is looked at, so that what is seen is still true when it dies.
    """
    for process_id in fleet.at_work(supervisor.process_ids):
        os.kill(process_id, signal.SIGSTOP)
        try:
            turn_id = fleet.turn_in_hand(process_id)
            if turn_id is not None and is_pending(records, turn_id):
                os.kill(process_id, signal.SIGKILL)
                return Killed(process_id, turn_id)
        finally:
            os.kill(process_id, signal.SIGCONT)  # a killed process does not mind
    return None


def is_pending(records: Records, turn_id: str) -> bool:
    """Whether the turn is completed and not committed."""
    try:
        record, _ = records.read(turn_id)
    except TurnNotFound:
        return False
    return record.state == PENDING
