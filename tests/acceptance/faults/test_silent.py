"""A Postgres that says nothing although its machine keeps the connections open: frozen, or cut off without a word."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine import Engine, within
from tests.ledger_checks import wait_until
from tests.proxy import Proxy
from tests.recovering import Recovery
from tests.stores import Stores, assistant, begin
from turnledger.checkpoint import Turns
from turnledger.store import Database, Replied, StoreUnavailable, migrate
from turnledger.store.ledger import database_time
from turnledger.workers.clock import Clock

SOON: dict[str, Any] = {
    "database_connect_timeout_s": 2,
    "lock_timeout_ms": 200,
    "statement_timeout_ms": 600,
    "database_patience_s": 0.3,
}
GIVEN_UP_S = 15.0


def test_a_start_gives_a_silent_postgres_up_and_goes_on(stores: Stores, recovery: Recovery) -> None:
    """Over connections that were there before; what follows is committed once it speaks again (FL-1)."""
    with Proxy(stores.database_url) as proxy:
        node: Turns = stores.node(store={"database_url": proxy.url, **SOON})
        first = begin(node)
        first.complete(reply=Replied("One"), steps=[assistant("One")])
        stores.drain()
        proxy.pause()
        began = time.monotonic()
        with within(GIVEN_UP_S):
            turn = begin(node)
        recovery.note(f"a start given up after {time.monotonic() - began:.1f} s: 0.2 s for locks, 0.3 s of silence")
        assert isinstance(turn.history_error, StoreUnavailable)
        turn.complete(reply=Replied("Two"), steps=[assistant("Two")])
        proxy.unpause()
        stores.drain()
        again = begin(node)
        assert again.history_error is None
        assert again.earlier.count("### ") == 2


def test_work_gives_a_silent_postgres_up_later_than_any_statement_takes(stores: Stores) -> None:
    """A statement that is slow is not taken for silence before its own timeout; a migration has its time (QU-7)."""
    with Proxy(stores.database_url) as proxy:
        database = Database.from_settings(database_url=proxy.url, **SOON)
        with database.transaction() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(0.5)")
        with within(GIVEN_UP_S), pytest.raises(StoreUnavailable, match="does not answer"):
            _ask_before_and_after(proxy.pause, database)
        proxy.unpause()
        migrate(database)
        database.close()


def test_the_clock_gives_a_silent_postgres_up_and_finds_it_again(stores: Stores) -> None:
    """Its connection of its own is no exception (FL-7)."""
    with Proxy(stores.database_url) as proxy:
        engine = Engine(proxy.url, stores.redis_url)
        engine.database.close()
        engine.database = Database.from_settings(database_url=proxy.url, **SOON)
        clock = engine.clock()
        assert clock.holds_lock()
        proxy.pause()
        with within(GIVEN_UP_S):
            assert not clock.holds_lock()
        proxy.unpause()
        wait_until(lambda: _assert_holds(clock), seconds=GIVEN_UP_S)
        clock._release()
        engine.close()
        engine.database.close()


def _assert_holds(clock: Clock) -> None:
    assert clock.holds_lock()


def _ask_before_and_after(silence: Callable[[], None], database: Database) -> None:
    with database.transaction() as connection:
        database_time(connection)
        silence()
        database_time(connection)
