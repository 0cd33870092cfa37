"""The jobs of the queue `upkeep`, which RQ runs by these dotted names. Their arguments are ids and nothing else."""

import os
import threading
from functools import lru_cache

import structlog

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.keys import decode_ledger
from turnledger.store import StoreBusy, StoreUnavailable
from turnledger.workers.reconciler import Reconciler, Report

log = structlog.get_logger(__name__)

stop_requested = threading.Event()  # set by a worker that was asked to stop; a sweep looks at it between two steps

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
