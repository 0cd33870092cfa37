"""What each role may do in Redis: the commands its processes give, and the access control lines made of them.

A role may give these commands and no other, on keys and channels of our two prefixes alone. The commands inside our
scripts count as the user's own. Nothing here lets anybody flush, configure, dump, or look into another's keys.
"""

from collections.abc import Mapping
from typing import Literal

from turnledger.checkpoint import CheckpointSettings

Role = Literal["engine", "worker", "reader"]
Sample = tuple[str, ...]

KEY = "{ours}:turn:-"  # {ours} and {rq} stand for the two prefixes; no turn and no job has this name
JOB = "{rq}:job:-"
CHANNEL = "{rq}:pubsub:-"

# Each command with arguments that it takes: `refused_commands` tries them without carrying one out.
_LOOK: Mapping[str, Sample] = {
    "PING": (),
    "SELECT": ("0",),
    "INFO": (),
    "TIME": (),
    "MULTI": (),
    "EVALSHA": ("0" * 40, "1", KEY),
    "SCRIPT LOAD": ("return 1",),
    "SCRIPT EXISTS": ("0" * 40,),
    "SCAN": ("0",),
    "TYPE": (KEY,),
    "EXISTS": (KEY,),
    "PTTL": (KEY,),
    "GET": (KEY,),
    "HGET": (KEY, "f"),
    "HMGET": (KEY, "f"),
    "HGETALL": (JOB,),
    "HSTRLEN": (KEY, "f"),
    "LLEN": (KEY,),
    "LRANGE": (KEY, "0", "0"),
    "LPOS": (KEY, "v"),
    "SMEMBERS": (JOB,),
    "SISMEMBER": (KEY, "v"),
    "ZCARD": (KEY,),
    "ZSCORE": (KEY, "v"),
    "ZRANGE": (KEY, "0", "0"),
    "ZRANGEBYSCORE": (JOB, "0", "0"),
    "ZSCAN": (KEY, "0"),
}
_WRITE: Mapping[str, Sample] = {
    "SET": (KEY, "v"),
    "DEL": (KEY,),
    "INCR": (KEY,),
    "PERSIST": (KEY,),
    "PEXPIRE": (KEY, "1"),
    "PEXPIREAT": (KEY, "1"),
    "HSET": (JOB, "f", "v"),
    "HSETNX": (KEY, "f", "v"),
    "HDEL": (KEY, "f"),
    "HINCRBY": (KEY, "f", "1"),
    "HEXISTS": (KEY, "f"),
    "HLEN": (KEY,),
    "RPUSH": (JOB, "v"),
    "LPUSH": (JOB, "v"),
    "LINSERT": (KEY, "BEFORE", "v", "w"),
    "LREM": (KEY, "1", "v"),
    "LTRIM": (KEY, "0", "0"),
    "SADD": (JOB, "v"),
    "SREM": (KEY, "v"),
    "ZADD": (KEY, "1", "v"),
    "ZREM": (JOB, "v"),
}
_WORK: Mapping[str, Sample] = {
    "RENAME": (KEY, KEY),  # a record that nobody can read is set aside by the reconciler alone
    "WATCH": (JOB,),
    "UNWATCH": (),
    "CLIENT SETNAME": ("-",),
    "CLIENT INFO": (),
    "CLIENT LIST": (),
    "EXPIRE": (JOB, "1"),
    "TTL": (JOB,),
    "HINCRBYFLOAT": (JOB, "f", "1"),
    "LMOVE": (JOB, JOB, "LEFT", "RIGHT"),
    "BLMOVE": (JOB, JOB, "LEFT", "RIGHT", "1"),
    "SCARD": (JOB,),
    "ZREMRANGEBYSCORE": (JOB, "0", "0"),
    "XADD": (JOB, "*", "f", "v"),
    "XREVRANGE": (JOB, "+", "-"),
    "PUBLISH": (CHANNEL, "v"),
    "SUBSCRIBE": (CHANNEL,),
    "UNSUBSCRIBE": (CHANNEL,),
}
_ENDS = ("EXEC", "DISCARD")  # of a transaction; they cannot be tried inside of one

COMMANDS: Mapping[Role, Mapping[str, Sample]] = {
    "reader": _LOOK,
    "engine": {**_LOOK, **_WRITE},
    "worker": {**_LOOK, **_WRITE, **_WORK},
}
CHANNELS: Mapping[Role, bool] = {"reader": False, "engine": False, "worker": True}


def acl_line(role: Role, *, settings: CheckpointSettings) -> str:
    """What follows `ACL SETUSER` for this role, but for its password; as Redis 6.2, 7 and Valkey read it."""
    commands = [f"+{name.lower().replace(' ', '|')}" for name in (*COMMANDS[role], *_ENDS)]
    keys = [f"~{prefix}:*" for prefix in dict.fromkeys((settings.prefix, settings.rq_prefix))]
    channels = [f"&{settings.rq_prefix}:pubsub:*"] if CHANNELS[role] else []
    return " ".join(["reset", "on", *keys, "resetchannels", *channels, "-@all", *commands])


def samples(role: Role, *, settings: CheckpointSettings) -> dict[str, list[str]]:
    """Each command of a role as the words that a client sends."""
    return {
        name: [*name.split(), *(_named(argument, settings) for argument in arguments)]
        for name, arguments in COMMANDS[role].items()
    }


def _named(argument: str, settings: CheckpointSettings) -> str:
    return argument.replace("{ours}", settings.prefix).replace("{rq}", settings.rq_prefix)
