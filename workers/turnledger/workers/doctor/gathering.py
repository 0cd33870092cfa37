"""Asks both servers and this host for everything that the checks look at; nothing is changed anywhere."""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from redis import Redis
from rq.defaults import RQ_KEY_PREFIX
from sqlalchemy import Connection, text

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.spool import Spool
from turnledger.store import Database, InvalidInput, StoreSettings, TurnledgerError, read_settings
from turnledger.store.database import run_statement
from turnledger.store.live_config import LiveConfig
from turnledger.store.migrate import current_revision, head_revision
from turnledger.workers.cli.figures import clock_runs, fleet_figures, turn_figures
from turnledger.workers.cli.servers import records_to_look_at, the_database
from turnledger.workers.doctor.facts import (
    Asked,
    Fact,
    Facts,
    Fleets,
    HostFacts,
    PostgresFacts,
    RedisRights,
    RedisServer,
    RedisTurns,
    Unasked,
    version_of,
)
from turnledger.workers.doctor.rights import refused_commands
from turnledger.workers.doctor.samples import endless_keys, foreign_jobs
from turnledger.workers.redis_rights import Role

MOST_ENTRIES = 1_000  # the newest ones: a writer that forgets its event forgets it today as well
NAMED = 10
_VERSION = text("SELECT current_setting('server_version_num')::integer")
_TAKES_WRITES = text("SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'")
_TIME = text("SELECT extract(epoch FROM clock_timestamp())::float8")
_PERSISTENCE = {
    "aof_last_write_status": "its last write to the append-only file failed",
    "aof_last_bgrewrite_status": "its last rewrite of the append-only file failed",
    "rdb_last_bgsave_status": "its last snapshot failed, and it may refuse writes until one succeeds",
}

Now = Callable[[], float]


def gather(*, role: Role, now: Now = time.time) -> Facts:
    """All facts; `now` is the clock of this host. What a server does not answer is named with the reason.

    Raises:
        InvalidInput: a setting cannot be used.
    """
    with records_to_look_at() as records:
        settings = records.settings
        redis = _asked(lambda: _redis_server(records, now=now))
        away = redis.answer if isinstance(redis.answer, Unasked) and redis.answer.away else None
        return Facts(
            settings=settings,
            host=_host(settings),
            redis=redis,
            rights=_asked(lambda: _rights(records, role=role), unless=away),
            turns=_asked(lambda: _redis_turns(records), unless=away),
            fleets=_asked(lambda: Fleets(**fleet_figures(settings)), unless=away),
            postgres=_asked(lambda: _postgres(now=now)),
        )


def _asked(ask: Callable[[], Fact], *, unless: Unasked | None = None) -> Asked[Fact]:
    """`unless`: the server is known to be away, and each question to a silent one takes its whole timeout."""
    if unless is not None:
        return Asked(unless)
    try:
        return Asked(ask())
    except InvalidInput:
        raise
    except TurnledgerError as error:
        return Asked(Unasked(str(error), away=error.retry))


def _rights(records: Records, *, role: Role) -> RedisRights:
    with translated():
        return RedisRights(role, refused_commands(records.redis, role=role, settings=records.settings))


def _host(settings: CheckpointSettings) -> HostFacts:
    spool = Spool(settings.spool_folder)
    fault = spool.fault()
    return HostFacts(
        rq_version=version_of(version("rq")),
        redis_py_version=version_of(version("redis")),
        imported_rq_prefix=RQ_KEY_PREFIX,
        spooled=() if fault else tuple(spool.files()),
        refused_spool=() if fault else tuple(spool.refused()),
        spool_fault=fault,
        config_fault=_config_fault(),
    )


def _config_fault() -> str:
    try:
        LiveConfig(read_settings(StoreSettings).config)
    except InvalidInput as error:
        return str(error)
    return ""


def _redis_server(records: Records, *, now: Now) -> RedisServer:
    with translated():
        told: Any = records.redis.info()
        skew_s, error_s = _skew(lambda: _redis_time(records.redis), now=now)
    is_valkey = "valkey_version" in told
    return RedisServer(
        product="Valkey" if is_valkey else "Redis",
        version=version_of(str(told["valkey_version" if is_valkey else "redis_version"])),
        is_replica=told.get("role") == "slave",
        policy=str(told.get("maxmemory_policy", "noeviction")),
        append_only=bool(int(told.get("aof_enabled", 0))),
        failing=tuple(words for name, words in _PERSISTENCE.items() if told.get(name, "ok") != "ok"),
        memory_bytes=int(told["used_memory"]),
        memory_limit_bytes=int(told.get("maxmemory", 0)),
        machine_bytes=int(told.get("total_system_memory", 0)),
        skew_s=skew_s,
        skew_error_s=error_s,
    )


def _redis_time(redis: Redis) -> float:
    seconds, microseconds = redis.time()
    return int(seconds) + int(microseconds) / 1e6


def _redis_turns(records: Records) -> RedisTurns:
    figures = turn_figures(records)
    endless, examined = endless_keys(records)
    members = set(RedisTurns.__dataclass_fields__) & set(figures)
    return RedisTurns(
        **{name: figures[name] for name in members},
        foreign_jobs=foreign_jobs(records.settings),
        endless_keys=endless,
        records_examined=examined,
    )


def _postgres(*, now: Now) -> PostgresFacts:
    with the_database(config="left out") as database:
        revision, needed = current_revision(database), head_revision()
        with database.snapshot() as connection:
            skew_s, error_s = _skew(lambda: float(connection.scalar(_TIME) or 0.0), now=now)
            return PostgresFacts(
                version=_postgres_version(connection),
                takes_writes=bool(connection.scalar(_TAKES_WRITES)),
                revision=revision,
                needed_revision=needed,
                skew_s=skew_s,
                skew_error_s=error_s,
                clock_runs=clock_runs(connection),
                **(_of_our_schema(connection, database) if revision == needed else {}),
            )


def _postgres_version(connection: Connection) -> tuple[int, int]:
    return divmod(int(connection.scalar(_VERSION) or 0), 10_000)


def _of_our_schema(connection: Connection, database: Database) -> dict[str, Any]:
    rows = run_statement(connection, "silent_entries", {"most": MOST_ENTRIES, "named": NAMED})
    home = database.note_home(connection)
    told = {"silent_entries": tuple(rows[0][0]), "entries_examined": rows[0][1]}
    return {**told, "home": home if home.deployment_id else None}


def _skew(their_time: Callable[[], float], *, now: Now) -> tuple[float, float]:
    """How far their clock is ahead of ours, and the most by which that may be wrong: half the time of the answer."""
    before = now()
    theirs = their_time()
    after = now()
    return theirs - (before + after) / 2, (after - before) / 2
