"""A Redis that fails over: it goes on from what a replica had."""

from redis import Redis


def replica_of(redis_url: str) -> dict[bytes, bytes]:
    """All of Redis, as a replica would have it now."""
    with Redis.from_url(redis_url) as client:
        return {key: client.dump(key) for key in client.scan_iter()}


def fail_over(redis_url: str, *, to: dict[bytes, bytes]) -> None:
    """Redis forgets what it has been told since that replica was taken."""
    with Redis.from_url(redis_url) as client:
        client.flushdb()
        for key, value in to.items():
            client.restore(key, 0, value)
