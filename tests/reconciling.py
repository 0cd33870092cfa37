"""What tests of the reconciler share: turns are broken by hand, swept, and swept again."""

from collections.abc import Callable
from typing import Any

from redis import Redis

from tests.stores import Stores
from turnledger.checkpoint import Turn
from turnledger.workers.reconciler import Finding, Reconciler

WRITTEN = ("ledger", "ledger_turn", "ledger_event", "ledger_entry")


def sweep(reconciler: Reconciler, stores: Stores) -> dict[str, list[tuple[str, str]]]:
    """Sweep, sweep again to see that nothing is left to do (RC-16), and tell what the first one did to which turn."""
    found: list[Finding] = []
    report = reconciler.sweep(tell=found.append)
    assert report.whole
    assert report.postponed == 0
    assert_at_rest(reconciler, stores)
    did: dict[str, list[tuple[str, str]]] = {}
    for finding in found:
        did.setdefault(finding.turn_id, []).append((finding.action.do.value, finding.action.requirement))
    return did


def assert_at_rest(reconciler: Reconciler, stores: Stores) -> None:
    before = everything(stores)
    found: list[Finding] = []
    reconciler.sweep(tell=found.append)
    assert [finding for finding in found if finding.action.do.value != "list"] == []
    assert everything(stores) == before


def everything(stores: Stores) -> dict[str, Any]:
    """All that both servers hold, but for how long it still lives."""
    rows: dict[str, Any] = {table: sorted(map(str, stores.rows(f"SELECT * FROM {table}"))) for table in WRITTEN}
    redis: Any = Redis.from_url(stores.redis_url)
    try:
        return {**rows, **{key.decode(): _value(redis, key) for key in sorted(redis.scan_iter("*", count=1_000))}}
    finally:
        redis.close()


def _value(redis: Any, key: bytes) -> Any:
    readers: dict[bytes, Callable[[], Any]] = {
        b"hash": lambda: sorted(redis.hgetall(key).items()),
        b"list": lambda: redis.lrange(key, 0, -1),
        b"set": lambda: sorted(redis.smembers(key)),
        b"zset": lambda: redis.zrange(key, 0, -1, withscores=True),
        b"string": lambda: redis.get(key),
        b"stream": lambda: redis.xrange(key),
    }
    return readers[redis.type(key)]()


def change(stores: Stores, turn: Turn | str, **fields: str | int) -> None:
    """Overwrite fields of a record behind everybody's back."""
    turn_id = turn if isinstance(turn, str) else turn.turn_id
    redis: Any = stores.redis
    redis.hset(stores.keys.record(turn_id), mapping=fields)


def field(stores: Stores, turn: Turn, name: str) -> str | None:
    found: Any = stores.redis.hget(stores.keys.record(turn.turn_id), name)
    return None if found is None else str(found)


def lapse(stores: Stores, turn: Turn | str) -> None:
    """As if the owner had been silent for too long."""
    change(stores, turn, lease_until=1)


def grow_old(stores: Stores, turn: Turn) -> None:
    """As if the run had begun days ago."""
    stores.execute("UPDATE ledger_turn SET started_at = now() - interval '3 days' WHERE turn_id = %s", turn.turn_id)


def forget(stores: Stores, turn: Turn) -> None:
    """As if Redis had lost the record, and nothing else."""
    stores.redis.delete(stores.keys.record(turn.turn_id), stores.keys.steps(turn.turn_id))


def record_of(stores: Stores, turn: Turn) -> dict[str, str]:
    """All fields of a record, to be put back later."""
    found: Any = stores.redis.hgetall(stores.keys.record(turn.turn_id))
    return dict(found)


def put_back(stores: Stores, turn: Turn, record: dict[str, str]) -> None:
    """As if Redis had lost what it was told since, this turn's record alone."""
    forget(stores, turn)
    redis: Any = stores.redis
    redis.hset(stores.keys.record(turn.turn_id), mapping=record)


def back_up(stores: Stores) -> None:
    """Remember what Postgres holds now, for `set_back`."""
    with stores.connection() as connection:
        for table in WRITTEN:
            connection.execute(f"DROP TABLE IF EXISTS backup_{table}".encode())
            connection.execute(f"CREATE TABLE backup_{table} AS TABLE {table}".encode())


def set_back(stores: Stores) -> None:
    """Restore Postgres to what it was at `back_up`."""
    with stores.connection() as connection:
        connection.execute("SET LOCAL turnledger.maintenance = 'retention'")
        for table in reversed(WRITTEN):
            connection.execute(f"DELETE FROM {table}".encode())
        for table in WRITTEN:
            connection.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE backup_{table}".encode())
            connection.execute(f"DROP TABLE backup_{table}".encode())
