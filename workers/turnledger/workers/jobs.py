"""The functions that RQ runs, by these dotted names. Their arguments are ids and nothing else."""

import os
from functools import lru_cache

from rq import Retry, get_current_job
from rq.executions import Execution

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreSettings, read_settings
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.settings import WorkerSettings

ENDLESS = 1_000_000_000  # how often a job may go back to the queue: a completed turn is never given up


def persist_turn(turn_id: str) -> Retry | None:
    """Commit this turn, and with it those that queue behind it; see `Committer.persist`.

    Trouble that passes puts the job back at the end of its queue. A refusal is final: the job fails at once,
    with the reason, and an operator who runs it again tries the commit again.
    """
    _forget_dead_executions()
    try:
        process_committer().persist(turn_id)
    except CommitPostponed:
        return Retry(max=ENDLESS)
    except TurnRejected:
        _forbid_retries()
        raise
    return None


def process_committer() -> Committer:
    """The committer of this process: a work horse that was forked makes its own."""
    return _committer(os.getpid())


@lru_cache(maxsize=1)
def _committer(process_id: int) -> Committer:  # noqa: ARG001  # the process is the key
    return Committer(
        records=Records.from_settings(read_settings(CheckpointSettings)),
        database=Database(read_settings(StoreSettings)),
        settings=read_settings(WorkerSettings),
    )


def _forget_dead_executions() -> None:
    """RQ lists an execution for a minute longer than it keeps it, and fails to delete a job that lists a lost one.

    So the second run of a job whose worker was killed would do its work and still end in the failed registry.
    """
    job = get_current_job()
    if job is None:
        return
    registry = job.execution_registry
    for execution_id in registry.get_execution_ids():
        execution = Execution(execution_id, job.id, connection=job.connection)
        if not job.connection.exists(execution.key):
            job.connection.zrem(registry.key, execution_id)


def _forbid_retries() -> None:
    job = get_current_job()
    if job is not None:
        job.retries_left = 0
