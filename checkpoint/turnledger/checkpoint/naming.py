"""What every log line and span of a turn carries: ids and names, never content."""

from turnledger.checkpoint.keys import job_id
from turnledger.store import LedgerName


def names(turn_id: str, ledger: LedgerName) -> dict[str, str]:
    """Of a turn that runs, or of any turn where no job is concerned."""
    return {"turn_id": turn_id, "agent": ledger.agent, "conversation": ledger.conversation}


def job_names(turn_id: str, ledger: LedgerName) -> dict[str, str]:
    """Of a turn on its way into Postgres: also the job that commits it."""
    return {**names(turn_id, ledger), "job_id": job_id(turn_id)}
