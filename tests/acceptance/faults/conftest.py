"""Servers that follow others."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.standby import Standby, standby_of
from turnledger.workers._postgres_home import temporary_folder
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture
def standby(private_servers: EmbeddedServers) -> Iterator[Standby]:
    """A standby of the test's own Postgres, which has caught up."""
    with (
        TemporaryDirectory(dir=temporary_folder()) as folder,
        standby_of(private_servers.postgres, folder=Path(folder) / "standby") as following,
    ):
        following.catch_up()
        yield following
