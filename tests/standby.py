"""A streaming standby of an embedded Postgres: it has what the primary commits, takes no write, can be promoted."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.ledger_checks import wait_until
from turnledger.workers._postgres_home import new_data_folder, postgres_home
from turnledger.workers.embedded import Durability, EmbeddedPostgres, programs_of_postgres


class Standby:
    """The server, as a copy of its primary that follows it."""

    def __init__(self, primary: EmbeddedPostgres, *, folder: Path) -> None:
        self.primary = primary
        self.server = EmbeddedPostgres(folder, durability=Durability.SCRATCH, leftover=folder)
        _copy(primary, folder=folder)
        self.server.start()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def both(self) -> str:
        """A URL that names both servers and takes the one that takes writes."""
        places = ",".join(url.rpartition("@")[2].partition("/")[0] for url in (self.primary.url, self.url))
        return f"postgresql://turnledger@{places}/turnledger?target_session_attrs=read-write"

    def catch_up(self) -> None:
        """Return when it has all that the primary has committed."""
        with psycopg.connect(self.primary.url) as primary:
            ((reached,),) = primary.execute("SELECT pg_current_wal_lsn()::text")

        def check() -> None:
            with psycopg.connect(self.url) as standby:
                ((there,),) = standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [reached])
            assert there

        wait_until(check)

    def fall_behind(self) -> None:
        """Receive nothing from here on."""
        self._execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")

        def check() -> None:
            with psycopg.connect(self.url) as standby:
                assert standby.execute("SELECT FROM pg_stat_wal_receiver").fetchone() is None

        wait_until(check)

    def promote(self) -> None:
        """Return when it takes writes."""
        self._execute("SELECT pg_promote(wait => true)")

    def _execute(self, *commands: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for command in commands:
                connection.execute(command.encode())


@contextmanager
def standby_of(primary: EmbeddedPostgres, *, folder: Path) -> Iterator[Standby]:
    """A standby of this primary, for the length of the block."""
    standby = Standby(primary, folder=folder)
    try:
        yield standby
    finally:
        standby.server.kill()


def _copy(primary: EmbeddedPostgres, *, folder: Path) -> None:
    folder.mkdir()
    home = postgres_home(folder, programs=programs_of_postgres())
    with new_data_folder(home) as data:
        command = [str(home.programs / "pg_basebackup"), "--pgdata", str(data), "--dbname", primary.url]
        command += ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        user = home.account.pw_uid if home.account else None
        subprocess.run(command, cwd="/", check=True, capture_output=True, user=user, extra_groups=[] if user else None)
