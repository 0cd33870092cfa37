"""What Postgres says becomes one of four errors: later, busy, this data never, or a person has to act."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from turnledger.store._sqlstate import translate
from turnledger.store.errors import (
    StoreBusy,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
)

BY_SQLSTATE = {
    "40001": StoreBusy,  # serialization failure
    "40P01": StoreBusy,  # deadlock
    "55P03": StoreBusy,  # lock timeout
    "57014": StoreBusy,  # statement timeout
    "08006": StoreUnavailable,  # connection lost
    "53100": StoreUnavailable,  # disk full
    "53200": StoreUnavailable,  # out of memory
    "53300": StoreUnavailable,  # too many connections
    "57P01": StoreUnavailable,  # administrator ended the connection
    "57P03": StoreUnavailable,  # starting up
    "58030": StoreUnavailable,  # I/O error
    "25006": StoreUnavailable,  # read-only standby
    "25P03": StoreUnavailable,  # idle in a transaction for too long
    "22P02": StoreRefused,  # not JSON
    "22021": StoreRefused,  # NUL in a text
    "54000": StoreRefused,  # a tsvector too long
    "54001": StoreRefused,  # nested too deeply
    "42P01": StoreMisconfigured,  # no such table
    "42703": StoreMisconfigured,  # no such column
    "42501": StoreMisconfigured,  # grant revoked
    "3D000": StoreMisconfigured,  # no such database
    "28P01": StoreMisconfigured,  # wrong password
    "23001": StoreMisconfigured,  # the append-only trigger, which names no constraint
    "XX000": StoreMisconfigured,  # internal error
}
REFUSED_CONNECTIONS = {
    'connection to server failed: FATAL:  database "x" does not exist': StoreMisconfigured,
    'connection to server failed: FATAL:  role "x" does not exist': StoreMisconfigured,
    'connection failed: FATAL:  password authentication failed for user "x"': StoreMisconfigured,
    'connection failed: FATAL:  no pg_hba.conf entry for host "::1"': StoreMisconfigured,
    'connection failed: FATAL:  permission denied for database "x"': StoreMisconfigured,
    "connection to server at 127.0.0.1, port 1 failed: Connection refused": StoreUnavailable,
    "connection timeout expired": StoreUnavailable,
    "server closed the connection unexpectedly": StoreUnavailable,
    "FATAL:  the database system is starting up": StoreUnavailable,
    "FATAL:  sorry, too many clients already": StoreUnavailable,
}


def wrapped(error: psycopg.Error) -> DBAPIError:
    return OperationalError("SELECT 1", {}, error)


@pytest.mark.parametrize(("sqlstate", "kind"), BY_SQLSTATE.items(), ids=BY_SQLSTATE)
def test_a_sqlstate_says_what_may_be_done(sqlstate: str, kind: type[TurnledgerError]) -> None:
    """The same raised by the driver alone, as COPY does, and within SQLAlchemy's error (QU-7)."""
    error = psycopg.errors.lookup(sqlstate)("what Postgres said")
    for raised in (error, wrapped(error)):
        translated = translate(raised)
        assert type(translated) is kind
        assert "what Postgres said" in str(translated)


@pytest.mark.parametrize(("words", "kind"), REFUSED_CONNECTIONS.items(), ids=REFUSED_CONNECTIONS)
def test_a_refused_connection_is_told_by_its_words(words: str, kind: type[TurnledgerError]) -> None:
    """There is no SQLSTATE then (QU-7)."""
    translated = translate(wrapped(psycopg.OperationalError(words)))
    assert type(translated) is kind
    assert kind is StoreUnavailable or "TURNLEDGER_DATABASE_URL" in str(translated) or "grant" in str(translated)


def test_data_that_the_driver_refuses_is_never_tried_again() -> None:
    """psycopg looks at texts before Postgres does (QU-7)."""
    translated = translate(psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"))
    assert isinstance(translated, StoreRefused)
    assert translated.sqlstate == "22000"


def test_a_pool_without_a_free_connection_is_busy() -> None:
    """Another call gives one back (QU-7)."""
    assert isinstance(translate(PoolTimeout()), StoreBusy)


def test_a_misuse_of_the_driver_is_not_laid_at_the_door_of_a_turn() -> None:
    """It stops a worker; it rejects nothing (QU-7)."""
    assert isinstance(translate(InvalidRequestError("closed")), StoreMisconfigured)


def test_only_busy_and_unavailable_may_be_tried_again() -> None:
    """`retry` is what callers look at (QU-7)."""
    assert [kind.retry for kind in (StoreBusy, StoreUnavailable, StoreRefused, StoreMisconfigured)] == [
        True,
        True,
        False,
        False,
    ]


_REFUSED = 'connection to server at "{}", port 1 failed: Connection refused\n\tIs the server running on that host?'
TOLD = {
    "Multiple connection attempts failed. All failures were:\n"
    f"- host: 'localhost', port: '1', hostaddr: '::1': connection failed: {_REFUSED.format('::1')}\n"
    f"- host: 'localhost', port: '1', hostaddr: '127.0.0.1': connection failed: {_REFUSED.format('127.0.0.1')}": (
        "Postgres does not answer at 127.0.0.1:1: Connection refused; start it, or correct TURNLEDGER_DATABASE_URL"
    ),
    'connection to server at "db" (10.0.0.7), port 5432 failed: FATAL:  sorry, too many clients already': (
        "Postgres at db:5432 takes no connection now: sorry, too many clients already"
    ),
    "consuming input failed: SSL connection has been closed unexpectedly": (
        "Postgres does not answer: consuming input failed: SSL connection has been closed unexpectedly"
    ),
    "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally": (
        "Postgres does not answer: server closed the connection unexpectedly"
    ),
}


@pytest.mark.parametrize("words", TOLD)
def test_a_failed_connection_is_told_in_one_sentence(words: str) -> None:
    """What, where and what to do; of several addresses the last one, and without libpq's question (OP-2)."""
    assert str(translate(wrapped(psycopg.OperationalError(words)))) == TOLD[words]
