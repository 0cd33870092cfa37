"""What a start costs, against a bare transaction of the same statements and one write to Redis."""

from typing import Any, ClassVar

import psycopg
from sqlalchemy import event

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import seed_committed, start
from tests.bench.timing import in_order, median, seconds_of

STARTS, WARM_UPS, ENTRIES = 300, 20, 20
_NEW = 50_000_000  # where the numbers of the turns begin that are started here

Statement = tuple[str, Any]


def measure(rig: Rig) -> Report:
    """`Turns.start` in one database, its statements again in a copy of it; 20 entries a ledger, one start a ledger."""
    rig.empty()
    ledgers = WARM_UPS + STARTS
    history = sample_turns(ledgers * ENTRIES, ledgers=ledgers)
    seed_committed(rig, history)
    samples = iter([SampleTurn(_NEW + number, sample.ledger) for number, sample in enumerate(history[:ledgers])])
    copy_url = rig.copy_database()
    ours = _Ours(rig)
    bare = _Bare(rig, ours, database_url=copy_url)
    in_order(lambda: ours.start(next(samples)), bare.start, rounds=WARM_UPS)
    times = in_order(lambda: ours.start(next(samples)), bare.start, rounds=STARTS)
    p50, bare_p50 = (median(side) * 1_000 for side in times)
    how = _how(len(ours.statements), sum(len(text.encode()) for text in ours.record().values()))
    ours.close()
    bare.close()
    result = Result("start, p50", p50, "ms", "bare transaction and one HSET", bare_p50, Goal("at most", 2))
    return Report("c. Starting a turn", how, [result])


class _NotingCursor(psycopg.Cursor[Any]):
    noted: ClassVar[list[Statement]] = []

    def execute(self, query: Any, params: Any = None, **options: Any) -> "_NotingCursor":
        self.noted.append((query, params))
        return super().execute(query, params, **options)


class _Ours:
    """Starts turns, and notes which statements with which parameters that takes."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.turn_id = ""
        self.statements = _NotingCursor.noted
        rig.database.close()
        event.listen(rig.database.engine, "connect", self._prepare)

    def start(self, sample: SampleTurn) -> float:
        """Seconds of one start."""
        self.statements.clear()
        self.turn_id = sample.turn_id
        return seconds_of(lambda: start(self._rig.turns, sample))

    def record(self) -> dict[str, str]:
        """The fields of the record that the last start made."""
        found = self._rig.redis.hgetall(self._rig.records.keys.record(self.turn_id))
        return {str(name): str(value) for name, value in found.items()}

    def close(self) -> None:
        event.remove(self._rig.database.engine, "connect", self._prepare)
        self._rig.database.close()

    def _prepare(self, connection: psycopg.Connection, _: object) -> None:
        connection.cursor_factory = _NotingCursor


class _Bare:
    """psycopg alone: the statements of the last start of the other side, on a copy of the database."""

    def __init__(self, rig: Rig, ours: _Ours, *, database_url: str) -> None:
        self._redis = rig.redis
        self._ours = ours
        self._connection = psycopg.connect(database_url, options="-c search_path=turnledger")

    def start(self) -> float:
        """Seconds of one transaction, all its rows read, and one HSET of the whole record."""
        record: dict[Any, Any] = {**self._ours.record()}
        return seconds_of(lambda: self._start(f"{{bare}}ledger:turn:{self._ours.turn_id}", record))

    def close(self) -> None:
        self._connection.close()

    def _start(self, key: str, record: dict[Any, Any]) -> None:
        with self._connection.transaction():
            for text, parameters in self._ours.statements:
                cursor = self._connection.execute(text, parameters)
                if cursor.description:
                    cursor.fetchall()
        self._redis.hset(key, mapping=record)


def _how(statements: int, record_bytes: int) -> str:
    return (
        f"One inbound message, turn_started, head, {ENTRIES} entries, on ledgers with {ENTRIES} entries, one start a "
        f"ledger, {STARTS} starts. Bare is psycopg: right after each start its {statements} statements again, with the "
        "same parameters, in one transaction on a copy of the database, all rows read, and then one HSET of the same "
        f"{record_bytes:,} bytes as the record. Ours also reads the ledger's state in Redis first, renders the block, "
        "and checks what it is given."
    )
