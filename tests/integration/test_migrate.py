"""Migrations: from any number of processes at once, and never past what this version knows."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import inspect

from tests.processes import Processes
from tests.stores import OF_THE_SCHEMA, TABLES
from turnledger.store import Database, SchemaMismatch, StoreBusy, StoreMisconfigured, check_revision, migrate
from turnledger.store.migrate import MIGRATION_LOCK, current_revision, head_revision
from turnledger.store.schema import metadata


@pytest.fixture
def database(empty_database_url: str) -> Iterator[Database]:
    """A database in which no migration has run."""
    fresh = Database.from_settings(database_url=empty_database_url)
    yield fresh
    fresh.close()


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names())


def test_a_migrated_database_is_at_head_and_migrating_again_changes_nothing(database: Database) -> None:
    """Idempotent (CK-15)."""
    assert current_revision(database) is None
    assert migrate(database) == migrate(database) == current_revision(database) == head_revision()
    assert tables(database) == {*TABLES, *OF_THE_SCHEMA}
    assert database.home.deployment_id is None
    check_revision(database)
    home = database.home
    assert home.deployment_id is not None
    migrate(database)
    assert database.ask_home() == home


def test_eight_replicas_that_migrate_at_once_agree(empty_database_url: str) -> None:
    """One does it, the others wait and find it done (CK-15)."""
    replicas = [Database.from_settings(database_url=empty_database_url) for _ in range(8)]
    start = threading.Barrier(8)

    def run(replica: Database) -> str:
        start.wait()
        return migrate(replica)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, replicas))
    assert found == [head_revision()] * 8
    for replica in replicas:
        check_revision(replica)
        replica.close()


MIGRATE = """
from turnledger.store import Database, migrate
print("at", migrate(Database.from_settings()))
"""


def test_processes_that_migrate_at_once_agree(empty_database_url: str, processes: Processes) -> None:
    """As replicas do that are deployed together (CK-15)."""
    started = [
        processes.snippet(MIGRATE, environment={"TURNLEDGER_DATABASE_URL": empty_database_url}) for _ in range(3)
    ]
    assert [process.wait() for process in started] == [0] * 3
    assert [process.output.strip() for process in started] == [f"at {head_revision()}"] * 3


def test_a_database_that_was_never_migrated_is_refused(database: Database) -> None:
    """The message says what to run (CK-15)."""
    with pytest.raises(SchemaMismatch, match="turnledger migrate"):
        check_revision(database)


@pytest.mark.parametrize("found", ["9999", "0000"])
def test_a_revision_that_is_not_this_versions_own_is_refused(database: Database, found: str) -> None:
    """By whoever checks and by migrate, naming both; nothing is changed (CK-15)."""
    migrate(database)
    with database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{found}'")
    for call in (check_revision, migrate):
        with pytest.raises(SchemaMismatch, match=rf"{found}.*{head_revision()}") as refused:
            call(database)
        assert not refused.value.retry
    assert current_revision(database) == found


def test_a_migration_that_fails_leaves_nothing_behind(database: Database, empty_database_url: str) -> None:
    """It is one transaction, and the lock is free for the next try (CK-15)."""
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE SCHEMA turnledger")
        connection.execute("CREATE TABLE turnledger.ledger_entry (in_the_way int)")
    with pytest.raises(StoreMisconfigured, match="already exists"):
        migrate(database)
    assert tables(database) == {"ledger_entry"}
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("DROP TABLE turnledger.ledger_entry")
    assert migrate(database) == head_revision()


def test_a_migration_waits_for_another_and_says_so_in_the_end(
    database: Database, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes, here a tenth of a second (CK-15)."""
    module = sys.modules[migrate.__module__]
    monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(module, "LOCK_POLL_SECONDS", 0.02)
    with psycopg.connect(empty_database_url) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        with pytest.raises(StoreBusy, match="migrating"):
            migrate(database)
    assert migrate(database) == head_revision()


def test_two_schemas_live_in_one_database(database: Database, empty_database_url: str) -> None:
    """Each with its own tables, its own revision and its own id; the name may be a reserved word (CK-15, FL-4)."""
    other = Database.from_settings(database_url=empty_database_url, schema_name="user")
    migrate(database)
    with pytest.raises(SchemaMismatch):
        check_revision(other)
    assert migrate(other) == head_revision()
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute(
            "SELECT schemaname, count(*) FROM pg_tables WHERE tablename = ANY (%s) GROUP BY 1 ORDER BY 1",
            [list(TABLES)],
        ).fetchall()
    assert found == [("turnledger", len(TABLES)), ("user", len(TABLES))]
    assert database.ask_home().deployment_id != other.ask_home().deployment_id
    other.close()


def test_the_tables_of_the_code_are_those_that_migrations_make(database: Database) -> None:
    """Names, order-free, types and what may be absent, primary keys included (DESIGN 4)."""
    migrate(database)
    found = inspect(database.engine)
    dialect = database.engine.dialect
    for table in metadata.sorted_tables:
        made = {
            column["name"]: (column["type"].compile(dialect), column["nullable"])
            for column in found.get_columns(table.name)
        }
        known = {column.name: (column.type.compile(dialect), bool(column.nullable)) for column in table.columns}
        assert made == known
        assert found.get_pk_constraint(table.name)["constrained_columns"] == [
            column.name for column in table.primary_key.columns
        ]
    assert {table.name for table in metadata.sorted_tables} == tables(database) - {"alembic_version"}
