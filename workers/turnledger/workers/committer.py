"""The group commit: the job that runs carries the turns that queue behind it into one transaction.

A Postgres transaction can take hundreds of turns for little more than the price of one, an RQ job costs
milliseconds. Neighbours stay queued until the commit, so a killed worker loses nothing; the row lock of a
ledger, not a lease, decides who commits it; and a job never ends well while its own turn is pending.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import structlog

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.keys import decode_ledger, encode_ledger
from turnledger.checkpoint.records import Finished, Records
from turnledger.store import CorruptData, Database, LedgerName, StoreBusy, StoreRefused, StoreUnavailable
from turnledger.store.commit import CompletedTurn, TurnOutcome, commit_turns
from turnledger.store.crash_points import crash_point
from turnledger.store.ledger import create_ledgers, lock_free_ledgers, lock_ledger
from turnledger.workers.backoff import pauses
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.loading import load_turns
from turnledger.workers.scope import Scope, scope_after
from turnledger.workers.settings import WorkerSettings

log = structlog.get_logger(__name__)

TRANSIENT = (StoreUnavailable, StoreBusy, CheckpointUnavailable)
NOT_STORABLE = (StoreRefused, CorruptData)

Decided = Literal["finished", "rejected"]


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
        self._database = database
        self._settings = settings
        self._sleep = sleep
        self._random = random.Random()  # noqa: S311  # spreads retries, hides nothing

    def persist(self, turn_id: str) -> None:
        """Return once this turn is decided: committed, a duplicate, or ended before. Carries its neighbours.

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

    def commit_ledger(self, ledger: LedgerName) -> int:
        """Commit what stands at the front of one ledger, waiting for its lock; how many turns were decided.

        Raises:
            StoreBusy, StoreUnavailable, CheckpointUnavailable: try again.
            StoreRefused, CorruptData: one of the turns cannot be stored.
        """
        return len(self._commit_own(ledger, most_turns=self._settings.group_turns))

    def _persist(self, turn_id: str, *, ledger: LedgerName, failures: int) -> Decided:
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
                log.warning("commit_refused", turn_id=turn_id, scope=scope_after(failures).value, reason=str(error))
                failures = max(failures, 1) + 1
            except TRANSIENT as error:
                self._pause(turn_id, error=error, pause_s=next(waits), deadline=deadline)
                failures += 1

    def _pause(self, turn_id: str, *, error: Exception, pause_s: float, deadline: float) -> None:
        if time.monotonic() + pause_s > deadline:
            raise CommitPostponed(f"turn {turn_id} goes back to the queue: {error}", turn_id=turn_id) from error
        log.warning("commit_waits", turn_id=turn_id, pause_s=round(pause_s, 2), reason=str(error))
        self._sleep(pause_s)

    def _advance(self, turn_id: str, *, ledger: LedgerName, scope: Scope) -> Decided | None:
        """One transaction or two; what became of the turn, None while it is still pending."""
        if scope is Scope.TURN:
            return self._commit_first(ledger).get(turn_id)
        if scope is Scope.GROUP:
            decided = self._commit_group(ledger)
            if turn_id in decided:
                return decided[turn_id]
        place = self._records.pending_position(turn_id, ledger=encode_ledger(ledger))
        if place is None:
            return self._put_back(turn_id, ledger)
        most = min(place + 1, self._settings.group_turns)
        try:
            return self._commit_own(ledger, most_turns=most).get(turn_id)
        except StoreBusy as error:  # its ledger is held: others must not wait for it
            raise CommitPostponed(f"turn {turn_id} goes back to the queue: {error}", turn_id=turn_id) from error

    def _put_back(self, turn_id: str, ledger: LedgerName) -> Decided | None:
        """The turn left pending while we looked, or its ledger's list had lost it."""
        state = self._records.restore(turn_id, ledger=ledger, job="leave")
        if state == "completed":
            return None
        return "rejected" if state == "rejected" else "finished"

    def _commit_group(self, ledger: LedgerName) -> dict[str, Decided]:
        """Commit the ledgers at the head of the queue that nobody else holds; what became of their turns."""
        counts = {encode_ledger(ledger): 1}
        for name, count in self._records.window(most_jobs=self._settings.group_turns - 1):
            counts[name] = counts.get(name, 0) + count
        names = {decode_ledger(name): name for name in counts}
        with self._database.transaction() as connection:
            heads = lock_free_ledgers(connection, list(names))
            crash_point("commit.locked")
            turns = self._front([(names[name], counts[names[name]]) for name in names if name in heads])
            outcomes = commit_turns(
                connection, heads=heads, turns=turns, most_entries=self._database.settings.max_entries
            )
        return self._finish(turns, outcomes)

    def _commit_own(self, ledger: LedgerName, *, most_turns: int) -> dict[str, Decided]:
        """Commit the front of one ledger, waiting for its lock; what became of its turns."""
        with self._database.transaction(lock_timeout_ms=self._database.settings.commit_lock_timeout_ms) as connection:
            head = lock_ledger(connection, ledger)
            crash_point("commit.locked")
            turns = [] if head is None else self._front([(encode_ledger(ledger), most_turns)])
            outcomes = commit_turns(
                connection,
                heads={} if head is None else {ledger: head},
                turns=turns,
                most_entries=self._database.settings.max_entries,
            )
        if head is None:
            create_ledgers(self._database, [ledger])
        return self._finish(turns, outcomes)

    def _commit_first(self, ledger: LedgerName) -> dict[str, Decided]:
        """Commit the first turn of one ledger alone; if it cannot be stored it is set aside."""
        first = self._records.front([(encode_ledger(ledger), 1)], most_turns=1, most_bytes=0)
        try:
            return self._commit_own(ledger, most_turns=1)
        except NOT_STORABLE as error:
            return {turn_id: self._reject(turn_id, ledger=ledger, reason=str(error)) for turn_id in first}

    def _front(self, counts: Sequence[tuple[str, int]]) -> list[CompletedTurn]:
        """Read under the locks: what was pending before may have been committed by whoever held them."""
        turn_ids = self._records.front(
            counts, most_turns=self._settings.group_turns, most_bytes=self._settings.group_bytes
        )
        turns = load_turns(self._records, turn_ids)
        crash_point("commit.read")
        return turns

    def _finish(self, turns: Sequence[CompletedTurn], outcomes: Sequence[TurnOutcome]) -> dict[str, Decided]:
        crash_point("commit.committed")
        ledgers = {turn.turn_id: turn.ledger for turn in turns}
        finished = [_finished(outcome, ledgers) for outcome in outcomes if outcome.verdict != "superseded"]
        decided: dict[str, Decided] = {turn.turn_id: "finished" for turn in finished}
        if finished:
            self._records.finish(finished, window_jobs=2 * self._settings.group_turns)
        for outcome in outcomes:
            if outcome.verdict == "superseded":
                ledger = ledgers[outcome.turn_id]
                decided[outcome.turn_id] = self._reject(outcome.turn_id, ledger=ledger, reason="superseded")
        crash_point("commit.finished")
        return decided

    def _reject(self, turn_id: str, *, ledger: LedgerName, reason: str) -> Decided:
        """Set a turn aside; its own job hands the reason to whoever watches the queue."""
        log.error("turn_rejected", turn_id=turn_id, agent=ledger.agent, conversation=ledger.conversation, reason=reason)
        self._records.reject(turn_id, ledger=ledger, reason=reason)
        return "rejected"


def _finished(outcome: TurnOutcome, ledgers: Mapping[str, LedgerName]) -> Finished:
    ledger = ledgers[outcome.turn_id]
    log.debug(
        "turn_decided",
        turn_id=outcome.turn_id,
        verdict=outcome.verdict,
        ordinal=outcome.ordinal,
        agent=ledger.agent,
        conversation=ledger.conversation,
    )
    kind = "duplicate" if outcome.first else "completed"
    return Finished(outcome.turn_id, ledger, kind, outcome.ordinal, outcome.first)


def _rejected(turn_id: str, reason: str) -> TurnRejected:
    return TurnRejected(f"turn {turn_id} was refused: {reason}", turn_id=turn_id)
