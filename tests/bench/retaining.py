"""Sweeps of retention over 100,000 old turns: how many rows a second, and how long a start waits meanwhile."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.bench.results import Report, Result
from tests.bench.rig import Rig
from tests.bench.timing import seconds_of
from tests.configuring import write_config
from turnledger.store import Database
from turnledger.store.retention import Retention
from turnledger.workers.settings import WorkerSettings

LEDGERS, TURNS_EACH, EVENTS_EACH = 1_000, 100, 5
QUIET_S = 10.0  # what the machine alone makes a start wait
_TURNS = LEDGERS * TURNS_EACH
_STARTER = """
import json, logging, sys, threading, time
import structlog
from turnledger.checkpoint import Turns
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
turns, waits, ended = Turns.from_settings(), [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
def start(number):
    return turns.start(agent="lead", conversation=f"jira:BENCH-{number % int(sys.argv[1]) + 1}", triggered_by="Please")
start(0).abandon()
print("ready", flush=True)
number = 0
while not ended.is_set():
    number += 1
    began = time.perf_counter()
    turn = start(number)
    waits.append(time.perf_counter() - began)
    turn.abandon()
waits.sort()
print(json.dumps([waits[len(waits) // 2], waits[int(len(waits) * 0.99)], waits[-1]]))
turns.close()
"""
_LEDGERS = """
INSERT INTO ledger (agent, conversation_key, next_seq, turn_count)
SELECT 'lead', 'jira:BENCH-' || n, CAST(%(turns)s AS bigint) * %(events)s, %(turns)s
FROM generate_series(1, %(ledgers)s) AS n
"""
_RUNS = """
INSERT INTO ledger_turn (turn_id, ledger_id, work_key, started_at, ended_at, outcome)
SELECT 'old-' || ledger_id || '-' || n, ledger_id, '', ended_at, ended_at, 'completed'
FROM ledger, generate_series(1, %(turns)s) AS n,
    LATERAL (SELECT now() - interval '60 days' + n * interval '1 minute' AS ended_at) AS time
"""
_ENTRIES = """
INSERT INTO ledger_entry (ledger_id, ordinal, entry_id, turn_id, work_key, completed_at, entry)
SELECT ledger_id, split_part(turn_id, '-', 3)::int, gen_random_uuid(), turn_id, '', ended_at,
    json_build_object('triggered_by', repeat('word ', 200))
FROM ledger_turn
"""
_EVENTS = """
INSERT INTO ledger_event (
    ledger_id, seq, history_version, type, schema_version, turn_id, idempotency_key, payload, content, occurred_at
)
SELECT ledger_id, (split_part(turn_id, '-', 3)::bigint - 1) * %(events)s + n, 0, 'agent_step', 1, turn_id,
    CASE n WHEN 0 THEN 'started:' || turn_id WHEN %(events)s - 1 THEN 'ended:' || turn_id END, '{}',
    to_json(repeat('word ', 200)), ended_at
FROM ledger_turn, generate_series(0, %(events)s - 1) AS n
"""


def measure(rig: Rig) -> Report:
    """Entries, then the events of whole turns, beside one bare DELETE of as many; starts on the ledgers in question."""
    _seed(rig)
    _, quiet = _watched(rig, lambda: time.sleep(QUIET_S))
    entries_s, entry_waits = _watched(rig, lambda: _sweep(rig, retention_days=30))
    events_s, event_waits = _watched(rig, lambda: _sweep(rig, retention_days=30, event_retention_days=30))
    _seed(rig)
    bare_entries_s = seconds_of(lambda: _delete(rig, "DELETE FROM ledger_entry"))
    bare_events_s = seconds_of(lambda: _delete(rig, "DELETE FROM ledger_event"))
    bare, events = "one bare DELETE", _TURNS * EVENTS_EACH
    results = [
        Result(f"{_TURNS:,} entries", _TURNS / entries_s, "rows/s", bare, _TURNS / bare_entries_s),
        Result(f"{events:,} events", events / events_s, "rows/s", bare, events / bare_events_s),
    ]
    for name, waits in (("entries", entry_waits), ("events", event_waits)):
        for which, took_s, peer_s in zip(("p50", "p99", "longest"), waits, quiet, strict=True):
            title = f"a start meanwhile ({name}), {which}"
            results.append(Result(title, took_s * 1_000, "ms", "without a sweep", peer_s * 1_000))
    return Report("Retention: sweeping 100,000 turns", _HOW, results)


def _seed(rig: Rig) -> None:
    rig.empty()
    named = {"ledgers": LEDGERS, "turns": TURNS_EACH, "events": EVENTS_EACH}
    with psycopg.connect(rig.database_url, options="-c search_path=turnledger") as connection:
        for command in (_LEDGERS, _RUNS, _ENTRIES, _EVENTS):
            connection.execute(command.encode(), named)
    with psycopg.connect(rig.database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    rig.settle()


def _sweep(rig: Rig, **section: object) -> None:
    settings = WorkerSettings()
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder), **section)
        database = Database.from_settings(database_url=rig.database_url, config=config)
        retention = Retention(database, least_age_s=settings.sweep_interval_s, batch_rows=settings.retention_batch_rows)
        removed = retention.sweep(stopped=lambda: False)
        if "event_retention_days" in section:  # ledgers that a start held are left to the next sweep
            removed += retention.sweep(stopped=lambda: False)
            assert removed.turns == _TURNS, removed
        else:
            assert removed.entries == _TURNS, removed
        database.close()


def _delete(rig: Rig, command: str) -> None:
    with psycopg.connect(rig.database_url, options="-c search_path=turnledger") as connection:
        connection.execute("SET LOCAL turnledger.maintenance = 'retention'")
        connection.execute(command.encode())


def _watched(rig: Rig, action: Callable[[], None]) -> tuple[float, list[float]]:
    """Seconds of the action, and p50, p99 and the longest of the starts that another process made meanwhile."""
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(LEDGERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**rig.environment},
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == "ready\n"
    seconds = seconds_of(action)
    said, _ = starter.communicate()
    return seconds, json.loads(said)


_HOW = (
    f"{LEDGERS:,} ledgers with {TURNS_EACH} turns each that ended 60 days ago, and for each an entry and {EVENTS_EACH} "
    "events of 1 KB. A sweep deletes the entries, then another one the events, with the settings' defaults; beside it "
    "one DELETE of the whole table. Meanwhile another process starts and abandons turns on these ledgers, one by one."
)
