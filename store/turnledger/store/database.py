"""Connections and transactions, with every driver error translated once, here at the edge."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, TextClause, create_engine, event, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from turnledger.store._database_url import read_url
from turnledger.store._patience import PatientConnection
from turnledger.store._sqlstate import translate
from turnledger.store.deployment import Home, address_of
from turnledger.store.errors import InvalidInput, StoreMisconfigured, StoreUnavailable
from turnledger.store.live_config import LiveConfig
from turnledger.store.settings import StoreSettings, read_settings

Pace = Literal["start", "work", "maintenance"]

_DRIVER_ERRORS = (SQLAlchemyError, psycopg.Error, UnicodeEncodeError)  # the last one is how it refuses text
HIGHEST_PORT = 65_535
_NO_ID = (
    "the table deployment has lost its row, so nothing on a disk can be told to be of this deployment; restore it from "
    "a backup, or have its owner run INSERT INTO deployment DEFAULT VALUES"
)
_PARAMETER = re.compile(r"(?<!:):(\w+)")  # `:name`, but not the type in `value::text`


class Database:
    """One Postgres, used from any number of threads and, after a fork, from the child as well.

    Nothing connects before the first transaction. Transactions are READ COMMITTED and roll back unless
    their block ends normally. Lock, statement and idle-in-transaction timeouts are set on every connection.
    `config.current()` is the part of the configuration that may change while the process runs.
    """

    def __init__(self, settings: StoreSettings) -> None:
        """Raises InvalidInput: a setting, or the file that `TURNLEDGER_CONFIG` names, cannot be used."""
        self.settings = settings
        self.config = LiveConfig(settings.config)
        self._engine = _make_engine(settings)
        self._process_id = os.getpid()
        _, hosts = read_url(settings.database_url)
        self._home = Home(address_of(self._engine, hosts=hosts, schema=settings.schema_name))

    @classmethod
    def from_settings(cls, **given: Any) -> "Database":
        """Build from ``TURNLEDGER_*`` variables; what is given wins."""
        return cls(read_settings(StoreSettings, **given))

    @property
    def engine(self) -> Engine:
        """The engine of this process: connections made before a fork are left to the parent."""
        if self._process_id != os.getpid():
            self._engine.dispose(close=False)
            self._engine = _make_engine(self.settings)
            self._process_id = os.getpid()
        return self._engine

    @contextmanager
    def transaction(self, *, lock_timeout_ms: int | None = None, pace: Pace = "work") -> Iterator[Connection]:
        """One transaction; committed when the block ends, rolled back on any exception.

        The pace says how long a silent server is waited for: `work` past any statement of ours, `start` past the lock
        alone, since a person waits, `maintenance` for ever.

        Raises:
            StoreUnavailable, StoreBusy: transient; nothing was committed, or it is unknown whether it was.
            StoreRefused: the data itself was refused.
            StoreMisconfigured: the database is not what this version needs.
        """
        with translated(), self.engine.begin() as connection, _left_when_read_only(connection):
            self._set_patience(connection, pace)
            if lock_timeout_ms is not None:
                run_statement(connection, "set_lock_timeout", {"timeout": str(lock_timeout_ms)})
            yield connection

    @contextmanager
    def snapshot(self, *, pace: Pace = "work") -> Iterator[Connection]:
        """A read-only transaction in which every statement sees the same moment; `pace` as of `transaction`.

        Raises:
            StoreUnavailable, StoreBusy, StoreMisconfigured: as `transaction`.
        """
        with translated(), self.engine.connect() as pooled:
            connection = pooled.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                self._set_patience(connection, pace)
                yield connection

    def _set_patience(self, connection: Connection, pace: Pace) -> None:
        raw: Any = connection.connection.driver_connection
        raw.patience_s = _patience_s(self.settings, pace)

    @property
    def home(self) -> Home:
        """The deployment, as this process last heard of it; asks nobody."""
        return self._home

    def ask_home(self) -> Home:
        """The deployment, as Postgres has it now.

        Raises:
            StoreUnavailable, StoreBusy: transient.
            StoreMisconfigured: the schema is not this version's, or has lost its id.
        """
        with self.transaction(pace="start") as connection:
            home = self.note_home(connection)
        if home.deployment_id is None:
            raise StoreMisconfigured(_NO_ID)
        return home

    def note_home(self, connection: Connection) -> Home:
        """The same in a transaction that has other things to ask, and without an id where the schema has none."""
        rows = run_statement(connection, "read_deployment", {})
        self._home = self._home._replace(deployment_id=rows[0][0] if rows else None)
        return self._home

    def close(self) -> None:
        """Close the pooled connections of this process."""
        self._engine.dispose(close=self._process_id == os.getpid())


@contextmanager
def _left_when_read_only(connection: Connection) -> Iterator[None]:
    """Close a connection to a server that takes no writes: the next one may find the primary, by URL, name or proxy."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
            connection.invalidate()
        raise


@contextmanager
def translated() -> Iterator[None]:
    """Turn a driver's error into one of ours; see `Database.transaction`.

    A statement that something else broke into, such as a job's timeout or Ctrl-C, leaves its connection in disorder,
    and the driver's complaint about that would hide what happened: then that is raised.
    """
    before = sys.exception()
    try:
        yield
    except _DRIVER_ERRORS as error:
        interruption = _interruption(error, before=before)
        if interruption is not None:
            raise interruption from interruption.__cause__
        raise translate(error) from error


