"""`turnledger requeue`: a rejected turn gets another try."""

from turnledger.store.identity import check_turn_id
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.cli.servers import the_records

PENDING = "completed"


def run_requeue(turn_id: str, *, output: Output) -> None:
    """Put a rejected turn behind its ledger's pending turns, with a job; a pending one gets the job it lost.

    Raises:
        TurnNotFound: Redis knows no such turn.
        NotThere: the turn is in a state in which there is nothing to commit.
        CheckpointUnavailable: try again.
    """
    with the_records() as records:
        record, _ = records.read(check_turn_id(turn_id))
        reinstated = records.reinstate(turn_id, ledger=record.ledger)
        state = records.restore(turn_id, ledger=record.ledger, job="make")
    if state != PENDING:
        raise NotThere(f"turn {turn_id} is {state or 'gone'}; only a rejected or a pending turn can be queued again")
    if output == "json":
        print_json({"turn_id": turn_id, "was": record.state, "queued": True})
    else:
        known = "was rejected" if reinstated else "was pending"
        console().print(
            f"Turn {turn_id} {known} and is queued; `turnledger show --turn {turn_id}` tells what becomes of it.",
            soft_wrap=True,
        )
