"""Where a measurement runs: a database and a Redis of its own, which it can set back to how they were."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import psycopg
import redis

from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreSettings, migrate, read_settings
from turnledger.workers.embedded import EmbeddedServers

_DATABASE, _EMPTY, _KEPT, _COPY = "bench", "bench_empty", "bench_kept", "bench_copy"
_KEPT_NUMBER = 1  # the number of the Redis database that keeps the copy
_COPY_ALL = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[1])
end
"""


class Rig:
    """Embedded servers with their durability kept. Redis never rewrites its file in the middle of a round."""

    def __init__(self, servers: EmbeddedServers) -> None:
        self._servers = servers
        self.turns_per_second: float | None = None  # of one worker, once it is measured
        self._admin = psycopg.connect(servers.database_url, autocommit=True)
        self.redis.config_set("auto-aof-rewrite-percentage", 0)
        self._execute(f"CREATE DATABASE {_EMPTY}")
        database = Database.from_settings(database_url=servers.postgres.url_of(_EMPTY))
        migrate(database)
        database.close()
        self._make(_DATABASE, template=_EMPTY)

    @property
    def database_url(self) -> str:
        return self._servers.postgres.url_of(_DATABASE)

    @property
    def redis_url(self) -> str:
        """Its database is number 0."""
        return self._servers.redis_url

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to work here."""
        return {"TURNLEDGER_DATABASE_URL": self.database_url, "TURNLEDGER_REDIS_URL": self.redis_url}

    @cached_property
    def redis(self) -> redis.Redis:
        """A plain client, as anybody would make it, but for its texts."""
        return redis.Redis.from_url(self.redis_url, decode_responses=True)

    @cached_property
    def database(self) -> Database:
        return Database(StoreSettings(database_url=self.database_url))

    @cached_property
    def records(self) -> Records:
        return Records.from_settings(checkpoint_settings(redis_url=self.redis_url))

    @cached_property
    def turns(self) -> Turns:
        return Turns(records=self.records, database=self.database)

    def empty(self) -> None:
        """A migrated database and a Redis, both with nothing in them."""
        self._make(_DATABASE, template=_EMPTY)
        self.redis.flushall()

    def keep(self) -> None:
        """Remember everything as it is now."""
        self.database.close()
        self._make(_KEPT, template=_DATABASE)
        self.redis.eval(_COPY_ALL, 0, _KEPT_NUMBER)

    def set_back(self) -> None:
        """Everything as it was at `keep`, and written to disk: no round pays for the one before."""
        self._make(_DATABASE, template=_KEPT)
        self.redis.flushdb()
        with redis.Redis.from_url(f"{self.redis_url.rpartition('/')[0]}/{_KEPT_NUMBER}") as kept:
            kept.eval(_COPY_ALL, 0, 0)

    def copy_database(self) -> str:
        """A copy of the database as it is now, for a peer; its URL."""
        self._make(_COPY, template=_DATABASE)
        return self._servers.postgres.url_of(_COPY)

    def settle(self) -> None:
        """Write out what Postgres still holds back."""
        self._execute("CHECKPOINT")

    def vacuum(self) -> None:
        """What autovacuum does sooner or later; it must not come in the middle of the rounds."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:  # without our lock timeout
            connection.execute("VACUUM ANALYZE")
        self.settle()

    def close(self) -> None:
        self.turns.close()
        self.redis.close()
        self._admin.close()

    def _make(self, name: str, *, template: str) -> None:
        self.database.close()
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        self.settle()

    def _execute(self, command: str) -> None:
        self._admin.execute(command.encode())


def checkpoint_settings(**given: Any) -> CheckpointSettings:
    """No renewal of leases: no engine node holds thousands of turns, and it would be measured."""
    return read_settings(CheckpointSettings, lease_s=7_200.0, renew_s=3_600.0, **given)


def wait_until(condition: Callable[[], bool], *, seconds: float, pause_s: float = 0.005) -> None:
    """Return when the condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {seconds:g} s")
        time.sleep(pause_s)
