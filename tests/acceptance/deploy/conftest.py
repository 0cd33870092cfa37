"""The servers of compose.yaml for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploying import Stack
from tests.ledger_checks import wait_until
from tests.processes import Processes
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture(scope="session")
def stack(servers: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers, schema, roles and logins of compose.yaml, in the order of its `depends_on`.

    Where there are no `servers`, there are none.
    """
    with Processes() as processes:
        stack = Stack(folder=_open_to_postgres(tmp_path_factory.mktemp("compose")), processes=processes)
        try:
            stack.start_postgres()
            redis = stack.start("redis")
            wait_until(lambda: _check(redis.is_healthy()))
            for once in ("migrate", "logins"):
                container = stack.start(once)
                assert container.process.wait() == 0, container.process.output
            yield stack
        finally:
            stack.postgres.kill()


def _check(condition: bool) -> None:  # noqa: FBT001  # of `wait_until`, which takes assertions
    assert condition


def _open_to_postgres(folder: Path) -> Path:
    """Where this runs as root, Postgres does not."""
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o711)
    return folder
