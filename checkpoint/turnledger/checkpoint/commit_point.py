"""One transaction of the commit: lock ledgers, read what is pending, commit it, tell Redis.

A worker uses it for the turns at the head of the queue, an engine node for a ledger whose pending turns have to
be history before it goes on. The order is the protocol: pending is read after the lock, since whoever held it may
just have committed what stood there; Redis is told after the commit, and only of turns that were decided.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from turnledger.checkpoint.keys import encode_ledger, readable_ledger
from turnledger.checkpoint.ledger_share import LedgerShare
from turnledger.checkpoint.loading import load_turns
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.records import Finished, Records, Unfitted
from turnledger.checkpoint.tally import Tally
from turnledger.checkpoint.telemetry import span
from turnledger.checkpoint.usage import UsageTally
from turnledger.store import CorruptData, Database, LedgerName, StoreRefused
from turnledger.store.commit import CompletedTurn, TurnOutcome, commit_turns
from turnledger.store.crash_points import crash_point
from turnledger.store.ledger import create_ledgers, lock_free_ledgers, lock_ledger
from turnledger.store.logs import get_logger
from turnledger.store.times import milliseconds, time_of

log = get_logger(__name__)

NOT_STORABLE = (StoreRefused, CorruptData)  # the data itself is refused, and will be refused again

Decided = Literal["finished", "rejected"]
AfterCommit = Callable[[Collection[LedgerName]], None]


class CommitPoint:
    """Commits pending turns from one Redis into one Postgres. Thread-safe."""

    def __init__(
        self,
        *,
        records: Records,
        database: Database,
        lock_timeout_ms: int | None = None,
        unfitted: Unfitted = "wait",
        after_commit: AfterCommit | None = None,
    ) -> None:
        """`lock_timeout_ms` is how long to wait for a ledger that is held, `commit_lock_timeout_ms` unless given.

        `unfitted` says whether a turn that waits for its rewriting, and what stands behind it, is left for later or
        committed with names. `after_commit` is told of the ledgers that have new entries, and raises nothing.
        """
        self._after_commit = after_commit
        self._unfitted = unfitted
        self._records = records
        self._database = database
        self._lock_timeout_ms = lock_timeout_ms or database.settings.commit_lock_timeout_ms
        self._settings = records.settings
        self._share = LedgerShare()
        self._tally = Tally(records.redis, keys=records.keys)
        self._usage = UsageTally(records.redis, keys=records.keys)

    def commit_group(self, ledger: LedgerName | None, *, most_turns: int) -> dict[str, Decided]:
        """Commit this ledger, if one is given, and those at the head of the queue, as far as nobody else holds them.

        What became of each turn, by turn_id: within `most_turns` and 32 MiB, so many from the front of each ledger as
        stand in the queue's head.

        Raises:
            StoreRefused, CorruptData: one of the turns cannot be stored; nothing was committed.
            StoreUnavailable, StoreBusy, StoreMisconfigured, CheckpointUnavailable: nothing is lost; a commit
                whose answer was lost is found by the next try.
        """
        counts = {} if ledger is None else {encode_ledger(ledger): 1}
        for name, count in self._records.window(most_jobs=most_turns - len(counts)):
            counts[name] = counts.get(name, 0) + count
        return self._commit_counted(counts) if counts else {}

    def _commit_counted(self, counts: Mapping[str, int]) -> dict[str, Decided]:
        """Commit so many turns from the front of each ledger, less the ledgers that somebody holds."""
        ledgers = {found: name for name in counts if (found := readable_ledger(name))}
        asked = self._share.of(len(ledgers))
        with span("commit", way="group") as note:
            with self._database.transaction() as connection:
                heads = lock_free_ledgers(connection, list(ledgers), most=asked)
                self._share.note(asked=asked, got=len(heads))
                crash_point("commit.locked")
                wanted = [(key, counts[key]) for name, key in ledgers.items() if name in heads]
                turns = self._load(self._front(wanted, group=self._settings.group_turns))
                outcomes = commit_turns(connection, heads=heads, turns=turns, most_entries=self._most_entries)
            note(ledgers=len(heads), turns=len(turns))
            return self._finish(turns, outcomes)

    def commit_ledger(self, ledger: LedgerName, *, most_turns: int) -> dict[str, Decided]:
        """Commit the front of one ledger, waiting for its lock. Raises as `commit_group`.

        A few more than `most_turns` when some stand behind them that have no jobs of their own any more.
        """
        return self._commit_ids(ledger, most_turns=most_turns, group=self._settings.group_turns, read=[])

    def commit_first(self, ledger: LedgerName) -> dict[str, Decided]:
        """Commit the first turn of one ledger alone; if it cannot be stored it is set aside as rejected."""
        read: list[str] = []
        try:
            return self._commit_ids(ledger, most_turns=1, group=1, read=read)
        except NOT_STORABLE as error:
            return {turn_id: self._reject(turn_id, ledger=ledger, reason=str(error)) for turn_id in read}

    def commit_pending(self, ledger: LedgerName) -> None:
        """Commit all that is pending for one ledger, which need not be there yet, up to the first turn that is left
        for later. Raises as `commit_group`.
        """
        create_ledgers(self._database, [ledger])
        while self.commit_ledger(ledger, most_turns=self._settings.group_turns):
            pass

    @property
    def _most_entries(self) -> int:
        return self._database.config.current().max_entries

    def _commit_ids(self, ledger: LedgerName, *, most_turns: int, group: int, read: list[str]) -> dict[str, Decided]:
        """`read` receives the ids that the transaction found, also when it fails."""
        with span("commit", way="ledger", agent=ledger.agent, conversation=ledger.conversation) as note:
            with self._database.transaction(lock_timeout_ms=self._lock_timeout_ms) as connection:
                head = lock_ledger(connection, ledger)
                crash_point("commit.locked")
                read += [] if head is None else self._front([(encode_ledger(ledger), most_turns)], group=group)
                turns = self._load(read)
                heads = {} if head is None else {ledger: head}
                outcomes = commit_turns(connection, heads=heads, turns=turns, most_entries=self._most_entries)
            note(turns=len(turns))
            if head is None:
                create_ledgers(self._database, [ledger])
            return self._finish(turns, outcomes)

    def _front(self, counts: Sequence[tuple[str, int]], *, group: int) -> list[str]:
        most_bytes = self._settings.group_bytes
        return self._records.front(counts, most_turns=group, most_bytes=most_bytes, unfitted=self._unfitted)

    def _load(self, turn_ids: Sequence[str]) -> list[CompletedTurn]:
        turns = load_turns(self._records, turn_ids)
        crash_point("commit.read")
        return turns

    def _finish(self, turns: Sequence[CompletedTurn], outcomes: Sequence[TurnOutcome]) -> dict[str, Decided]:
        crash_point("commit.committed")
        ledgers = {turn.turn_id: turn.ledger for turn in turns}
        finished = [_finished(outcome, ledgers) for outcome in outcomes if outcome.verdict != "superseded"]
        decided: dict[str, Decided] = {turn.turn_id: "finished" for turn in finished}
        if finished:
            self._records.finish(finished, window_jobs=self._settings.group_turns)
        for outcome in outcomes:
            if outcome.verdict == "superseded":
                ledger = ledgers[outcome.turn_id]
                decided[outcome.turn_id] = self._reject(outcome.turn_id, ledger=ledger, reason="superseded")
        crash_point("commit.finished")
        self._count(turns, outcomes)
        if self._after_commit is not None and finished:
            self._after_commit({ledgers[outcome.turn_id] for outcome in outcomes if outcome.verdict == "committed"})
        return decided

    def _count(self, turns: Sequence[CompletedTurn], outcomes: Sequence[TurnOutcome]) -> None:
        """Only the figures of the dashboard come from this."""
        verdicts = {outcome.turn_id: outcome.verdict for outcome in outcomes}
        finished = [turn for turn in turns if verdicts.get(turn.turn_id) != "superseded"]
        if finished:
            self._tally.note([milliseconds(time_of(turn.completed_at)) for turn in finished])
        committed = (turn for turn in finished if verdicts.get(turn.turn_id) == "committed")
        self._usage.note(step for turn in committed for step in turn.steps)

    def _reject(self, turn_id: str, *, ledger: LedgerName, reason: str) -> Decided:
        """Set a turn aside; its own job hands the reason to whoever watches the queue."""
        log.error("turn_rejected", **job_names(turn_id, ledger), reason=reason)
        self._records.reject(turn_id, ledger=ledger, reason=reason)
        return "rejected"


def _finished(outcome: TurnOutcome, ledgers: Mapping[str, LedgerName]) -> Finished:
    ledger = ledgers[outcome.turn_id]
    told = job_names(outcome.turn_id, ledger)
    log.debug("turn_decided", **told, verdict=outcome.verdict, ordinal=outcome.ordinal)
    kind = "duplicate" if outcome.first else "completed"
    return Finished(outcome.turn_id, ledger, kind, outcome.ordinal, outcome.first)
