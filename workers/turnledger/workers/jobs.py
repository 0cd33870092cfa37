"""The functions that RQ runs, by these dotted names. Their arguments are ids and nothing else."""

import os
from functools import lru_cache

from rq import Retry, get_current_job
from rq.executions import Execution

from turnledger.checkpoint import CheckpointSettings, CheckpointUnavailable
from turnledger.checkpoint.keys import decode_ledger
from turnledger.checkpoint.records import Records
from turnledger.store import Database, InvalidInput, StoreBusy, StoreSettings, StoreUnavailable, read_settings
from turnledger.store.logs import get_logger
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed, RewritingPostponed, TurnRejected
from turnledger.workers.rewriting import Condenser, Fitter, OpenAIRewriter, RewriteSettings, configured_settings
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.upkeep import stop_requested

log = get_logger(__name__)

FIT_TRIES = 10  # how often a job of rewriting may go back: by then the turn's time is up
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


def fit_turn(turn_id: str) -> Retry | None:
    """Have this turn's over-long pieces rewritten, and queue its commit; see `Fitter.fit`.

    Trouble with Redis puts the job back, a few times: the turn does not wait for it longer than its time.
    """
    _forget_dead_executions()
    try:
        process_fitter().fit(turn_id)
    except (RewritingPostponed, CheckpointUnavailable) as error:
        log.warning("rewriting_postponed", turn_id=turn_id, reason=str(error))
        return Retry(max=FIT_TRIES)
    return None


def condense_ledger(ledger: str) -> None:
    """Have the older entries of a ledger, named as in keys, condensed for its block; see `Condenser.condense`.

    Trouble that passes ends the job: until the next commit asks again, those entries are counted.
    """
    try:
        process_condenser().condense(decode_ledger(ledger))
    except (StoreUnavailable, StoreBusy, CheckpointUnavailable) as error:
        log.warning("condensing_failed", reason=str(error))


def process_condenser() -> Condenser:
    """The condenser of this process: a work horse that was forked makes its own."""
    return _condenser(os.getpid())


@lru_cache(maxsize=1)
def _condenser(process_id: int) -> Condenser:  # noqa: ARG001  # the process is the key
    settings = _rewrite_settings()
    return Condenser(
        database=Database(read_settings(StoreSettings)),
        records=Records.from_settings(read_settings(CheckpointSettings)),
        rewriter=OpenAIRewriter(settings).within if settings else None,
        within_s=(settings or RewriteSettings()).rewrite_turn_s,
        stopped=stop_requested.is_set,
    )


def process_fitter() -> Fitter:
    """The fitter of this process: a work horse that was forked makes its own."""
    return _fitter(os.getpid())


@lru_cache(maxsize=1)
def _fitter(process_id: int) -> Fitter:  # noqa: ARG001  # the process is the key
    settings = _rewrite_settings()
    return Fitter(
        records=Records.from_settings(read_settings(CheckpointSettings)),
        rewriter=OpenAIRewriter(settings).within if settings else None,
        within_s=(settings or RewriteSettings()).rewrite_turn_s,
        settings=read_settings(WorkerSettings),
        stopped=stop_requested.is_set,
    )


def _rewrite_settings() -> RewriteSettings | None:
    """Without usable settings a turn has names: it must not wait for somebody to correct them."""
    try:
        return configured_settings()
    except InvalidInput as error:
        log.error("rewriting_not_configured", reason=str(error))
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
