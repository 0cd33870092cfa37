"""Connections and transactions: bounded in time, whole or not at all, and clear about what went wrong."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from sqlalchemy import Connection

from tests.ledger_checks import wait_for
from tests.processes import Processes
from tests.proxy import DropReply, DropRequest, Proxy
from tests.stores import LEAD, Stores
from turnledger.store import (
    Database,
    Message,
    StoreBusy,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
    check_revision,
    migrate,
)
from turnledger.store.database import copy_rows
from turnledger.store.events import message_event
from turnledger.store.ledger import append, create_ledgers, lock_ledger

COMMIT = b"COMMIT\x00"  # not that of READ COMMITTED
NOW = "2026-11-30T16:20:16.123Z"


def run(database: Database, *commands: str) -> None:
    with database.transaction() as connection:
        for command in commands:
            connection.exec_driver_sql(command)


def with_settings(stores: Stores, **given: object) -> Database:
    return Database.from_settings(database_url=stores.database_url, **given)


@pytest.fixture
def proxy(stores: Stores) -> Iterator[Proxy]:
    with Proxy(stores.database_url) as standing:
        yield standing


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Database]:
    """A database behind the proxy."""
    database = Database.from_settings(database_url=proxy.url, database_connect_timeout_s=2)
    yield database
    database.close()


def test_every_connection_has_its_timeouts_its_schema_and_its_isolation(stores: Stores) -> None:
    """Pinned, whatever the server's defaults are (DESIGN 4)."""
    database = with_settings(
        stores, lock_timeout_ms=1_234, statement_timeout_ms=23_456, idle_in_transaction_timeout_ms=34_567
    )
    shown = {
        "lock_timeout": "1234ms",
        "statement_timeout": "23456ms",
        "idle_in_transaction_session_timeout": "34567ms",
        "search_path": "turnledger",
        "transaction_isolation": "read committed",
        "application_name": "turnledger",
    }
    with database.transaction() as connection:
        assert {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in shown} == shown
    with database.transaction(lock_timeout_ms=77) as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "77ms"
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "1234ms"
    database.close()


def test_both_ends_of_a_connection_give_up_one_that_has_gone_silent(stores: Stores) -> None:
    """(FL-7): TCP itself would go on for a quarter of an hour, with the ledgers of a vanished host locked."""
    database = with_settings(stores, database_silence_s=20)
    asked_for = {"keepalives_idle": "10", "keepalives_interval": "2", "keepalives_count": "5"}
    server = {**{f"tcp_{name}": value for name, value in asked_for.items()}, "tcp_user_timeout": "20000"}
    client = {**asked_for, "tcp_user_timeout": "20000"}
    with database.transaction() as connection:
        assert {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in server} == server
        driver_connection: Any = connection.connection.driver_connection
        assert driver_connection.info.get_parameters().items() >= client.items()
    database.close()


def run_then_raise(database: Database, command: str, error: BaseException) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql(command)
        raise error


def test_a_transaction_is_committed_when_its_block_ends_and_rolled_back_otherwise(stores: Stores) -> None:
    """On any exception, one of the caller's included (QU-5)."""
    insert = "INSERT INTO ledger (agent, conversation_key) VALUES ('a', 'jira:1')"
    for error in (KeyError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            run_then_raise(stores.database, insert, error)
    assert stores.rows("SELECT count(*) FROM ledger") == [(0,)]
    run(stores.database, insert)
    assert stores.rows("SELECT count(*) FROM ledger") == [(1,)]


def test_a_snapshot_sees_one_moment_and_writes_nothing(stores: Stores) -> None:
    """Every statement of it; afterwards the connection is as before (QU-8)."""
    database = with_settings(stores, pool_size=1)
    with database.snapshot() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM ledger").scalar_one() == 0
        create_ledgers(stores.database, [LEAD])
        assert connection.exec_driver_sql("SELECT count(*) FROM ledger").scalar_one() == 0
    with pytest.raises(TurnledgerError, match="read-only"), database.snapshot() as connection:
        connection.exec_driver_sql("DELETE FROM ledger")
    run(database, "DELETE FROM ledger")
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
    database.close()


def hold(connection: Connection) -> None:
    connection.exec_driver_sql("SELECT 1 FROM ledger FOR UPDATE")


def test_a_lock_that_does_not_come_in_time_is_busy(stores: Stores) -> None:
    """Try again (QU-7)."""
    create_ledgers(stores.database, [LEAD])
    patient = with_settings(stores, lock_timeout_ms=30_000)
    with stores.database.transaction() as holder:
        hold(holder)
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="55P03"), patient.transaction(lock_timeout_ms=100) as connection:
            lock_ledger(connection, LEAD)
        assert 0.1 <= time.monotonic() - began < 15
    patient.close()


