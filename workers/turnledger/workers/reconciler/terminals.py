"""The last event of a run, written by another than its holder.

Each is written under the ledger's lock, once, and never over a terminal that stands.
"""

from collections.abc import Callable

from turnledger.store import Database, LedgerName
from turnledger.store.activity import child_ended
from turnledger.store.events import PROVISIONAL_CODE, EventRow, duplicate_event, failed_event
from turnledger.store.ledger import EndedAs, Run, append, end_run, lock_ledger
from turnledger.store.standing import find_parent, lose_run
from turnledger.store.times import time_text

LOST_WORK_CODE = "persistence_failed"
UNTOLD_CODE = "agent_run_failed"  # of a run whose record does not say why it ended


class Terminals:
    """Writes terminals into one Postgres. Each answers whether it wrote one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def duplicate(self, run: Run, *, ledger: LedgerName, first: str, started_at: str, now_ms: int) -> bool:
        """The work of this run had been completed by another one."""
        row = duplicate_event(run.turn_id, duplicate_of=first, now=time_text(now_ms))
        return self._end(run._replace(duplicate_of=first), ledger, outcome="duplicate", started_at=started_at, row=row)

    def ended(
        self,
        run: Run,
        *,
        ledger: LedgerName,
        outcome: EndedAs,
        code: str,
        failure_id: str,
        started_at: str,
        ended_at_ms: int,
    ) -> bool:
        """The run had failed or been abandoned, and Postgres was not told."""
        row = failed_event(
            run.turn_id, code=code or UNTOLD_CODE, failure_id=failure_id or None, now=time_text(ended_at_ms)
        )
        return self._end(run, ledger, outcome=outcome, started_at=started_at, row=row)

    def lost_work(self, turn_id: str, *, ledger: LedgerName, now_ms: int, still: Callable[[], bool]) -> bool:
        """A completed turn has no record any more; `still` says so once the ledger is locked.

        Should some process or some disk still hold it, its completion overrules this. Where the ledger is a child,
        its parent's log learns that it has ended.
        """
        return self._lose(turn_id, ledger, code=LOST_WORK_CODE, now_ms=now_ms, still=still)

    def lost_session(self, turn_id: str, *, ledger: LedgerName, now_ms: int, still: Callable[[], bool]) -> bool:
        """An unfinished turn has had no record for too long; `still` says so once the ledger is locked.

        As `lost_work` in all else.
        """
        return self._lose(turn_id, ledger, code=PROVISIONAL_CODE, now_ms=now_ms, still=still)

    def _end(self, run: Run, ledger: LedgerName, *, outcome: EndedAs, started_at: str, row: EventRow) -> bool:
        with self._database.transaction() as connection:
            head = lock_ledger(connection, ledger)
            if head is None:
                return False
            mine = run._replace(ledger_id=head.ledger_id)
            stands = end_run(connection, head, run=mine, outcome=outcome, started_at=started_at, row=row)
        return stands.outcome == outcome

    def _lose(self, turn_id: str, ledger: LedgerName, *, code: str, now_ms: int, still: Callable[[], bool]) -> bool:
        """A parent is locked before its child, as it is when a child is opened."""
        now = time_text(now_ms)
        with self._database.transaction() as connection:
            parent = find_parent(connection, ledger)
            parent_head = None if parent is None else lock_ledger(connection, parent)
            head = lock_ledger(connection, ledger)
            if head is None or not still() or not lose_run(connection, head, turn_id, code=code, now=now):
                return False
            if parent_head is not None:
                row = child_ended(ledger.agent, conversation=ledger.conversation, outcome=code, now=now)
                append(connection, parent_head, [row], turn_id=None)
        return True
