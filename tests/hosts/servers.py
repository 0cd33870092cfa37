"""The embedded servers on an address that other hosts reach."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.hosts.network import Network
from turnledger.workers._postgres_home import temporary_home
from turnledger.workers._server_process import HOST, Program
from turnledger.workers.embedded import Durability, EmbeddedPostgres, EmbeddedRedis, EmbeddedServers


class OpenPostgres(EmbeddedPostgres):
    """Trusts every host of the test's own network."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder, durability=Durability.SCRATCH, leftover=folder)
        self._network = network

    def url_of(self, database: str) -> str:
        return super().url_of(database).replace(HOST, self._network.address)

    def _prepare(self, programs: Path) -> Program:
        program = super()._prepare(programs)
        data = Path(program.command[program.command.index("-D") + 1])
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self._network.range} trust\n")
        return replace(program, command=(*program.command, "-c", f"listen_addresses={self._network.address}"))


class OpenRedis(EmbeddedRedis):
    """Answers every host of the test's own network."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder, leftover=folder)
        self._network = network

    @property
    def url(self) -> str:
        return super().url.replace(HOST, self._network.address)

    def _program(self, server: Path) -> Program:
        program = super()._program(server)
        command = [self._network.address if part == HOST else part for part in program.command]
        return replace(program, command=tuple(command))


@contextmanager
def open_servers(network: Network) -> Iterator[EmbeddedServers]:
    """Both servers, with nothing in them, for all hosts of this network; gone when the block ends.

    Raises:
        EmbeddedMissing: the extra is not installed.
    """
    with ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        servers = EmbeddedServers(
            OpenPostgres(home / "postgres", network=network), OpenRedis(home / "redis", network=network)
        )
        for server in (servers.redis, servers.postgres):
            stack.callback(server.kill)
            server.start()
        yield servers