def test_a_statement_that_takes_too_long_is_busy(stores: Stores) -> None:
    """Try again (QU-7)."""
    database = with_settings(stores, statement_timeout_ms=50)
    with pytest.raises(StoreBusy, match="57014"):
        run(database, "SELECT pg_sleep(5)")
    run(database, "SELECT 1")
    database.close()


def test_a_deadlock_is_busy(stores: Stores) -> None:
    """For one of the two; the other goes on (QU-7)."""
    run(stores.database, "INSERT INTO ledger (agent, conversation_key) VALUES ('a', 'jira:1'), ('b', 'jira:1')")
    with stores.connection() as other:
        other.execute("SET deadlock_timeout = '1h'")
        other.execute("UPDATE ledger SET next_seq = 1 WHERE agent = 'b'")

        def wait_for_the_first() -> None:
            other.pgconn.send_query(b"UPDATE ledger SET next_seq = 1 WHERE agent = 'a'")
            wait_for(lambda: stores.rows("SELECT 1 FROM pg_locks WHERE NOT granted") != [])

        with pytest.raises(StoreBusy, match="40P01"):
            meet_in_a_circle(stores.database, wait_for_the_first)
        while other.pgconn.get_result() is not None:
            pass


def meet_in_a_circle(database: Database, meanwhile: Callable[[], None]) -> None:
    with database.transaction(lock_timeout_ms=30_000) as connection:
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '10ms'")
        connection.exec_driver_sql("UPDATE ledger SET next_seq = 2 WHERE agent = 'a'")
        meanwhile()
        connection.exec_driver_sql("UPDATE ledger SET next_seq = 2 WHERE agent = 'b'")


def test_a_process_that_is_frozen_inside_a_transaction_gives_its_locks_back(stores: Stores) -> None:
    """The server ends it; its next statement says that it may be tried again (DESIGN 4)."""
    create_ledgers(stores.database, [LEAD])
    frozen = with_settings(stores, idle_in_transaction_timeout_ms=100)

    def freeze() -> None:
        with frozen.transaction() as connection:
            hold(connection)
            time.sleep(0.25)
            with stores.database.transaction(lock_timeout_ms=30_000) as other:
                assert lock_ledger(other, LEAD) is not None
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(StoreUnavailable):
        freeze()
    run(frozen, "SELECT 1")
    frozen.close()


def with_part(url: str, **changed: str) -> str:
    parts = urlsplit(url)
    user = changed.get("user", parts.username or "")
    place = f"{parts.hostname}:{changed.get('port', parts.port)}"
    return urlunsplit(parts._replace(netloc=f"{user}@{place}", path=changed.get("path", parts.path)))


WRONG: dict[str, tuple[Callable[[str], str], type[TurnledgerError], str]] = {
    "unknown database": (lambda url: with_part(url, path="/nowhere"), StoreMisconfigured, r"nowhere.*does not exist"),
    "unknown user": (lambda url: with_part(url, user="nobody"), StoreMisconfigured, r"nobody.*does not exist"),
    "server not there": (lambda url: with_part(url, port="1"), StoreUnavailable, "does not answer"),
}


@pytest.mark.parametrize("call", [check_revision, migrate, lambda database: run(database, "SELECT 1")])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_database_that_cannot_be_reached_is_reported_clearly(
    stores: Stores, wrong: str, call: Callable[[Database], object]
) -> None:
    """By every entrance; only what may pass by itself may be tried again (QU-7)."""
    change, kind, words = WRONG[wrong]
    database = Database.from_settings(database_url=change(stores.database_url))
    with pytest.raises(TurnledgerError, match=words) as raised:
        call(database)
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
    database.close()


