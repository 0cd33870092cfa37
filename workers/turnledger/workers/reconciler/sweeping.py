"""The sweep: every turn that Redis or Postgres knows is looked at, and put right until nothing is left to do."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointSettings
from turnledger.checkpoint.commit_point import NOT_STORABLE, CommitPoint
from turnledger.checkpoint.connection import connect
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.repairs import Repairs
from turnledger.checkpoint.sighting import Sightings
from turnledger.store import Database, LedgerName, StoreBusy, StoreSettings, read_settings
from turnledger.store.database import refuse_standby
from turnledger.store.logs import get_logger
from turnledger.store.standing import Standing, open_runs, read_standings
from turnledger.workers.reconciler.cases import Case, Finding, Report
from turnledger.workers.reconciler.decisions import Action, Do, Tone, decide
from turnledger.workers.reconciler.executor import LOOKING, Executor
from turnledger.workers.reconciler.facts import Bounds, content_of, facts_of, question_of
from turnledger.workers.reconciler.terminals import Terminals
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

Mode = Literal["repair", "look"]
MOST_ROUNDS = 8  # the longest chain of actions that the rules allow is shorter; a test walks all of them
_OF_ONE_TURN = (StoreBusy, *NOT_STORABLE)
_Batch = Mapping[str, str]


def _silent(_: Finding) -> None:
    """Nobody listens."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class _Tally:
    """What a sweep has come to so far."""

    tell: Callable[[Finding], None]
    stopped: Callable[[], bool]
    was_stopped: bool = False
    troubled: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    examined: int = 0
    done: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    postponed: int = 0
    reported: int = 0

    def stop(self) -> bool:
        """Whether to go no further; once asked to, it stays so."""
        self.was_stopped = self.was_stopped or self.stopped()
        return self.was_stopped

    def report(self) -> Report:
        """As a value; `whole` unless it was stopped."""
        return Report(self.examined, dict(self.done), self.changed, self.postponed, self.reported, not self.was_stopped)