def _interruption(error: BaseException, *, before: BaseException | None) -> BaseException | None:
    """What was being raised when the driver failed, less what was being handled `before` it was called."""
    context = error.__context__
    while context is not None and context is not before:
        if not isinstance(context, (*_DRIVER_ERRORS, OSError)):
            return context
        context = context.__context__
    return None


def _make_engine(settings: StoreSettings) -> Engine:
    try:
        url, hosts = read_url(settings.database_url)
    except (ArgumentError, ValueError):
        raise _unreadable_url() from None
    if "@" in (url.host or ""):  # a part of a password, which the driver would tell as a host that is not there
        raise _unreadable_url()
    if url.get_backend_name() != "postgresql":
        raise InvalidInput(f"TURNLEDGER_DATABASE_URL names {url.get_backend_name()!r}; only postgresql:// is supported")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        pool_size=settings.pool_size,
        pool_pre_ping=False,
        hide_parameters=True,  # an error that is logged must not quote a conversation
        connect_args={**hosts, **_connect_arguments(settings, options=url.query.get("options", ""))},
    )
    _check_options(engine)

    def connect(_: object, __: object, arguments: Sequence[Any], named: Mapping[str, Any]) -> PatientConnection:
        connection = PatientConnection.connect(*arguments, **named)
        connection.patience_s = _patience_s(settings, "work")
        return connection

    event.listen(engine, "do_connect", connect)
    return engine


def _check_options(engine: Engine) -> None:
    """Refuse now what the driver would refuse at each connection as if it were the data or the server."""
    if "@" in f"{engine.url.host}{engine.url.database}":  # of a password: what follows it would be told as the server
        raise _unreadable_url()
    _, options = engine.dialect.create_connect_args(engine.url)
    options.pop("context", None)  # of the driver itself, and no option of a connection
    try:
        make_conninfo(**options)
    except psycopg.Error:  # its words may quote a part of a password
        raise _unreadable_url() from None
    if engine.url.port is not None and not 0 < engine.url.port <= HIGHEST_PORT:
        raise InvalidInput(f"the port in TURNLEDGER_DATABASE_URL is none: it is a number from 1 to {HIGHEST_PORT}")


def _patience_s(settings: StoreSettings, pace: Pace) -> float | None:
    if pace == "maintenance":
        return None
    most_ms = settings.lock_timeout_ms if pace == "start" else settings.statement_timeout_ms
    return most_ms / 1_000 + settings.database_patience_s


def _unreadable_url() -> InvalidInput:
    return InvalidInput(
        "TURNLEDGER_DATABASE_URL cannot be read; write postgresql://user:password@host:port/database (or host:port,"
        "host:port with ?target_session_attrs=read-write), with what is neither letter nor digit in the password "
        "percent-encoded, and after a ? only options of libpq"
    )


def _connect_arguments(settings: StoreSettings, *, options: Any) -> dict[str, object]:
    parameters = {
        "search_path": settings.schema_name,
        "lock_timeout": settings.lock_timeout_ms,
        "statement_timeout": settings.statement_timeout_ms,
        "idle_in_transaction_session_timeout": settings.idle_in_transaction_timeout_ms,
        **{f"tcp_{name}": value for name, value in _keepalives(settings).items()},
        "tcp_user_timeout": settings.database_silence_s * 1_000,
    }
    ours = " ".join(f"-c {name}={value}" for name, value in parameters.items())
    return {
        "options": f"{options} {ours}".strip(),
        "connect_timeout": settings.database_connect_timeout_s,
        "application_name": "turnledger",
        **_keepalives(settings),
        "tcp_user_timeout": settings.database_silence_s * 1_000,
    }


def _keepalives(settings: StoreSettings) -> dict[str, int]:
    """How TCP asks an end from which nothing is awaited; where something is, its `tcp_user_timeout` runs."""
    return {
        "keepalives_idle": max(1, settings.database_silence_s // 2),
        "keepalives_interval": max(1, settings.database_silence_s // 10),
        "keepalives_count": 5,
    }


def run_statement(connection: Connection, name: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Run a named statement of the `sql` folder; all its rows.

    On the driver itself: SQLAlchemy would take longer over each of these short statements than Postgres does.
    """
    cursor = connection.connection.cursor()
    cursor.execute(driver_text(name), parameters)
    return list(cursor.fetchall()) if cursor.description else []


@cache
def driver_text(name: str) -> str:
    """The named statement as the driver takes it."""
    return _PARAMETER.sub(r"%(\1)s", statement(name).text.replace("%", "%%"))


@cache
def statement(name: str) -> TextClause:
    """The named statement of the `sql` folder, with `:name` parameters."""
    return text((files("turnledger.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8"))


def refuse_standby(connection: Connection) -> None:
    """Nothing that is to be undone for want of a row may be judged by a standby, which may be behind.

    Raises:
        StoreUnavailable: this server is one; its connection is closed, so that the next one may find the primary.
    """
    ((is_standby,),) = run_statement(connection, "in_recovery", {})
    if is_standby:
        connection.invalidate()
        raise StoreUnavailable("Postgres is a standby here, and may be behind what was committed", is_read_only=True)


def copy_rows(connection: Connection, *, target: str, rows: Iterable[Sequence[object]]) -> None:
    """Write rows with COPY; `target` is the table with its columns, as one of our own constants."""
    cursor = connection.connection.cursor()
    with cursor.copy(f"COPY {target} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
