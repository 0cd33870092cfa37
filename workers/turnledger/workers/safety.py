"""What a process checks before it works: that this Redis keeps what it is given, and that RQ is ours."""

from redis import Redis
from rq.defaults import RQ_KEY_PREFIX

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointSettings
from turnledger.checkpoint.connection import translated
from turnledger.workers.errors import UnsafeRedis


def check_redis(redis: Redis) -> None:
    """Refuse a Redis that may evict a turn, or that forgets all of them when it restarts.

    Raises:
        UnsafeRedis: names the setting, its value and the fix.
        CheckpointUnavailable: Redis does not answer.
    """
    with translated():
        memory, persistence = redis.info("memory"), redis.info("persistence")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnsafeRedis(
            f"Redis evicts keys when it is full (maxmemory-policy is {policy}): completed turns would be lost; "
            "set `maxmemory-policy noeviction`"
        )
    if not int(persistence.get("aof_enabled", 0)):
        raise UnsafeRedis(
            "Redis has no append-only file (appendonly is no): a restart would lose completed turns; "
            "set `appendonly yes`"
        )


def check_rq_prefix(settings: CheckpointSettings) -> None:
    """Refuse to work where RQ was imported with another prefix than the engines enqueue under.

    Raises:
        CheckpointMisconfigured: names both.
    """
    if settings.rq_prefix != RQ_KEY_PREFIX:
        raise CheckpointMisconfigured(
            f"rq was imported with the prefix {RQ_KEY_PREFIX!r}, the settings say {settings.rq_prefix!r}; set "
            "RQ_KEY_PREFIX before the process starts"
        )
