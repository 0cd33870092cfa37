"""Bring a database to this version's schema, from any number of processes at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from turnledger.store.database import Database, translated
from turnledger.store.errors import SchemaMismatch, StoreBusy
from turnledger.store.roles import become_owner, grant_roles, has_roles, role_names

MIGRATION_LOCK = 7_355_608_001  # any number no other program uses; it names the lock, it means nothing
LOCK_POLL_SECONDS = 0.2
LOCK_WAIT_SECONDS = 120.0  # longer than any migration of ours; a replica that waits longer should say so
_FOLDER = Path(__file__).parent / "migrations"


def migrate(database: Database) -> str:
    """Apply every migration that is missing and return the revision now in force; safe from many replicas.

    Raises:
        StoreBusy: another process held the migration lock for two minutes.
        StoreUnavailable: Postgres does not answer.
        StoreMisconfigured: there is no such database, or it refuses this user.
        SchemaMismatch: the database is at a revision this version does not know.
    """
    with _migration_lock(database):
        found = current_revision(database)
        if found is not None and found not in _known_revisions():
            raise _mismatch(found)
        with database.transaction(pace="maintenance") as connection:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            _create_schema(connection, name=database.settings.schema_name)
            become_owner(connection)
            command.upgrade(_configuration(connection), "head")
            if has_roles(connection, prefix=database.settings.role_prefix):
                grant_roles(connection, prefix=database.settings.role_prefix)
    return head_revision()


def make_roles(database: Database) -> tuple[str, ...]:
    """Make the roles of this deployment on a migrated database, and return their names; safe from many replicas.

    From then on the schema belongs to the first of them, and every migration renews what the others may do.

    Raises:
        StoreMisconfigured: this user may not make roles, or does not own the schema.
        StoreBusy, StoreUnavailable: as `migrate`.
    """
    prefix = database.settings.role_prefix
    with _migration_lock(database), database.transaction() as connection:
        grant_roles(connection, prefix=prefix)
    return role_names(prefix)


def current_revision(database: Database) -> str | None:
    """The revision the database is at; None where no migration ever ran."""
    with database.transaction(pace="start") as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str:
    """The revision this version of the package works with."""
    head = ScriptDirectory(str(_FOLDER)).get_current_head()
    assert head is not None, "the package ships without its migrations"
    return head


def check_revision(database: Database) -> None:
    """Refuse to go on with a schema that is not this version's own; the deployment's `home` is known afterwards.

    Raises:
        SchemaMismatch: names both revisions and what to do.
    """
    with database.transaction(pace="start") as connection:
        found = MigrationContext.configure(connection).get_current_revision()
        if found != head_revision():
            raise _mismatch(found)
        database.note_home(connection)


def _mismatch(found: str | None) -> SchemaMismatch:
    if found is None:
        return SchemaMismatch("no migration has run on this database; run `turnledger migrate`")
    return SchemaMismatch(
        f"the database is at schema revision {found}, this version needs {head_revision()}; "
        "run `turnledger migrate` with the version that is deployed"
    )


def _known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory(str(_FOLDER)).walk_revisions()}


def _configuration(connection: Connection) -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(_FOLDER))
    configuration.attributes["connection"] = connection
    return configuration


def _create_schema(connection: Connection, *, name: str) -> None:
    exists = connection.scalar(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": name})
    if not exists:
        quoted = connection.dialect.identifier_preparer.quote_identifier(name)
        connection.exec_driver_sql(f"CREATE SCHEMA {quoted}")


@contextmanager
def _migration_lock(database: Database) -> Iterator[None]:
    """Hold one advisory lock on a connection of its own; polled, because a waiting lock call would block
    a concurrent index build of the very migration it waits for.
    """
    with (
        translated(),
        database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        _wait_for_lock(connection)
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION_LOCK})


def _wait_for_lock(connection: Connection) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": MIGRATION_LOCK}):
        if time.monotonic() > deadline:
            raise StoreBusy("another process has been migrating this database for two minutes")
        time.sleep(LOCK_POLL_SECONDS)
