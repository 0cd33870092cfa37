"""Retention: what is older than the configuration allows is deleted, in small batches, each a short transaction.

Entries go one by one, the events of a turn all at once. What a replay, a cursor or a late duplicate needs stays: the
row of each run, and with all its events the turn that the history version in force begins with. A batch waits for
nobody: a ledger that somebody holds is left to the next sweep. Two sweeps at once share the work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection

from turnledger.store.config_section import ConversationSession
from turnledger.store.database import Database, run_statement

DAY_S = 86_400
ROWS_A_TURN = 10  # a turn seldom has fewer events, so a batch looks at so many fewer turns than it may delete rows
_BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a sweep has removed; `turns` are those whose events went. `whole`: nothing that was old enough is left."""

    entries: int = 0
    turns: int = 0
    events: int = 0
    whole: bool = True

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            self.entries + other.entries,
            self.turns + other.turns,
            self.events + other.events,
            self.whole and other.whole,
        )


_UNFINISHED = Removed(whole=False)


class RetentionTotals(NamedTuple):
    """All that was ever removed, from the first sweep on (`since`), and when the last whole sweep ended."""

    since: datetime | None = None
    swept_at: datetime | None = None
    entries: int = 0
    turns: int = 0
    events: int = 0


class _Place(NamedTuple):
    """How far a sweep has come."""

    turn_id: str
    ended_at: datetime


_START = _Place("", _BEGINNING_OF_TIME)


class Candidate(NamedTuple):
    """A run that ended long enough ago. `length` bounds the events it may have, `last_seq` is the last of them.

    `needed`: the history in force cannot do without its events.
    """

    turn_id: str
    ledger_id: int
    ended_at: datetime
    last_seq: int
    length: int
    needed: bool

    @property
    def place(self) -> _Place:
        """Where a sweep stands that has dealt with it."""
        return _Place(self.turn_id, self.ended_at)


class Retention:
    """Sweeps of one Postgres."""

    def __init__(self, database: Database, *, least_age_s: float, batch_rows: int) -> None:
        """Nothing younger than `least_age_s` is deleted; a transaction deletes about `batch_rows` rows."""
        self._database = database
        self._least_age_s = least_age_s
        self._batch_rows = batch_rows

    def sweep(self, *, stopped: Callable[[], bool]) -> Removed:
        """Delete what is strictly older than the configuration says at that moment, until nothing is left.

        It also ends after the batch at whose end `stopped` says so; each call does one batch at least, so that
        however short they are, they come to an end.

        Raises:
            StoreUnavailable, StoreBusy: what was deleted until then is deleted, and counted.
        """
        removed = self._sweep_entries(stopped) + self._sweep_events(stopped)
        if removed.whole:
            with self._database.transaction() as connection:
                run_statement(connection, "note_sweep", {})
        return removed

    def _sweep_entries(self, stopped: Callable[[], bool]) -> Removed:
        removed, after = Removed(), _BEGINNING_OF_TIME
        while True:
            count, last = self._remove_entries(after, age_s=self._age_s(self._section.retention_days))
            if last is None:
                return removed
            removed, after = removed + Removed(entries=count), last
            if stopped():
                return removed + _UNFINISHED

    def _sweep_events(self, stopped: Callable[[], bool]) -> Removed:
        removed, after = Removed(), _START
        while (days := self._section.event_retention_days) is not None:
            step = self._remove_events(after, age_s=self._age_s(days))
            if step is None:
                break
            removed, after = removed + step[0], step[1]
            if stopped():
                return removed + _UNFINISHED
        return removed

    @property
    def _section(self) -> ConversationSession:
        return self._database.config.current()

    def _age_s(self, days: int) -> float:
        return max(float(days * DAY_S), self._least_age_s)

    def _remove_entries(self, after: datetime, *, age_s: float) -> tuple[int, datetime | None]:
        with self._database.transaction() as connection:
            parameters = {"after": after, "age_s": age_s, "most": self._batch_rows}
            count, last = run_statement(connection, "sweep_entries", parameters)[0]
            if count:
                run_statement(connection, "add_to_retention", {"entries": count, "turns": 0, "events": 0})
        return count, last

    def _remove_events(self, after: _Place, *, age_s: float) -> tuple[Removed, _Place] | None:
        """One batch of whole turns, and where the next one begins; None: there is none."""
        page = max(1, self._batch_rows // ROWS_A_TURN)
        bounds = {"age_s": age_s, "after": after.ended_at, "after_turn_id": after.turn_id, "most": page}
        with self._database.transaction() as connection:
            held = [_Place(*row) for row in run_statement(connection, "lock_sweepable", bounds)]
            if not held:
                return None
            asked = {"age_s": age_s, "turn_ids": [place.turn_id for place in held]}
            found = [Candidate(*row) for row in run_statement(connection, "look_sweepable", asked)]
            looked_at = within(found, most_rows=self._batch_rows)
            removed = _remove_turns(connection, [each for each in looked_at if not each.needed], age_s=age_s)
        return removed, looked_at[-1].place if looked_at else held[-1]


def _remove_turns(connection: Connection, turns: Sequence[Candidate], *, age_s: float) -> Removed:
    if not turns:
        return Removed()
    named = {
        "turn_ids": [turn.turn_id for turn in turns],
        "ledger_ids": [turn.ledger_id for turn in turns],
        "last_seqs": [turn.last_seq for turn in turns],
    }
    events = run_statement(connection, "sweep_events", {"age_s": age_s, **named})[0][0]
    run_statement(connection, "add_to_retention", {"entries": 0, "turns": len(turns), "events": events})
    return Removed(turns=len(turns), events=events)


def within(candidates: Sequence[Candidate], *, most_rows: int) -> list[Candidate]:
    """So many from the front as have at most `most_rows` events together, and at least one."""
    rows = 0
    taken: list[Candidate] = []
    for candidate in candidates:
        rows += 0 if candidate.needed else candidate.length
        if taken and rows > most_rows:
            break
        taken.append(candidate)
    return taken


def read_totals(connection: Connection) -> RetentionTotals:
    """What retention has removed so far."""
    rows = run_statement(connection, "read_retention", {})
    return RetentionTotals(*rows[0]) if rows else RetentionTotals()