def asks_for_a_password(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError as error:
        return "password" in str(error)
    return False


def test_a_wrong_password_is_reported_without_it(stores: Stores) -> None:
    """The message names the setting (QU-7)."""
    run(stores.database, "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    ((config,),) = stores.rows("SHOW hba_file")
    with open(config, encoding="utf-8") as file:  # noqa: PTH123  # a path of the server
        rules = file.read()
    try:
        with open(config, "w", encoding="utf-8") as file:  # noqa: PTH123  # a path of the server
            file.write("host all guarded all scram-sha-256\nlocal all guarded scram-sha-256\n" + rules)
        stores.execute("SELECT pg_reload_conf()")
        url = with_part(stores.database_url, user="guarded:wrong-secret")
        wait_for(lambda: asks_for_a_password(url))
        database = Database.from_settings(database_url=url)
        with pytest.raises(StoreMisconfigured, match="TURNLEDGER_DATABASE_URL") as raised:
            check_revision(database)
        assert "wrong-secret" not in str(raised.value)
        database.close()
    finally:
        with open(config, "w", encoding="utf-8") as file:  # noqa: PTH123  # a path of the server
            file.write(rules)
        stores.execute("SELECT pg_reload_conf()")
        stores.execute("DROP ROLE guarded")


def test_a_server_that_takes_no_writes_is_left_at_once(stores: Stores) -> None:
    """The next connection may lead to one that does (QU-7)."""
    name = stores.database_url.rpartition("/")[2]
    with stores.connection() as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    database = with_settings(stores, pool_size=1)
    try:
        with pytest.raises(StoreUnavailable, match="25006") as refused:
            create_ledgers(database, [LEAD])
        assert refused.value.is_read_only
    finally:
        with stores.connection() as connection:
            connection.execute(b"SET TRANSACTION READ WRITE")
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    create_ledgers(database, [LEAD])
    database.close()


def test_a_table_that_is_not_there_is_a_misconfiguration(empty_database_url: str) -> None:
    """Never the fault of a turn (QU-7)."""
    database = Database.from_settings(database_url=empty_database_url)
    with pytest.raises(StoreMisconfigured, match="42P01"):
        run(database, "SELECT * FROM ledger")
    database.close()


def test_a_revoked_grant_is_a_misconfiguration(stores: Stores) -> None:
    """Never the fault of a turn (QU-7)."""
    run(stores.database, "CREATE ROLE reader LOGIN")
    try:
        database = Database.from_settings(database_url=with_part(stores.database_url, user="reader"))
        with pytest.raises(StoreMisconfigured):
            create_ledgers(database, [LEAD])
        database.close()
    finally:
        run(stores.database, "DROP ROLE reader")


def test_data_that_copy_refuses_is_refused_like_any_other(stores: Stores) -> None:
    """COPY runs past SQLAlchemy; its errors are translated all the same (QU-6)."""
    for row in [("a", "not a number"), ("a\x00b", "1"), ("a", "jira:1", "too many")]:
        with pytest.raises(StoreRefused), stores.database.transaction() as connection:
            copy_rows(connection, target="ledger (agent, conversation_key, next_seq)", rows=[("x", *row[1:])[:3]])
    assert stores.rows("SELECT count(*) FROM ledger") == [(0,)]


def write_message(database: Database, name: str) -> None:
    with database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        append(connection, head, [message_event(Message(name, "Hello"), now=NOW)], turn_id=None)


@pytest.mark.parametrize(
    ("fault", "landed"),
    [(DropReply(COMMIT), True), (DropRequest(COMMIT), False), (DropRequest(b"INSERT INTO ledger_event"), False)],
    ids=["reply lost", "request lost", "in the middle"],
)
def test_a_connection_that_is_cut_may_be_tried_again_without_harm(
    stores: Stores,
    proxy: Proxy,
    far: Database,
    fault: DropReply | DropRequest,
    landed: bool,  # noqa: FBT001  # a case
) -> None:
    """Nobody knows whether a commit landed whose answer is lost; the repeat finds out (QU-7, EV-4)."""
    create_ledgers(far, [LEAD])
    write_message(far, "m0")
    proxy.arm(fault)
    with pytest.raises(StoreUnavailable) as raised:
        write_message(far, "m1")
    assert raised.value.retry
    if landed:
        wait_for(lambda: len(stores.texts()) == 2)
    assert len(stores.texts()) == (2 if landed else 1)
    write_message(far, "m1")
    assert len(stores.texts()) == 2


def test_a_server_that_restarts_costs_one_error_not_one_a_connection(
    stores: Stores, proxy: Proxy, far: Database
) -> None:
    """All connections of the pool are given up with the first (QU-7)."""
    with far.transaction(), far.transaction(), far.transaction():
        pass
    proxy.drop_connections()
    with pytest.raises(StoreUnavailable):
        run(far, "SELECT 1")
    for _ in range(3):
        run(far, "SELECT 1")


class Interrupted(Exception):
    """Raised by a signal handler, as RQ's job timeout is."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def copy_slowly(database: Database) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql(
            "CREATE TEMPORARY TABLE slow (n int, s text DEFAULT pg_sleep(3)::text) ON COMMIT DROP"
        )
        copy_rows(connection, target="slow (n)", rows=[(1,)])


def hold_in_a_snapshot(database: Database) -> None:
    with database.snapshot() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(3)")


SLOW: list[Callable[[Database], None]] = [
    lambda database: run(database, "SELECT pg_sleep(3)"),
    copy_slowly,
    hold_in_a_snapshot,
]


@pytest.mark.parametrize("call", SLOW, ids=["statement", "copy", "snapshot"])
def test_an_interrupted_statement_is_not_taken_for_a_lost_connection(
    stores: Stores, call: Callable[[Database], None]
) -> None:
    """Whoever interrupted it is told, or a job's timeout would be waited out as trouble that passes (DESIGN 4)."""
    with pytest.raises(Interrupted), interrupted_after(0.1):
        call(stores.database)
    run(stores.database, "SELECT 1")


def test_what_the_caller_raises_is_not_hidden_by_a_connection_that_is_lost_too(
    stores: Stores, proxy: Proxy, far: Database
) -> None:
    """The rollback fails, and that is the lesser news (DESIGN 4)."""

    def fail() -> None:
        with far.transaction() as connection:
            connection.exec_driver_sql("SELECT 1")
            proxy.drop_connections()
            time.sleep(0.05)
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        fail()


def test_what_was_being_handled_before_is_not_taken_for_an_interruption(stores: Stores) -> None:
    """A transaction in an except block tells its own trouble (DESIGN 4)."""

    def handle() -> None:
        try:
            dict[str, str]()["being handled"]
        except KeyError:
            run(stores.database, "SELECT * FROM nowhere")

    with pytest.raises(StoreMisconfigured, match="nowhere"):
        handle()


FORK = """
import os, sys
from turnledger.store import Database, LedgerName
from turnledger.store.ledger import create_ledgers
database = Database.from_settings()
create_ledgers(database, [LedgerName("parent", "jira:0")])
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        for number in range(10):
            create_ledgers(database, [LedgerName(f"child-{child}", f"jira:{number}")])
        database.close()
        os._exit(0)
    children.append(pid)
for number in range(10):
    create_ledgers(database, [LedgerName("parent", f"jira:{number}")])
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
create_ledgers(database, [LedgerName("parent", "jira:last")])
print("codes", codes)
"""


def test_a_database_works_in_the_child_of_a_fork(stores: Stores, processes: Processes) -> None:
    """The child's connections are its own; those of the parent go on (DESIGN 4)."""
    process = processes.snippet(FORK, environment={"TURNLEDGER_DATABASE_URL": stores.database_url})
    assert process.wait() == 0, process.output
    assert "codes [0, 0, 0]" in process.output
    assert stores.rows("SELECT count(*) FROM ledger") == [(3 * 10 + 11,)]