class Reconciler:
    """Compares the turns of one Redis with one Postgres and repairs them. Any number may run at once.

    It scans records, so that no index has to be right, and holds nothing longer than one record: stopped anywhere
    it leaves nothing half done, and the next sweep goes on.
    """

    def __init__(self, *, records: Records, database: Database, settings: WorkerSettings) -> None:
        checkpoint = records.settings
        self._redis = connect(checkpoint)
        self._sightings = Sightings(self._redis, keys=records.keys)
        self._repairs = Repairs(self._redis, keys=records.keys, settings=checkpoint)
        self._database = database
        self._page = settings.reconcile_page
        self._bounds = Bounds(round(settings.overdue_s * 1000), round(checkpoint.unfinished_expiry_s * 1000))
        self._executor = Executor(
            records=records,
            repairs=self._repairs,
            terminals=Terminals(database),
            commit_point=CommitPoint(records=records, database=database),
        )

    @classmethod
    def from_settings(cls) -> "Reconciler":
        """Over the servers that the environment names; nothing connects yet."""
        return cls(
            records=Records.from_settings(read_settings(CheckpointSettings)),
            database=Database(read_settings(StoreSettings)),
            settings=read_settings(WorkerSettings),
        )

    def close(self) -> None:
        """Close the connections that this object made."""
        self._redis.close()

    def sweep(
        self,
        *,
        mode: Mode = "repair",
        stopped: Callable[[], bool] = _never,
        tell: Callable[[Finding], None] = _silent,
    ) -> Report:
        """Look at every turn, and repair what is not as it should be; a second sweep then changes nothing.

        `tell` hears of every action but `nothing`. In the mode `look` nothing is written. `stopped` is asked before
        each step of the scan and before each action.

        Raises:
            StoreUnavailable, CheckpointUnavailable: a server is away; what was done stays done.
            StoreMisconfigured, CheckpointMisconfigured: a person has to act.
        """
        tally = _Tally(tell, stopped)
        for batch in self._batches():
            self._settle(batch, tally, mode=mode)
            if tally.was_stopped:
                return tally.report()
        if mode == "repair":
            self._repairs.forget_expired()
        return tally.report()

    def invalidate_ledger(self, ledger: LedgerName) -> Report:
        """Put right what one ledger's index of open turns names, after its history was replaced. Raises as `sweep`."""
        tally, name = _Tally(_silent, _never), encode_ledger(ledger)
        turn_ids = self._sightings.open_turns(name)
        for first in range(0, len(turn_ids), self._page):
            self._settle(dict.fromkeys(turn_ids[first : first + self._page], name), tally, mode="repair")
        return tally.report()

    def _batches(self) -> Iterator[_Batch]:
        """turn_id -> encoded ledger, for turns without a record; what is found twice is looked at twice."""
        for turn_ids in self._sightings.scan_turns(page=self._page):
            yield dict.fromkeys(turn_ids, "")
        yield from self._sightings.scan_unrecorded(page=self._page)
        now = datetime.fromtimestamp(self._sightings.now_ms() / 1000, tz=UTC)
        before = now - timedelta(milliseconds=self._bounds.unfinished_ms)
        for runs in open_runs(self._database, before=before, page=self._page):
            yield {run.turn_id: encode_ledger(run.ledger) for run in runs}

    def _settle(self, batch: _Batch, tally: _Tally, *, mode: Mode) -> None:
        """Look and act in turns, until nothing changes any more."""
        for number in range(MOST_ROUNDS):
            if tally.stop():
                return
            tally.examined += len(batch) if number == 0 else 0
            cases = sorted(self._look(batch), key=lambda case: case.content.completion_no)
            acted = [case for case in cases if self._act(case, tally, mode=mode)]
            if not acted:
                return
            batch = {case.turn_id: case.seen.ledger for case in acted}
        log.error("turns_not_settled", turn_ids=sorted(batch))

    def _look(self, batch: _Batch) -> list[Case]:
        """Redis first, then Postgres. What cannot be looked at is found by halving, and left out."""
        try:
            return self._look_at_all(batch)
        except (CheckpointMisconfigured, *NOT_STORABLE) as error:
            if len(batch) == 1:
                log.error("turn_not_looked_at", turn_ids=list(batch), reason=str(error))
                return []
            items = list(batch.items())
            middle = len(items) // 2
            return [*self._look(dict(items[:middle])), *self._look(dict(items[middle:]))]

    def _look_at_all(self, batch: _Batch) -> list[Case]:
        sightings = self._sightings.read(list(batch), ledgers=batch)
        contents = [content_of(seen) for seen in sightings]
        asked = [question_of(seen, content) for seen, content in zip(sightings, contents, strict=True)]
        with self._database.transaction() as connection:
            refuse_standby(connection)
            standings = read_standings(connection, asked)
        cases = []
        for seen, content in zip(sightings, contents, strict=True):
            standing = standings.get(seen.turn_id, Standing())
            facts = facts_of(seen, content, standing, bounds=self._bounds)
            cases.append(Case(seen, content, standing, facts, decide(facts)))
        return cases

    def _act(self, case: Case, tally: _Tally, *, mode: Mode) -> bool:
        """Whether the action was done and the turn has to be looked at again."""
        action = case.action
        if action.do is Do.NOTHING or case.turn_id in tally.told or tally.stop():
            return False
        if mode == "look":
            tally.told.add(case.turn_id)
        outcome = "would" if mode == "look" else self._outcome(case, tally.troubled)
        _count(action, outcome, tally)
        finding = _finding(case, outcome)
        tally.tell(finding)
        if mode == "repair":
            _log(finding)
        return outcome == "done" and action.do not in LOOKING

    def _outcome(self, case: Case, troubled: set[str]) -> str:
        """A ledger whose commit met trouble is left alone for the rest of the sweep: its turns share that commit."""
        if case.action.do in LOOKING:
            return "done"
        if case.action.do is Do.COMMIT and case.seen.ledger in troubled:
            return "postponed"
        try:
            return "done" if self._executor.apply(case) else "changed"
        except (*_OF_ONE_TURN, CheckpointMisconfigured) as error:
            finding = _finding(case, "postponed")
            log.warning(
                "repair_postponed",
                turn_id=finding.turn_id,
                agent=finding.agent,
                conversation=finding.conversation,
                action=finding.action.do.value,
                reason=str(error),
            )
            troubled.add(case.seen.ledger)
            return "postponed"


def _count(action: Action, outcome: str, tally: _Tally) -> None:
    if outcome in ("done", "would"):
        tally.done[action.do.value] += 1
        tally.reported += action.tone is Tone.REPORTED
    elif outcome == "changed":
        tally.changed += 1
    else:
        tally.postponed += 1


def _finding(case: Case, outcome: str) -> Finding:
    ledger = case.content.ledger
    agent, conversation = ("", "") if ledger is None else (ledger.agent, ledger.conversation)
    return Finding(case.turn_id, agent, conversation, case.action, outcome)


def _log(finding: Finding) -> None:
    action = finding.action
    quiet = log.debug if action.do is Do.LIST else log.info
    say = log.warning if action.tone is Tone.REPORTED else quiet
    say(
        "turn_reconciled",
        turn_id=finding.turn_id,
        agent=finding.agent,
        conversation=finding.conversation,
        action=action.do.value,
        requirement=action.requirement,
        reason=action.reason,
        outcome=finding.outcome,
    )
