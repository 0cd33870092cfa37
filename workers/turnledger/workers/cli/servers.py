"""Which Postgres and which Redis a command talks to: those of the environment, or those of `turnledger up` here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.records import Records
from turnledger.store import Database, InvalidInput, migrate, read_settings
from turnledger.workers.cli.output import complain
from turnledger.workers.embedded import EmbeddedServers, embedded_servers, running_servers

DATABASE_URL = "TURNLEDGER_DATABASE_URL"
REDIS_URL = "TURNLEDGER_REDIS_URL"
SPOOL_FOLDER = "TURNLEDGER_SPOOL_FOLDER"
BOTH = (DATABASE_URL, REDIS_URL)
UP_FOLDER = Path(".turnledger")


def use_servers(*needed: str) -> None:
    """Make sure that the environment names the servers that are needed: as it stands, or those of `turnledger up`.

    Raises:
        InvalidInput: nothing names them; says both ways to.
    """
    missing = [name for name in needed or BOTH if not os.environ.get(name)]
    if not missing:
        return
    if len(missing) < len(needed or BOTH):
        raise _half_named(missing[0])
    found = running_servers(UP_FOLDER)
    if found is None:
        raise InvalidInput(
            f"no servers are named: set {' and '.join(missing)}, or run `turnledger up` in this folder ({Path.cwd()})"
        )
    os.environ.update(urls(found))


def use_up() -> None:
    """Where the environment names no servers and `turnledger up` runs in this folder, name those.

    Raises:
        InvalidInput: only one of the two URLs is set.
    """
    found = None if environment_names_servers() else running_servers(UP_FOLDER)
    if found is not None:
        os.environ.update(urls(found))


def servers_in_words() -> str:
    """Which servers `servers_or_own` would take.

    Raises:
        InvalidInput: only one of the two URLs is set.
    """
    if environment_names_servers():
        found = running_servers(UP_FOLDER)
        if found is not None and urls(found).items() <= os.environ.items():
            return "the Postgres and the Redis of the `turnledger up` of this folder"
        return "the Postgres and the Redis that the environment names"
    return "a Postgres and a Redis of its own"


def environment_names_servers() -> bool:
    """Whether the environment names both servers, or neither.

    Raises:
        InvalidInput: it names only one of them.
    """
    missing = [name for name in BOTH if not os.environ.get(name)]
    if len(missing) == 1:
        raise _half_named(missing[0])
    return not missing


@contextmanager
def servers_or_own() -> Iterator[None]:
    """Run a block with the servers of the environment or, where it names none, with own ones for its length.

    Own servers are migrated, and removed with all their data afterwards. With them comes a spool folder of their own:
    what this host has spooled belongs to other servers.

    Raises:
        InvalidInput: only one of the two URLs is set.
        EmbeddedMissing, EmbeddedServerFailed: there are no own servers to be had.
    """
    if environment_names_servers():
        yield
        return
    with embedded_servers() as servers, environment({**urls(servers), SPOOL_FOLDER: str(servers.spool_folder)}):
        migrate_here()
        yield


def urls(servers: EmbeddedServers) -> dict[str, str]:
    """The variables that name these servers."""
    return {DATABASE_URL: servers.database_url, REDIS_URL: servers.redis_url}


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for this process and the children it starts, for the length of a block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def the_database(*, config: Literal["read", "left out"] = "read") -> Iterator[Database]:
    """The Postgres of the environment; its connections are closed with the block. Left out, no live section is read."""
    database = Database.from_settings(**({} if config == "read" else {"config": None}))
    try:
        yield database
    finally:
        database.close()


@contextmanager
def database_to_look_at() -> Iterator[Database]:
    """As `the_database`, for a command to which the live section does not matter: a broken one is told, in a line.

    Raises:
        InvalidInput: something else cannot be used.
    """
    try:
        database = Database.from_settings()
    except InvalidInput as error:
        database = Database.from_settings(config=None)
        complain(f"{error}; processes that start refuse this file, this command does without")
    try:
        yield database
    finally:
        database.close()


@contextmanager
def the_records() -> Iterator[Records]:
    """The Redis of the environment; its connections are closed with the block."""
    records = Records.from_settings(read_settings(CheckpointSettings))
    try:
        yield records
    finally:
        records.redis.close()


@contextmanager
def records_to_look_at() -> Iterator[Records]:
    """As `the_records`, for a command that somebody waits for: a Redis that is silent is asked once, not again."""
    records = Records.from_settings(read_settings(CheckpointSettings, redis_retries=0))
    try:
        yield records
    finally:
        records.redis.close()


def migrate_here() -> str:
    """Migrate the database of the environment; returns its revision."""
    with the_database() as database:
        return migrate(database)


def _half_named(missing: str) -> InvalidInput:
    return InvalidInput(f"{missing} is not set, though the other URL is: set both or neither")
