"""A Redis master, its replica, and three sentinels that agree on a new master when the old one dies."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from signal import SIGTERM
from typing import Any

from redis import Redis, RedisError

from tests.ledger_checks import wait_until
from turnledger.workers._server_process import HOST, Program, ServerProcess
from turnledger.workers.embedded import EmbeddedRedis, program_of_redis

SERVICE = "main"
SENTINELS, QUORUM = 3, 2
DOWN_AFTER_MS = 1_000
_CONFIGURATION = f"""
sentinel monitor {SERVICE} {HOST} {{master}} {QUORUM}
sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}
sentinel failover-timeout {SERVICE} 10000
"""


class Deployment:
    """Both servers and their sentinels; `url` is what a setting takes."""

    def __init__(self, folder: Path) -> None:
        self.first = EmbeddedRedis(folder / "first", leftover=folder / "first")
        self.second = EmbeddedRedis(folder / "second", leftover=folder / "second")
        self._sentinels = [
            ServerProcess(f"Sentinel {number}", folder / f"sentinel-{number}", folder / f"sentinel-{number}")
            for number in range(SENTINELS)
        ]

    @property
    def url(self) -> str:
        places = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self._sentinels)
        return f"redis+sentinel://{places}/{SERVICE}/0"

    def start(self, stack: ExitStack) -> None:
        """Return once every sentinel knows the replica and the other sentinels."""
        for server in (self.first, self.second):
            stack.callback(server.kill)
            server.start()
        self.follow(self.second, master=self.first.port)
        for sentinel in self._sentinels:
            stack.callback(sentinel.kill)
            sentinel.start(partial(self._program, sentinel), ready=lambda: True)
        wait_until(self._assert_watched)

    def follow(self, replica: EmbeddedRedis, *, master: int) -> None:
        """Make it a replica of the server on this port; one where nobody listens leaves it behind."""
        with Redis.from_url(replica.url) as client:
            client.replicaof(HOST, master)

    def assert_role(self, server: EmbeddedRedis, role: str, *, link: str | None = None) -> None:
        with Redis.from_url(server.url, decode_responses=True) as client:
            told: Any = client.info("replication")
        assert told["role"] == role
        assert link is None or told["master_link_status"] == link

    def _program(self, sentinel: ServerProcess) -> Program:
        file = sentinel.folder / "sentinel.conf"
        place = f"port {sentinel.port}\nbind {HOST}\ndir {sentinel.folder}\n"
        file.write_text(place + _CONFIGURATION.format(master=self.first.port))
        return Program((str(program_of_redis()), str(file), "--sentinel"), stop_signal=SIGTERM)

    def _assert_watched(self) -> None:
        self.assert_role(self.second, "slave", link="up")
        for sentinel in self._sentinels:
            try:
                with Redis(host=HOST, port=sentinel.port, decode_responses=True) as client:
                    found: Any = client.sentinel_masters()[SERVICE]
            except RedisError as error:
                raise AssertionError(str(error)) from error
            assert (found["num-slaves"], found["num-other-sentinels"]) == (1, SENTINELS - 1)


@contextmanager
def sentinels(folder: Path) -> Iterator[Deployment]:
    """A deployment that runs for the length of the block."""
    with ExitStack() as stack:
        deployment = Deployment(folder)
        deployment.start(stack)
        yield deployment
