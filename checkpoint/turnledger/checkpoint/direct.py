"""Committing a completed turn without the queue, by the engine node itself: the same function, under the epoch."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection

from turnledger.checkpoint.errors import CheckpointMisconfigured, CheckpointUnavailable, NotPersisted, StaleTurn
from turnledger.checkpoint.loading import load_turns
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.records import Finished, Records
from turnledger.checkpoint.spool import Spool, Whose
from turnledger.checkpoint.telemetry import span
from turnledger.store import CorruptData, Database, StoreUnavailable, TurnledgerError
from turnledger.store.commit import CompletedTurn, TurnOutcome, commit_turns
from turnledger.store.crash_points import crash_point
from turnledger.store.deployment import Home
from turnledger.store.ledger import create_ledgers, database_time, find_answered, find_runs, lock_ledger
from turnledger.store.logs import get_logger
from turnledger.store.times import time_text, utc_now

log = get_logger(__name__)

_NAMED = "rename it to <turn id>.<epoch>.<deployment>.turn.json, `turnledger recover --json` names the deployment"
_REDIS_TROUBLE = (CheckpointUnavailable, CheckpointMisconfigured)


@dataclass(frozen=True, slots=True)
class DirectCommit:
    """What became of a turn: decided in Postgres (`first` names the run it duplicates), or on disk."""

    first: str | None = None
    first_entry_id: str | None = None
    spooled: Path | None = None


class DirectCommits:
    """The way out for a completed turn that cannot be queued."""

    def __init__(self, *, records: Records, database: Database, spool: Spool) -> None:
        self._records = records
        self._database = database
        self._spool = spool
        self._told_of_others = False

    def take(self, turn: CompletedTurn, *, built_on: Sequence[str], owned: bool) -> DirectCommit:
        """Commit the turn, or put it on disk.

        It is committed only while this node is sure to own it, and after the pending turns it was built on.

        Raises:
            StaleTurn: another node has taken the turn over; nothing was written.
            NotPersisted: not even the disk took it.
        """
        away = False
        if owned:
            try:
                return self.commit(turn, built_on=built_on)
            except StaleTurn:
                raise
            except TurnledgerError as error:
                away = isinstance(error, StoreUnavailable)
                log.warning("direct_commit_failed", **job_names(turn.turn_id, turn.ledger), reason=str(error))
        timed = replace(turn, completed_at=time_text(utc_now()))
        try:
            path = self._spool.write(timed, built_on=built_on, home=self._database.home if away else self._home())
        except OSError as error:
            raise NotPersisted(f"turn {turn.turn_id} is in no store and not on disk: {error}") from error
        crash_point("spool.written")
        log.error("turn_spooled", **job_names(turn.turn_id, turn.ledger), file=str(path))
        return DirectCommit(spooled=path)

    def commit(self, turn: CompletedTurn, *, built_on: Sequence[str] = ()) -> DirectCommit:
        """Commit the turn now; repeated, it is found to be committed.

        Raises:
            StaleTurn: another node has taken the turn over, or the run had ended.
            StoreUnavailable, StoreBusy, StoreRefused, StoreMisconfigured: it is not committed, as far as is known.
            CheckpointUnavailable: a pending turn it was built on could not be read.
        """
        with span("commit", **job_names(turn.turn_id, turn.ledger), way="direct"):
            return self._commit(turn, built_on=built_on)

    def _commit(self, turn: CompletedTurn, *, built_on: Sequence[str]) -> DirectCommit:
        create_ledgers(self._database, [turn.ledger])
        with self._database.transaction(lock_timeout_ms=self._database.settings.commit_lock_timeout_ms) as connection:
            head = lock_ledger(connection, turn.ledger)
            assert head is not None, "the ledger was just made"
            before = self._undecided(connection, built_on)
            timed = turn if turn.completed_at else replace(turn, completed_at=database_time(connection))
            outcomes = commit_turns(
                connection,
                heads={turn.ledger: head},
                turns=[*before, timed],
                most_entries=self._database.config.current().max_entries,
            )
            wanted = (head.ledger_id, turn.work_key)
            answered = find_answered(connection, [wanted]).get(wanted)
            run = find_runs(connection, [turn.turn_id])[turn.turn_id]
        crash_point("direct.committed")
        self._finish(before, outcomes[:-1])
        first = outcomes[-1].first
        if outcomes[-1].verdict == "superseded" or run.epoch > turn.epoch:  # committed, but by whoever took it over
            raise StaleTurn(f"turn {turn.turn_id} was taken over, or had ended; it is not committed")
        return DirectCommit(first, answered.entry_id if answered and first else None)

    def replay_spool(self) -> int:
        """Commit what waits on disk for this deployment, oldest first; how many turns were decided.

        A turn that was taken over meanwhile is set aside in a file that no replay reads. Files of another deployment
        stay as they are, unread.

        Raises:
            StoreUnavailable, StoreBusy, StoreMisconfigured: the rest waits on.
            CorruptData, StoreRefused: a turn cannot be stored; names it. A file whose name does not say which
                deployment it is of comes last, when all others are decided.
        """
        waiting = self._waiting()
        self._tell_of_others(waiting)
        decided = self._replay(waiting.own)
        if waiting.unsaid:
            path = waiting.unsaid[0]
            raise CorruptData(f"the name of the spool file {path} does not say whose it is: {_NAMED}", where=str(path))
        return decided

    def _waiting(self) -> Whose:
        """Whose each file is, as Postgres says it now: what this process heard first, a restore may have replaced.

        Nothing is asked where nothing waits, or nothing but files that are known to be of others.
        """
        known = self._database.home
        waiting = self._spool.whose(known)
        if waiting.own or (waiting.others and known.deployment_id is None):
            return self._spool.whose(self._database.ask_home())
        return waiting

    def _tell_of_others(self, waiting: Whose) -> None:
        """Once a process: they are another's to commit, and a person may want to know if nobody does."""
        if waiting.others and not self._told_of_others:
            self._told_of_others = True
            files = len(waiting.others)
            log.warning("spool_of_another_deployment", files=files, first=str(waiting.others[0]))

    def _replay(self, paths: Sequence[Path]) -> int:
        decided = 0
        for path, turn, built_on in self._spool.turns(paths):
            try:
                self._commit_spooled(turn, built_on)
            except StaleTurn as error:
                kept = self._spool.set_aside(path)
                told = job_names(turn.turn_id, turn.ledger)
                log.error("spooled_turn_refused", **told, file=str(kept), reason=str(error))
                continue
            self._spool.remove(path)
            decided += 1
        return decided

    def _commit_spooled(self, turn: CompletedTurn, built_on: Sequence[str]) -> None:
        """After the turns it was built on where Redis still has them, and without them where it does not."""
        try:
            self.commit(turn, built_on=built_on)
        except _REDIS_TROUBLE:
            self.commit(turn)

    def _home(self) -> Home:
        """By its id if it can be had: a file that names the address alone is found by nobody once that changes."""
        if self._database.home.deployment_id is None:
            with suppress(TurnledgerError):
                return self._database.ask_home()
        return self._database.home

    def _undecided(self, connection: Connection, turn_ids: Sequence[str]) -> list[CompletedTurn]:
        runs = find_runs(connection, turn_ids)
        undecided = [turn_id for turn_id in turn_ids if turn_id not in runs or runs[turn_id].outcome in (None, "lost")]
        return load_turns(self._records, undecided) if undecided else []

    def _finish(self, turns: Sequence[CompletedTurn], outcomes: Sequence[TurnOutcome]) -> None:
        """Tell Redis, if it can be told; whoever looks at these turns next finds them committed in any case."""
        finished = [
            Finished(
                turn.turn_id, turn.ledger, "duplicate" if outcome.first else "completed", outcome.ordinal, outcome.first
            )
            for turn, outcome in zip(turns, outcomes, strict=True)
            if outcome.verdict != "superseded"
        ]
        try:
            if finished:
                self._records.finish(finished, window_jobs=self._records.settings.group_turns)
        except _REDIS_TROUBLE as error:
            log.warning("redis_not_told", turn_ids=[turn.turn_id for turn in finished], reason=str(error))
