"""`turnledger requeue`: a rejected turn gets another try."""

from dataclasses import dataclass

from turnledger.checkpoint.records import Records
from turnledger.store.identity import check_turn_id
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.cli.servers import the_records

PENDING = "completed"


@dataclass(frozen=True, slots=True)
class Requeued:
    """What the turn was before it was queued; `reinstated` is whether this call took it out of the rejected ones."""

    was: str
    reinstated: bool


def requeue_turn(records: Records, turn_id: str) -> Requeued:
    """Put a rejected turn behind its ledger's pending turns, with a job; a pending one gets the job it lost.

    Raises:
        TurnNotFound: Redis knows no such turn.
        NotThere: the turn is in a state in which there is nothing to commit.
        CheckpointUnavailable: try again.
    """
    record, _ = records.read(turn_id)
    reinstated = records.reinstate(turn_id, ledger=record.ledger)
    state = records.restore(turn_id, ledger=record.ledger, job="make")
    if state != PENDING:
        raise NotThere(f"turn {turn_id} is {state or 'gone'}; only a rejected or a pending turn can be queued again")
    return Requeued(record.state, reinstated)


def run_requeue(turn_id: str, *, output: Output) -> None:
    """Requeue a turn and say so. Raises as `requeue_turn`."""
    with the_records() as records:
        requeued = requeue_turn(records, check_turn_id(turn_id))
    if output == "json":
        print_json({"turn_id": turn_id, "was": requeued.was, "queued": True})
    else:
        known = "was rejected" if requeued.reinstated else "was pending"
        console().print(
            f"Turn {turn_id} {known} and is queued; `turnledger show --turn {turn_id}` tells what becomes of it.",
            soft_wrap=True,
        )
