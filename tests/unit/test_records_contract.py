"""The records and their scripts, over fakeredis."""

from collections.abc import Iterator

import fakeredis
import pytest
from redis import Redis

pytest.register_assert_rewrite("tests.records_contract")

from tests.records_contract import *  # noqa: E402, F403  # the same tests over another Redis


@pytest.fixture
def redis() -> Iterator["Redis"]:
    """A Redis in this process, scripts included, with nothing in it."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True) as client:
        yield client
