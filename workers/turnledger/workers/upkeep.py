"""The jobs of the queue `upkeep`, which RQ runs by these dotted names. Their arguments are ids and nothing else."""

import os
import threading
import time
from functools import lru_cache

from rq import Retry

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.keys import decode_ledger
from turnledger.store import Database, StoreBusy, StoreSettings, StoreUnavailable, read_settings
from turnledger.store.logs import get_logger
from turnledger.store.retention import Retention
from turnledger.workers.reconciler import Reconciler, Report
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

stop_requested = threading.Event()  # set by a worker that was asked to stop; a sweep looks at it between two steps

MOST_SHARES = 1_000_000  # a sweep ends by itself; no number of its shares is a reason to give it up
_PASSES = (StoreUnavailable, StoreBusy, CheckpointUnavailable)


def reconcile() -> None:
    """Sweep everything; trouble that passes ends the sweep, and the clock asks for the next one.

    Raises:
        StoreMisconfigured, CheckpointMisconfigured: a person has to act.
    """
    try:
        report = process_reconciler().sweep(stopped=stop_requested.is_set)
    except _PASSES as error:
        log.warning("sweep_failed", reason=str(error))
        return
    _log_report("sweep_done", report)


def invalidate_ledger(ledger: str) -> None:
    """Look at the open turns of one ledger, named as in keys, after its history was replaced; raises as `reconcile`."""
    try:
        report = process_reconciler().invalidate_ledger(decode_ledger(ledger))
    except _PASSES as error:
        log.warning("invalidation_failed", reason=str(error))
        return
    _log_report("invalidation_done", report)


def sweep_retention() -> Retry | None:
    """Delete what is past its age by the configuration in force; raises as `reconcile`.

    Before it has held up the queue for too long it goes to its end, and continues from there.
    """
    deadline = time.monotonic() + read_settings(WorkerSettings).retention_run_s
    try:
        removed = process_retention().sweep(stopped=lambda: stop_requested.is_set() or time.monotonic() > deadline)
    except _PASSES as error:
        log.warning("retention_failed", reason=str(error))
        return None
    note = log.info if removed.entries or removed.turns else log.debug
    note("retention_done", entries=removed.entries, turns=removed.turns, events=removed.events, whole=removed.whole)
    return None if removed.whole or stop_requested.is_set() else Retry(max=MOST_SHARES)


def process_retention() -> Retention:
    """The retention of this process; as `process_reconciler`."""
    return _retention(os.getpid())


@lru_cache(maxsize=1)
def _retention(process_id: int) -> Retention:  # noqa: ARG001  # the process is the key
    settings = read_settings(WorkerSettings)
    return Retention(
        Database(read_settings(StoreSettings)),
        least_age_s=settings.sweep_interval_s,
        batch_rows=settings.retention_batch_rows,
    )


def process_reconciler() -> Reconciler:
    """The reconciler of this process: a work horse that was forked makes its own."""
    return _reconciler(os.getpid())


@lru_cache(maxsize=1)
def _reconciler(process_id: int) -> Reconciler:  # noqa: ARG001  # the process is the key
    return Reconciler.from_settings()


def _log_report(event: str, report: Report) -> None:
    note = log.info if report.changed else log.debug
    note(
        event,
        examined=report.examined,
        done=dict(report.done),
        changed=report.changed,
        postponed=report.postponed,
        reported=report.reported,
        whole=report.whole,
    )
