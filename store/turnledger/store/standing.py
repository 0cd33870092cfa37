"""Where turns stand in Postgres, for whoever compares it with what Redis says of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, Row

from turnledger.store.database import Database, statement
from turnledger.store.events import failed_event, lost_key
from turnledger.store.identity import LedgerName
from turnledger.store.ledger import FIRST_EPOCH, Head, Run, end_run, find_runs

_BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class Asked(NamedTuple):
    """A turn to look for, with what its record says of it.

    `ledger` is None when it is not known, `work_key` None when that of its row is meant; `version` and `seq` are
    those of its cursor, -1 without one.
    """

    turn_id: str
    ledger: LedgerName | None
    work_key: str | None
    version: int
    seq: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What Postgres says of a turn.

    `run` is its own row and `head` its ledger, None where there is none. `answered_by` is another run that completed
    its work. `cursor_event` holds the turn_id of the event where its cursor ends, and is empty when that event is not
    there. `own_version` is the newest history version that this turn itself made, asked only when its own is older
    than the ledger's.
    """

    run: Run | None = None
    started_at: datetime | None = None
    head: Head | None = None
    purged_at: datetime | None = None
    answered_by: str | None = None
    cursor_event: tuple[str | None, ...] = ()
    own_version: int | None = None


class OpenRun(NamedTuple):
    """A run that has not ended."""

    turn_id: str
    started_at: datetime
    ledger: LedgerName


def read_standings(connection: Connection, asked: Sequence[Asked]) -> dict[str, Standing]:
    """Where each of these turns stands, by turn_id, in one look."""
    names = [(turn.ledger.agent, turn.ledger.conversation) if turn.ledger else ("", "") for turn in asked]
    rows = connection.execute(
        statement("find_standings"),
        {
            "turn_ids": [turn.turn_id for turn in asked],
            "agents": [agent for agent, _ in names],
            "conversations": [conversation for _, conversation in names],
            "work_keys": [turn.work_key for turn in asked],
            "versions": [turn.version for turn in asked],
            "seqs": [turn.seq for turn in asked],
        },
    )
    return {row.turn_id: _standing(row) for row in rows}


def open_runs(database: Database, *, before: datetime, page: int) -> Iterator[list[OpenRun]]:
    """The runs that began before a moment and have not ended, oldest first, so many at a time.

    Each page is read when it is asked for, in a transaction of its own.
    """
    after, after_turn_id = _BEGINNING_OF_TIME, ""
    while True:
        with database.transaction() as connection:
            rows = connection.execute(
                statement("open_runs"),
                {"before": before, "after": after, "after_turn_id": after_turn_id, "most": page},
            ).all()
        if not rows:
            return
        yield [OpenRun(row[0], row[1], LedgerName(row[2], row[3])) for row in rows]
        after_turn_id, after = rows[-1][:2]


def lose_run(connection: Connection, head: Head, turn_id: str, *, code: str, now: str) -> bool:
    """Give an open run, or one that Postgres never knew, a provisional terminal under the ledger's lock.

    True when this call did it. A completion that arrives later overrules it: somebody may still hold the turn.
    """
    unknown = Run(turn_id, head.ledger_id, "", FIRST_EPOCH, 0, None, None)
    run = find_runs(connection, [turn_id]).get(turn_id, unknown)
    if run.outcome is not None:
        return False
    terminal = failed_event(turn_id, code=code, now=now)._replace(key=lost_key(turn_id))
    end_run(connection, head, run=run, outcome="lost", started_at=now, row=terminal)
    return True


def find_parent(connection: Connection, child: LedgerName) -> LedgerName | None:
    """The ledger that opened this one, or None."""
    names = {"agent": child.agent, "conversation": child.conversation}
    row = connection.execute(statement("find_parent"), names).one_or_none()
    return None if row is None else LedgerName(row[0], row[1])


def _standing(row: Row[tuple[object, ...]]) -> Standing:
    run = None if row.run_ledger_id is None else _run(row)
    head = None if row.ledger_id is None else Head(row.ledger_id, row.history_version, row.next_seq, row.turn_count)
    return Standing(
        run=run,
        started_at=row.started_at,
        head=head,
        purged_at=row.purged_at,
        answered_by=row.answered_by,
        cursor_event=(row.event_turn_id,) if row.has_event else (),
        own_version=row.own_version,
    )


def _run(row: Row[tuple[object, ...]]) -> Run:
    return Run(
        row.turn_id, row.run_ledger_id, row.work_key, row.epoch, row.steps_written, row.outcome, row.duplicate_of
    )
