"""The clock: one replica at a time commits what the queue has left lying, so recovery never hangs on RQ."""

import threading
import time

from sqlalchemy import Connection, text

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.fittings import Fittings
from turnledger.checkpoint.keys import readable_ledger
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.records import Overdue, Records
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import (
    CorruptData,
    Database,
    LedgerName,
    StoreBusy,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
)
from turnledger.store.database import translated
from turnledger.store.logs import get_logger
from turnledger.workers.alive import SignOfLife
from turnledger.workers.committer import Committer
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

CLOCK_LOCK = 7_355_608_002  # any number no other program uses; it names the lock, it means nothing
PRUNED_AT_ONCE = 1_000
_TROUBLE = (StoreUnavailable, StoreBusy, CheckpointUnavailable, StoreRefused, CorruptData)


class Clock:
    """Holds an advisory lock of Postgres while it is the one that ticks; another replica waits for it."""

    def __init__(self, *, records: Records, database: Database, committer: Committer, settings: WorkerSettings) -> None:
        self._records = records
        self._database = database
        self._committer = committer
        self._settings = settings
        self._upkeep = Upkeep(records)
        self._fittings = Fittings(records)
        self._sweep_due = 0.0
        self._retention_due = 0.0
        self._stopped = threading.Event()
        self._sign_of_life = SignOfLife(settings)
        self._connection: Connection | None = None

    def stop(self, *_: object) -> None:
        """End after the tick in hand; may be used as a signal handler."""
        self._stopped.set()

    def run(self) -> None:
        """Tick while the lock is held, ask for it otherwise, until `stop`.

        Raises:
            InvalidInput: no sign of life can be left where the settings want it.
        """
        with self._sign_of_life:
            while not self._stopped.is_set():
                self._sign_of_life.give()
                if self.holds_lock():
                    self.tick()
                    self._stopped.wait(self._settings.sweep_s)
                else:
                    self._stopped.wait(self._settings.clock_retry_s)
        self._release()

    def holds_lock(self) -> bool:
        """Whether this replica is the one that ticks; takes the lock when it is free."""
        try:
            with translated():
                if self._connection is None:
                    self._connection = self._connect()
                taken = self._connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": CLOCK_LOCK})
        except TurnledgerError as error:
            log.warning("clock_without_postgres", reason=str(error))
            self._release()
            return False
        if not taken:
            self._release()
        return bool(taken)

    def tick(self) -> int:
        """Commit the ledgers whose turns have been pending too long; returns how many turns were decided.

        Asks for a whole sweep, and for one of retention, when the last one was asked for long enough ago.
        """
        try:
            self._request_sweeps()
            decided = self.sweep()
            self._records.prune(older_than_s=self._settings.overdue_s, most=PRUNED_AT_ONCE)
        except CheckpointUnavailable as error:
            log.warning("sweep_failed", reason=str(error))
            return 0
        if decided:
            log.info("overdue_turns_committed", turns=decided)
        return decided

    def _request_sweeps(self) -> None:
        if time.monotonic() >= self._sweep_due:
            self._upkeep.request_sweep()
            self._sweep_due = time.monotonic() + self._settings.reconcile_s
        if time.monotonic() >= self._retention_due:
            self._upkeep.request_retention()
            self._retention_due = time.monotonic() + self._settings.sweep_interval_s

    def sweep(self) -> int:
        """One pass over the overdue turns, oldest first; a ledger in trouble holds up no other."""
        decided = 0
        for ledger, turns in self._overdue().items():
            if self._stopped.is_set():
                break
            if self._may_go_on(ledger, turns):
                decided += self._commit(ledger, [turn.turn_id for turn in turns])
        return decided

    def _overdue(self) -> dict[LedgerName, list[Overdue]]:
        found = self._records.overdue(older_than_s=self._settings.overdue_s, most=self._settings.sweep_turns)
        turns_of: dict[LedgerName, list[Overdue]] = {}
        for turn in found:
            ledger = readable_ledger(turn.ledger)
            if ledger is None:
                log.error("record_unreadable", turn_id=turn.turn_id, reason="its ledger has no name")
            else:
                turns_of.setdefault(ledger, []).append(turn)
        return turns_of

    def _may_go_on(self, ledger: LedgerName, turns: list[Overdue]) -> bool:
        """Whether not all of these wait; one whose job of rewriting is gone has waited long enough: it has names."""
        given_up: list[str] = []
        try:
            given_up = self._fittings.give_up([turn.turn_id for turn in turns if turn.waits])
        except CheckpointUnavailable as error:  # a full Redis takes no mark; the turn's time ends without one
            names = {"agent": ledger.agent, "conversation": ledger.conversation}
            log.warning("rewriting_not_given_up", **names, reason=str(error))
        for turn_id in given_up:
            log.warning("rewriting_given_up", **job_names(turn_id, ledger), reason="its job is gone")
        return bool(given_up) or not all(turn.waits for turn in turns)

    def _commit(self, ledger: LedgerName, turn_ids: list[str]) -> int:
        decided: set[str] = set()
        try:
            while step := self._committer.commit_ledger(ledger):
                decided |= step
                self._sign_of_life.give()
        except _TROUBLE as error:
            log.warning(
                "overdue_ledger_in_trouble", agent=ledger.agent, conversation=ledger.conversation, reason=str(error)
            )
        self._make_jobs(ledger, [turn_id for turn_id in turn_ids if turn_id not in decided])
        return len(decided)

    def _make_jobs(self, ledger: LedgerName, turn_ids: list[str]) -> None:
        """Whatever could not be committed here needs a job: workers take a bad turn apart, the clock does not."""
        for turn_id in turn_ids:
            self._records.restore(turn_id, ledger=ledger, job="make")

    def _connect(self) -> Connection:
        return self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
