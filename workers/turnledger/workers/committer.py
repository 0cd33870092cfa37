"""The group commit: the job that runs carries the turns that queue behind it into one transaction.

A Postgres transaction can take hundreds of turns for little more than the price of one, an RQ job costs
milliseconds. Neighbours stay queued until the commit, so a killed worker loses nothing; the row lock of a
ledger, not a lease, decides who commits it; and a job never ends well while its own turn is pending, unless that turn
waits for the rewriting of one before it, whose commit will take it along. Its own group committed, a job goes on with
the next ones for a while: that saves RQ's part of all the jobs they would take.
"""

import random
import time
from collections.abc import Callable
from typing import Literal

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.commit_point import NOT_STORABLE, AfterCommit, CommitPoint, Decided
from turnledger.checkpoint.keys import decode_ledger
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Database, LedgerName, StoreBusy, StoreUnavailable, TurnledgerError
from turnledger.store.crash_points import crash_point
from turnledger.store.logs import get_logger
from turnledger.workers.backoff import pauses
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.group_size import GroupSize
from turnledger.workers.rewriting import AccountRequests
from turnledger.workers.scope import Scope, scope_after
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

CARRY_ON_S = 1.0  # RQ's part of a job costs a tenth of a full group and several times a small one
Fate = Decided | Literal["waiting"]
TRANSIENT = (StoreUnavailable, StoreBusy, CheckpointUnavailable)


class Committer:
    """Commits completed turns from one Redis into one Postgres; one per process."""

    def __init__(
        self,
        *,
        records: Records,
        database: Database,
        settings: WorkerSettings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._records = records
        self._commit_point = CommitPoint(
            records=records,
            database=database,
            lock_timeout_ms=settings.held_ledger_wait_ms,
            after_commit=_after_commit(records, database),
        )
        self._group_size = GroupSize(records.settings.group_turns)
        self._settings = settings
        self._sleep = sleep
        self._random = random.Random()  # noqa: S311  # spreads retries, hides nothing

    def persist(self, turn_id: str) -> None:
        """Return once this turn is decided: committed, a duplicate, or ended before. Carries its neighbours.

        Returns too when the turn stands behind one that waits for its rewriting: it is marked, needs no job any more,
        and is committed with that one.

        Raises:
            TurnRejected: the turn was refused for good; it is set aside and its record says why.
            CommitPostponed: trouble that did not pass in time; everything is still pending.
            StoreMisconfigured, CheckpointMisconfigured: a person has to act; everything is still pending.
        """
        taken = self._records.take(turn_id)
        crash_point("commit.taken")
        if taken is None:
            return
        ledger = decode_ledger(taken.ledger)
        if taken.refusal:
            raise _rejected(turn_id, taken.refusal)
        if taken.state == "rejected":  # an operator ran its job again
            self._records.reinstate(turn_id, ledger=ledger)
        elif taken.state != "completed":
            return
        try:
            decided = self._persist(turn_id, ledger=ledger, failures=max(taken.attempts - 1, 0))
        except CommitPostponed:
            self._records.forget_attempts(turn_id)
            raise
        if decided == "rejected":
            refused = self._records.take(turn_id)
            raise _rejected(turn_id, refused.refusal if refused else "")
        self._carry_on()

    def commit_ledger(self, ledger: LedgerName) -> frozenset[str]:
        """Commit what stands at the front of one ledger, waiting for its lock; the turns that were decided.

        Raises:
            StoreBusy, StoreUnavailable, CheckpointUnavailable: try again.
            StoreRefused, CorruptData: one of the turns cannot be stored.
        """
        return frozenset(self._commit_point.commit_ledger(ledger, most_turns=self._records.settings.group_turns))

    def _carry_on(self) -> None:
        """Commit the groups that stand in the queue behind this one, as long as there are any, for a second at most.

        Trouble ends it: the jobs of those turns are still queued, and deal with it.
        """
        deadline = time.monotonic() + CARRY_ON_S
        try:
            while time.monotonic() < deadline and self._commit_group(None):
                pass
        except TurnledgerError as error:
            log.info("group_left_to_its_jobs", reason=str(error))

    def _persist(self, turn_id: str, *, ledger: LedgerName, failures: int) -> Fate:
        deadline = time.monotonic() + self._settings.transient_wait_s
        waits = pauses(
            first_s=self._settings.first_pause_s,
            longest_s=self._settings.longest_pause_s,
            random_source=self._random,
        )
        while True:
            try:
                decided = self._advance(turn_id, ledger=ledger, scope=scope_after(failures))
                if decided is not None:
                    return decided
            except NOT_STORABLE as error:
                scope = scope_after(failures).value
                log.warning("commit_refused", **job_names(turn_id, ledger), scope=scope, reason=str(error))
                failures = max(failures, 1) + 1
            except TRANSIENT as error:
                self._pause(turn_id, ledger=ledger, error=error, pause_s=next(waits), deadline=deadline)
                failures += 1

    def _pause(self, turn_id: str, *, ledger: LedgerName, error: Exception, pause_s: float, deadline: float) -> None:
        if time.monotonic() + pause_s > deadline:
            raise CommitPostponed(f"turn {turn_id} goes back to the queue: {error}", turn_id=turn_id) from error
        log.warning("commit_waits", **job_names(turn_id, ledger), pause_s=round(pause_s, 2), reason=str(error))
        self._sleep(pause_s)

    def _advance(self, turn_id: str, *, ledger: LedgerName, scope: Scope) -> Fate | None:
        """One transaction or two; what became of the turn, None while it is still pending."""
        if scope is Scope.GROUP:
            decided = self._commit_group(ledger)
            if turn_id in decided:
                return decided[turn_id]
        place = self._records.stand(turn_id, ledger=ledger)
        if place is None:
            return self._put_back(turn_id, ledger)
        if place.waits_for:
            log.debug("turn_waits", **job_names(turn_id, ledger), waits_for=place.waits_for)
            return "waiting"
        try:
            decided = self._commit_own(ledger, scope=scope, most_turns=place.before + 1)
        except StoreBusy as error:
            if not error.is_lock:
                raise
            # Its ledger is held: others must not wait for it.
            raise CommitPostponed(f"turn {turn_id} goes back to the queue: {error}", turn_id=turn_id) from error
        return decided.get(turn_id) or self._put_back(turn_id, ledger)

    def _commit_group(self, ledger: LedgerName | None) -> dict[str, Decided]:
        try:
            decided = self._commit_point.commit_group(ledger, most_turns=self._group_size.turns)
        except NOT_STORABLE:
            self._group_size.refused()
            raise
        self._group_size.stored()
        return decided

    def _commit_own(self, ledger: LedgerName, *, scope: Scope, most_turns: int) -> dict[str, Decided]:
        if scope is Scope.TURN:
            return self._commit_point.commit_first(ledger)
        most = min(most_turns, self._records.settings.group_turns)
        return self._commit_point.commit_ledger(ledger, most_turns=most)

    def _put_back(self, turn_id: str, ledger: LedgerName) -> Decided | None:
        """The turn left pending while we worked, its ledger's list had lost it, or it is still to come."""
        state = self._records.restore(turn_id, ledger=ledger, job="leave")
        if state == "completed":
            return None
        return "rejected" if state == "rejected" else "finished"


def _after_commit(records: Records, database: Database) -> AfterCommit | None:
    if records.settings.rewriting == "off":
        return None
    return AccountRequests(database=database, upkeep=Upkeep(records)).follow_commit


def _rejected(turn_id: str, reason: str) -> TurnRejected:
    return TurnRejected(f"turn {turn_id} was refused: {reason}", turn_id=turn_id)
