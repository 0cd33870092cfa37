"""What tests of faults that take longer share."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.engine import Engine
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture
def engine(private_servers: EmbeddedServers) -> Iterator[Engine]:
    """A node at default settings, at servers that the test may break."""
    with closing(Engine(private_servers.database_url, private_servers.redis_url)) as node:
        yield node
