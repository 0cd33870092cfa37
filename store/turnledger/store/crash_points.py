"""Named places at which a test may have a process killed; each lies between two systems' writes.

``TURNLEDGER_CRASH_AT=commit.locked`` kills this process with SIGKILL when it gets there, and
``commit.locked:3`` when it gets there for the third time. Without the variable a crash point does nothing.
"""

import os
import signal
from itertools import count

CRASH_POINTS = {
    "start.recorded": "Postgres knows the run, Redis does not",
    "start.opened": "the record is made, the engine does not know it yet",
    "save.sent": "the steps are in Redis, the engine does not know it yet",
    "complete.sent": "the turn is completed and queued, the engine does not know it yet",
    "end.sent": "the record is failed or abandoned, Postgres has no terminal",
    "resume.claimed": "the record has a new owner, Postgres has the old epoch",
    "resume.fenced": "Postgres has the new epoch, the record the old one",
    "replace.committed": "Postgres has the new history, the record has the old cursor",
    "replace.advanced": "the record has the new cursor, the other open turns are not marked",
    "direct.committed": "the node has committed the turn itself, the record is unfinished",
    "spool.written": "the turn is on disk, the engine does not know it yet",
    "commit.taken": "a worker has the job, nothing is read",
    "commit.locked": "the ledgers are locked, nothing is read",
    "commit.read": "the turns are read, nothing is written",
    "commit.written": "the rows are written, the transaction is open",
    "commit.committed": "the transaction is committed, Redis does not know it",
    "commit.finished": "Redis knows it, the job has not returned",
    "fit.begun": "a worker has a turn to rewrite, no model is asked",
    "fit.rewritten": "the models have answered, Redis does not know it",
    "fit.stored": "the accounts are stored and the commit is queued, the job has not returned",
    "upkeep.marked": "the other open turns are marked, no look at their ledger is asked for",
    "upkeep.ended": "the reconciler has ended a record, Postgres has no terminal",
    "upkeep.told": "the reconciler has written a terminal, the record is as it was",
}

_name, _, _pass = os.environ.get("TURNLEDGER_CRASH_AT", "").partition(":")
_passes = count(1)


def crash_point(name: str) -> None:
    """Kill this process here when the environment asks for it."""
    if name == _name and next(_passes) == int(_pass or 1):
        os.kill(os.getpid(), signal.SIGKILL)
