"""What tests over real servers share."""

import json
from collections.abc import Iterator

import psycopg
import pytest

from tests.commands import CommandLine, Printed
from tests.stores import TABLES, Stores
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture(scope="session")
def shared_database_url(servers: EmbeddedServers, migrated_template: str) -> str:
    """One migrated database for all tests that take ``stores``: emptying it is quicker than making another."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE shared TEMPLATE {migrated_template}".encode())
    return servers.postgres.url_of("shared")


@pytest.fixture
def stores(shared_database_url: str, redis_url: str) -> Iterator[Stores]:
    """Both servers, with nothing in them."""
    both = Stores(database_url=shared_database_url, redis_url=redis_url)
    with both.connection() as connection:
        connection.execute("ALTER TABLE ledger_event ENABLE TRIGGER ALL")  # damage may be done with them disabled
        connection.execute("SET LOCAL turnledger.maintenance = 'retention'")
        connection.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY".encode())
    yield both
    both.close()


@pytest.fixture
def named_servers(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process find the servers of ``stores``."""
    monkeypatch.setenv(DATABASE_URL, stores.database_url)
    monkeypatch.setenv(REDIS_URL, stores.redis_url)


@pytest.fixture
def cli(named_servers: None, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(capsys)


@pytest.fixture
def printed(named_servers: None, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What was printed as JSON since the last time."""
    return lambda: json.loads(capsys.readouterr().out.splitlines()[-1])
