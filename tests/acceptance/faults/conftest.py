"""Servers that follow others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standby import Standby, standby_of
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture
def standby(private_servers: EmbeddedServers, folder: Path) -> Iterator[Standby]:
    """A standby of the test's own Postgres, which has caught up."""
    with standby_of(private_servers.postgres, folder=folder / "standby") as following:
        following.catch_up()
        yield following
