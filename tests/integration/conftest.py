"""What tests over real servers share."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.stores import TABLES, Stores
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
