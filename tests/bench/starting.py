"""What a start costs, against a bare transaction of the same statements and one write to Redis."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from sqlalchemy import event

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import seed_committed
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.checkpoint import Turns
from turnledger.store.events import EventRow, handled_key, message_event, started_event
from turnledger.store.times import time_text

STARTS, WARM_UPS, ENTRIES = 300, 10, 20
_NEW = 50_000_000  # where the numbers of the turns begin that are started here
_STARTED_AT = time_text(1_790_000_000_000)
_PARAMETER = re.compile(r"(?<!:):(\w+)")


def measure(rig: Rig) -> Report:
    """`Turns.start` and its bare peer, each on ledgers of its own that have 20 entries, one start a ledger."""
    ledgers = 2 * (STARTS + WARM_UPS)
    rig.empty()
    history = sample_turns(ledgers * ENTRIES, ledgers=ledgers)
    seed_committed(rig.database, rig.records, history)
    rig.settle()
    samples = iter([SampleTurn(_NEW + number, sample.ledger) for number, sample in enumerate(history[:ledgers])])
    ours, bare = _Ours(rig), _Bare(rig)
    for _ in range(WARM_UPS):
        ours.start(next(samples))
        bare.record = ours.record()
        bare.start(next(samples))
    _check_same_statements(ours, bare)
    times = in_turns(lambda: ours.start(next(samples)), lambda: bare.start(next(samples)), rounds=STARTS)
    p50, bare_p50 = (median(side) * 1_000 for side in times)
    statements, record_bytes = len(bare.statements), sum(len(text.encode()) for text in bare.record.values())
    ours.close()
    bare.close()
    result = Result("start, p50", p50, "ms", "bare transaction and one HSET", bare_p50, Goal("at most", 2))
    return Report("c. Starting a turn", _how(statements, record_bytes), [result])


class _Ours:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._turns = Turns(records=rig.records, database=rig.database)
        self._last = ""
        self.statements: list[str] = []
        event.listen(rig.database.engine, "before_cursor_execute", self._note)

    def start(self, sample: SampleTurn) -> float:
        """Seconds of one start."""
        self.statements.clear()
        self._last = sample.turn_id
        return seconds_of(
            lambda: self._turns.start(
                agent=sample.ledger.agent,
                conversation=sample.ledger.conversation,
                triggered_by=sample.message.text,
                work_key=sample.work_key,
                messages=[sample.message],
                turn_id=sample.turn_id,
            )
        )

    def record(self) -> dict[str, str]:
        """The fields of the record of the last start."""
        found = self._rig.redis.hgetall(self._rig.records.keys.record(self._last))
        return {str(name): str(value) for name, value in found.items()}

    def close(self) -> None:
        event.remove(self._rig.database.engine, "before_cursor_execute", self._note)

    def _note(self, *arguments: Any) -> None:
        self.statements.append(arguments[2])


class _Bare:
    """psycopg alone, with the texts of the product's own .sql files, and all values ready."""

    def __init__(self, rig: Rig) -> None:
        self._redis = rig.redis
        self._connection = psycopg.connect(rig.database_url, options="-c search_path=turnledger")
        self.record: dict[Any, Any] = {}
        self.statements: list[str] = []

    def start(self, sample: SampleTurn) -> float:
        """Seconds of one start."""
        self.statements.clear()
        rows = [
            message_event(sample.message, now=_STARTED_AT),
            started_event(sample.turn_id, work_key=sample.work_key, now=_STARTED_AT),
        ]
        keys = [*(str(row.key) for row in rows), handled_key(sample.message.message_id)]
        return seconds_of(lambda: self._start(sample, rows, keys))

    def close(self) -> None:
        self._connection.close()

    def _start(self, sample: SampleTurn, rows: Sequence[EventRow], keys: Sequence[str]) -> None:
        with self._connection.transaction():
            name = {"agent": sample.ledger.agent, "conversation": sample.ledger.conversation}
            ledger_id, version, next_seq, turn_count = self._run("lock_ledger", name)[0]
            self._run("find_runs", {"turn_ids": [sample.turn_id]})
            self._run("find_answered", {"ledger_ids": [ledger_id], "work_keys": [sample.work_key]})
            self._run("recent_entries", {"ledger_id": ledger_id, "most": ENTRIES})
            self._run("find_keys", {"ledger_ids": [ledger_id] * len(keys), "keys": keys})
            run = {"turn_id": sample.turn_id, "work_key": sample.work_key, "started_at": _STARTED_AT}
            self._run("insert_run", {"ledger_id": ledger_id, **run})
            place = {"ledger_id": ledger_id, "version": version, "next_seq": next_seq}
            self._run("insert_events", _event_columns(rows, **place, turn_id=sample.turn_id))
            advanced = {"next_seqs": [next_seq + len(rows)], "turn_counts": [turn_count]}
            self._run("advance_heads", {"ledger_ids": [ledger_id], **advanced})
        self._redis.hset(f"{{bare}}ledger:turn:{sample.turn_id}", mapping=self.record)

    def _run(self, name: str, parameters: Mapping[str, object]) -> list[Any]:
        text = _statement(name)
        self.statements.append(text)
        cursor = self._connection.execute(text.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


@cache
def _statement(name: str) -> str:
    text = (files("turnledger.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return _PARAMETER.sub(r"%(\1)s", text)


def _event_columns(
    rows: Sequence[EventRow], *, ledger_id: int, version: int, next_seq: int, turn_id: str
) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "history_version": version,
        "seqs": list(range(next_seq, next_seq + len(rows))),
        "types": [row.type for row in rows],
        "schema_versions": [row.schema_version for row in rows],
        "turn_ids": [turn_id] * len(rows),
        "keys": [row.key for row in rows],
        "payloads": [row.payload for row in rows],
        "contents": [row.content for row in rows],
        "search_texts": [row.search_text for row in rows],
        "occurred_at": [row.occurred_at for row in rows],
    }


def _check_same_statements(ours: _Ours, bare: _Bare) -> None:
    """The bare side follows the product: a peer that runs something else is no peer."""
    assert [_words(text) for text in ours.statements] == [_words(text) for text in bare.statements], (
        "a start runs other statements than its bare peer in tests/bench/starting.py; bring them together"
    )


def _words(text: str) -> list[str]:
    return text.split()


def _how(statements: int, record_bytes: int) -> str:
    return (
        f"One inbound message, turn_started, head, {ENTRIES} entries, on ledgers with {ENTRIES} entries, one start a "
        f"ledger, {STARTS} starts a side, in turns. Bare is psycopg with the same {statements} statements (compared "
        "with those that a start ran), ready parameters, the same rows read, in one transaction, and one HSET of the "
        f"same {record_bytes:,} bytes as the record. Ours also reads the ledger's state in Redis first, renders the "
        "block, and checks what it is given."
    )
