"""Trouble that passes rejects nothing and loses nothing; trouble that a person must repair stops the worker."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.engine import Engine, start_worker, within
from tests.ledger_checks import check_invariants, wait_for_invariants
from tests.processes import Processes
from turnledger.store import Database, StoreSettings
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed
from turnledger.workers.settings import WorkerSettings

PATIENT = WorkerSettings(transient_wait_s=10, first_pause_s=0.01, longest_pause_s=0.02)
IMPATIENT = WorkerSettings(transient_wait_s=0.3, first_pause_s=0.01, longest_pause_s=0.1)

PASSING = {
    "40001": "could not serialize access",
    "40P01": "deadlock detected",
    "53100": "disk full",
    "53200": "out of memory",
    "57014": "statement timeout",
    "57P01": "terminating connection due to administrator command",
    "58030": "I/O error",
    "25006": "read-only transaction",
}
REPAIRS = {
    "a missing column": (
        "ALTER TABLE turnledger.ledger_entry RENAME COLUMN entry TO lost",
        "ALTER TABLE turnledger.ledger_entry RENAME COLUMN lost TO entry",
    ),
    "a revoked grant": (
        "REVOKE INSERT ON turnledger.ledger_event FROM plain_worker",
        "GRANT INSERT ON turnledger.ledger_event TO plain_worker",
    ),
    "a renamed schema": (
        "ALTER SCHEMA turnledger RENAME TO elsewhere",
        "ALTER SCHEMA elsewhere RENAME TO turnledger",
    ),
}


@pytest.mark.parametrize("sqlstate", PASSING)
def test_trouble_that_passes_is_waited_out(engine: Engine, sqlstate: str) -> None:
    """(QU-7)"""
    first, second = engine.play("jira:A-1"), engine.play("jira:B-1")
    _execute(engine, _raise_on_every_entry(sqlstate))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            _execute(engine, "DROP TRIGGER trouble ON turnledger.ledger_entry")

    _committer(engine, sleep=sleep).persist(first.turn_id)
    _committer(engine).persist(second.turn_id)
    assert len(pauses) == 3
    engine.commit_all()
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


@pytest.mark.parametrize("sqlstate", PASSING)
def test_trouble_that_lasts_puts_the_job_back_and_rejects_nothing(engine: Engine, sqlstate: str) -> None:
    """(QU-7)"""
    turn = engine.play()
    _execute(engine, _raise_on_every_entry(sqlstate))
    with within(), pytest.raises(CommitPostponed):
        _committer(engine, settings=IMPATIENT).persist(turn.turn_id)
    assert engine.state(turn.turn_id) == "completed"
    assert engine.pending(engine.ledger_of(turn)) == [turn.turn_id]


def test_a_real_deadlock_costs_the_commit_a_second_try_and_nothing_else(engine: Engine) -> None:
    """(QU-7)"""
    turn = engine.play()
    notices_at_once = f"{engine.database_url}?options=-c%20deadlock_timeout%3D50ms"  # and so becomes the victim
    database = Database(StoreSettings(database_url=notices_at_once))
    pauses: list[float] = []
    with psycopg.connect(engine.database_url) as other:
        other.execute("LOCK TABLE turnledger.ledger_event IN EXCLUSIVE MODE")
        committer = _committer(engine, database=database, sleep=pauses.append)
        commit = threading.Thread(target=committer.persist, args=[turn.turn_id])
        commit.start()
        _wait_for_a_waiting_lock(engine)
        other.execute("SELECT 1 FROM turnledger.ledger FOR UPDATE")  # granted once the commit has given up
        other.rollback()
    commit.join()
    database.close()
    assert pauses
    assert engine.state(turn.turn_id) == "committed"


def test_a_statement_that_takes_too_long_is_tried_again(engine: Engine) -> None:
    """(QU-7)"""
    turn = engine.play()
    _execute(engine, _on_every_entry("PERFORM pg_sleep(5);"))
    database = Database(StoreSettings(database_url=engine.database_url, statement_timeout_ms=100))
    try:
        with within(), pytest.raises(CommitPostponed, match="57014"):
            _committer(engine, database=database, settings=IMPATIENT).persist(turn.turn_id)
    finally:
        database.close()
    assert engine.state(turn.turn_id) == "completed"


def test_a_postgres_that_became_read_only_is_waited_for(engine: Engine) -> None:
    """(QU-7)"""
    turn = engine.play()
    name = engine.database_url.rpartition("/")[2]
    _execute(engine, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database = Database(StoreSettings(database_url=engine.database_url))
    try:
        with within(), pytest.raises(CommitPostponed, match="25006"):
            _committer(engine, database=database, settings=IMPATIENT).persist(turn.turn_id)
    finally:
        database.close()
    assert engine.state(turn.turn_id) == "completed"
    _committer(engine).persist(turn.turn_id)  # over a connection that was there before
    assert engine.state(turn.turn_id) == "committed"


def test_a_held_ledger_sends_its_job_back_and_its_turns_keep_their_order(engine: Engine) -> None:
    """(QU-3, QU-7)"""
    first, second = engine.play(), engine.play()
    with psycopg.connect(engine.database_url) as other:
        other.execute("SELECT 1 FROM turnledger.ledger FOR UPDATE")
        with within(), pytest.raises(CommitPostponed, match="55P03"):
            _committer(engine).persist(second.turn_id)
    _committer(engine).persist(second.turn_id)
    assert [engine.redis.hget(engine.keys.record(turn.turn_id), "ordinal") for turn in (first, second)] == ["1", "2"]


@pytest.mark.parametrize("what", REPAIRS)
def test_what_a_person_must_repair_stops_the_worker_with_everything_pending(
    engine: Engine, processes: Processes, plain_worker_url: str, what: str
) -> None:
    """(QU-7)"""
    breaks, repairs = REPAIRS[what]
    environment = engine.environment(TURNLEDGER_DATABASE_URL=plain_worker_url)
    worker = start_worker(processes, environment)
    engine.play("jira:OK-1")
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
    turns = [engine.start(f"jira:POC-{number}") for number in range(3)]
    _execute(engine, breaks)
    for turn in turns:
        engine.complete(turn)

    assert worker.wait() == 1
    assert "worker_stops" in worker.output
    assert [engine.state(turn.turn_id) for turn in turns] == ["completed"] * 3

    _execute(engine, repairs)
    assert start_worker(processes, environment, burst=True).wait() == 0
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


@pytest.fixture
def plain_worker_url(engine: Engine) -> Iterator[str]:
    """The database as a role sees it that may do what a worker does and no more."""
    grants = (
        "CREATE ROLE plain_worker LOGIN",
        "GRANT USAGE ON SCHEMA turnledger TO plain_worker",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA turnledger TO plain_worker",
    )
    _execute(engine, *grants)
    yield engine.database_url.replace("//turnledger@", "//plain_worker@")
    _execute(engine, "DROP OWNED BY plain_worker", "DROP ROLE plain_worker")


def _committer(
    engine: Engine,
    *,
    database: Database | None = None,
    settings: WorkerSettings = PATIENT,
    sleep: Callable[[float], None] = time.sleep,
) -> Committer:
    return Committer(records=engine.records, database=database or engine.database, settings=settings, sleep=sleep)


def _raise_on_every_entry(sqlstate: str) -> str:
    return _on_every_entry(f"RAISE EXCEPTION 'made up' USING ERRCODE = '{sqlstate}';")


def _on_every_entry(body: str) -> str:
    return f"""
        CREATE FUNCTION turnledger.trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
        CREATE TRIGGER trouble BEFORE INSERT ON turnledger.ledger_entry
            FOR EACH ROW EXECUTE FUNCTION turnledger.trouble()
    """


def _execute(engine: Engine, *commands: str) -> None:
    with _connected(engine) as connection:
        for command in commands:
            connection.execute(command.encode())


@contextmanager
def _connected(engine: Engine) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(engine.database_url, autocommit=True) as connection:
        yield connection


def _wait_for_a_waiting_lock(engine: Engine) -> None:
    with _connected(engine) as connection, within():
        while not connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            pass
