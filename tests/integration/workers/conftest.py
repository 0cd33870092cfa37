"""An engine node over servers of the test's own state."""

from collections.abc import Iterator

import pytest

from tests.engine import Engine


@pytest.fixture
def engine(database_url: str, redis_url: str) -> Iterator[Engine]:
    """An engine node with an empty database and an empty Redis."""
    node = Engine(database_url, redis_url)
    yield node
    node.close()
