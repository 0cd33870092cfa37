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
_READ_ONLY = "25006"  # a standby, or a server that was told to take no writes
_UNAVAILABLE = {_READ_ONLY, "25P03"}  # the latter: an idle transaction ended by the server
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
    "invalid sslmode value": "correct TURNLEDGER_DATABASE_URL",
}
# Where libpq was refused, and by what words; of several addresses of a host the last one is told.
_PLACE = re.compile(
    r'connection to server (?:at "(?P<host>[^"]*)"(?: \([^)]*\))?, port (?P<port>\d+)|on socket "(?P<socket>[^"]*)") '
    r"failed: (?:(?P<answered>FATAL): +)?(?P<words>[^\n]*)"
)
_NO_ADDRESS = re.compile(r"failed to resolve host '(?P<host>[^']*)'")
_DRIVER_PREFIX = re.compile(r"^(?:connection failed|connection is bad): ")
_TLS_WORDS = ("SSL", "certificate")


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
        told = f"Postgres cannot take this now ({sqlstate}): {message}"
        return StoreUnavailable(told, is_read_only=sqlstate == _READ_ONLY)
    if sqlstate[:2] in _DATA_CLASSES or (sqlstate[:2] == _CONSTRAINT_CLASS and constraint):
        told = _QUOTED.sub("", message)
        return StoreRefused(f"Postgres refused the data ({sqlstate}): {told}", sqlstate=sqlstate, constraint=constraint)
    return StoreMisconfigured(f"Postgres is not as this version needs it ({sqlstate}): {message}")


def _without_sqlstate(error: psycopg.Error) -> TurnledgerError:
    if not isinstance(error, psycopg.OperationalError):
        return StoreRefused(f"the driver refused the data: {error}", sqlstate="22000", constraint=None)
    where, words, answered = _told(str(error))
    for sign, remedy in _MISCONFIGURED_WORDS.items():
        if sign in words:
            return StoreMisconfigured(f"Postgres{where} refuses the connection: {words}; {remedy}")
    if answered:
        return StoreUnavailable(f"Postgres{where} takes no connection now: {words}")
    if where and any(word in words for word in _TLS_WORDS):
        return StoreUnavailable(f"Postgres{where} has not the TLS that TURNLEDGER_DATABASE_URL asks for: {words}")
    advice = "; start it, or correct TURNLEDGER_DATABASE_URL" if where or "timeout" in words else ""
    return StoreUnavailable(f"Postgres does not answer{where}: {words}{advice}")


def _told(message: str) -> tuple[str, str, bool]:
    """Of a failed connection the place, what was said in one line, and whether a Postgres said it."""
    if nameless := _NO_ADDRESS.search(message):
        return f" at {nameless['host']}", "no host of this name is known", False
    found = list(_PLACE.finditer(message))
    if not found:
        return "", _DRIVER_PREFIX.sub("", message.strip()).partition("\n")[0], False
    last = found[-1]
    place = last["socket"] or f"{last['host']}:{last['port']}"
    return f" at {place}", " ".join(last["words"].split()), last["answered"] is not None
