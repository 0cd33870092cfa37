"""SQLSTATE and constraint name -> one of our errors: retry me, never retry, or stop the process."""

import re

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from turnledger.store.errors import (
    StoreBusy,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
)

_LOCK_TIMEOUT = "55P03"
_BUSY = {"40001", "40P01", _LOCK_TIMEOUT, "57014"}  # serialization, deadlock, lock timeout, statement timeout
_UNAVAILABLE_CLASSES = {"08", "53", "57", "58"}  # connection, resources, operator intervention, I/O
_UNAVAILABLE = {"25006", "25P03"}  # a read-only standby, an idle transaction ended by the server
_DATA_CLASSES = {"22", "54"}  # data exceptions, program limits
_CONSTRAINT_CLASS = "23"
_QUOTED = re.compile(': ".*', re.DOTALL)  # what Postgres says of data may end with the data
_NO_TEXT = "22021"  # what Postgres itself says of such bytes

# Postgres refuses a connection before the driver knows a SQLSTATE; the server's words are all there is.
_MISCONFIGURED_WORDS = {
    "does not exist": "create it, or correct TURNLEDGER_DATABASE_URL",
    "authentication failed": "correct the user or password in TURNLEDGER_DATABASE_URL",
    "no pg_hba.conf entry": "allow this host in pg_hba.conf, or correct TURNLEDGER_DATABASE_URL",
    "permission denied": "grant the user what it needs",
}


def translate(error: SQLAlchemyError | psycopg.Error | UnicodeEncodeError) -> TurnledgerError:
    """The one translation of a driver's error; the original stays its cause."""
    if isinstance(error, UnicodeEncodeError):
        return StoreRefused("the driver refused the data: it is no Unicode text", sqlstate=_NO_TEXT, constraint=None)
    if isinstance(error, PoolTimeout):
        return StoreBusy("every database connection of this process is in use")
    driver_error = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(driver_error, psycopg.Error):
        return StoreMisconfigured(f"the database driver failed: {error}")
    if driver_error.sqlstate is None:
        return _without_sqlstate(driver_error)
    return _by_sqlstate(driver_error, driver_error.sqlstate)


def _by_sqlstate(error: psycopg.Error, sqlstate: str) -> TurnledgerError:
    message = error.diag.message_primary or str(error)
    constraint = error.diag.constraint_name
    if sqlstate in _BUSY:
        return StoreBusy(f"Postgres is busy ({sqlstate}): {message}", is_lock=sqlstate == _LOCK_TIMEOUT)
    if sqlstate in _UNAVAILABLE or sqlstate[:2] in _UNAVAILABLE_CLASSES:
        return StoreUnavailable(f"Postgres cannot take this now ({sqlstate}): {message}")
    if sqlstate[:2] in _DATA_CLASSES or (sqlstate[:2] == _CONSTRAINT_CLASS and constraint):
        told = _QUOTED.sub("", message)
        return StoreRefused(f"Postgres refused the data ({sqlstate}): {told}", sqlstate=sqlstate, constraint=constraint)
    return StoreMisconfigured(f"Postgres is not as this version needs it ({sqlstate}): {message}")


def _without_sqlstate(error: psycopg.Error) -> TurnledgerError:
    if not isinstance(error, psycopg.OperationalError):
        return StoreRefused(f"the driver refused the data: {error}", sqlstate="22000", constraint=None)
    words = " ".join(str(error).split())
    for sign, remedy in _MISCONFIGURED_WORDS.items():
        if sign in words:
            return StoreMisconfigured(f"Postgres refused the connection: {words}; {remedy}")
    return StoreUnavailable(f"Postgres does not answer: {words}")
