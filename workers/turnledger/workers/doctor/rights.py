"""Which commands Redis would refuse this user, found without carrying one out."""

from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from turnledger.checkpoint import CheckpointSettings
from turnledger.workers.redis_rights import Role, samples

_ALREADY_OPEN = "MULTI"


def refused_commands(redis: Redis, *, role: Role, settings: CheckpointSettings) -> tuple[str, ...] | None:
    """The commands of the role that are refused, each tried on a key or channel of ours; None: nobody can tell.

    Redis looks at the rights when a command joins a transaction, and the transaction is discarded: nothing runs. So it
    can be told on Redis 6.2 too, which has no ACL DRYRUN, and by a user who may ask nothing about users. A user who
    may not open a transaction is not told.
    """
    connection: Any = redis.connection_pool.get_connection()
    try:
        if not _accepted(connection, ["MULTI"]):
            return None
        tried = samples(role, settings=settings)
        refused = [name for name in tried if name != _ALREADY_OPEN and not _accepted(connection, tried[name])]
        return tuple(refused) if _accepted(connection, ["DISCARD"]) else None
    finally:
        connection.disconnect()  # whatever became of the transaction, it ends here
        redis.connection_pool.release(connection)


def _accepted(connection: Any, words: list[str]) -> bool:
    """Whether the rights allow it: any other complaint, as that WATCH cannot join, comes after the look at them."""
    connection.send_command(*words)
    try:
        connection.read_response()
    except NoPermissionError:
        return False
    except ResponseError as error:
        return not str(error).startswith("NOPERM")
    return True
