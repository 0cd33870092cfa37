"""A disk without room: the node's spool, the append-only file of Redis, the tables of Postgres."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import ResponseError

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from tests.recovering import Recovery
from tests.small_disk import SmallDisk, small_disk
from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import CheckpointUnavailable, NotPersisted, Turn
from turnledger.store import Replied
from turnledger.workers.embedded import EmbeddedRedis, EmbeddedServers

AWAY: dict[str, Any] = {"redis_retries": 0, "redis_connect_timeout_s": 0.5}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", megabytes=4) as mounted:
        yield mounted


@pytest.fixture
def cramped(database_url: str, disk: SmallDisk) -> Iterator[Engine]:
    """A node whose Redis keeps its append-only file on the small disk."""
    redis = EmbeddedRedis(disk.folder / "redis")
    redis.start()
    node = Engine(database_url, redis.url)
    yield node
    node.close()
    redis.kill()


def test_a_spool_without_room_says_so_and_the_turn_keeps_everything(
    private_servers: EmbeddedServers, disk: SmallDisk
) -> None:
    """Nothing half written is taken for a turn, nor left to take up room; the same call succeeds later (FL-4)."""
    stores = Stores(database_url=private_servers.database_url, redis_url=private_servers.redis_url)
    spool = disk.folder / "spool"
    node = stores.node(spool_folder=spool, store={"database_connect_timeout_s": 2}, **AWAY)
    turn = begin(node)
    turn.save(steps=[user("zero")])
    spool.mkdir()
    disk.fill()
    for server in (private_servers.redis, private_servers.postgres):
        server.stop()
    for _ in range(2):
        with pytest.raises(NotPersisted, match="No space left"):
            turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
        assert list(spool.iterdir()) == []
    disk.make_room()
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    assert list(spool.iterdir()) == [turn.spooled]
    for server in (private_servers.redis, private_servers.postgres):
        server.start()
    assert node.recover() == 1
    assert list(spool.iterdir()) == []
    assert [step.value["content"] for step in begin(node).history()] == ["zero", "Done"]
    stores.close()


def test_a_redis_that_cannot_write_its_file_takes_no_turn_and_loses_none(
    cramped: Engine, disk: SmallDisk, processes: Processes, recovery: Recovery
) -> None:
    """It refuses writes until there is room; what was pending is committed then (FL-2, FL-3, QU-7)."""
    engine = cramped
    worker = start_worker(processes, engine.environment())
    wait_until(lambda: _assert_registered(engine))
    first, running = engine.start("jira:POC-1"), engine.start("jira:POC-2")
    disk.fill()
    wait_until(lambda: _assert_refused(engine))
    running.save(steps=[user("zero")])
    assert isinstance(running.checkpoint_error, CheckpointUnavailable)
    with pytest.raises(CheckpointUnavailable, match="MISCONF"):
        running.park(reason="waits")
    engine.complete(first)
    assert engine.start("jira:POC-3").checkpoint_error is not None
    assert worker.running
    disk.make_room()
    with recovery.of("room for the append-only file of Redis"):
        wait_until(lambda: _assert_saved(running))
        engine.redis.delete("anything")
        engine.complete(running)
        start_clock(processes, engine.environment())
        engine.play("jira:POC-1")
        engine.reconcile()
        wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
    assert worker.running


def test_a_postgres_without_room_for_its_tables_keeps_turns_pending(
    private_servers: EmbeddedServers, folder: Path, processes: Processes, recovery: Recovery
) -> None:
    """Nothing is rejected, the worker waits; all of it is committed once there is room (FL-1, QU-7)."""
    with small_disk(folder / "disk", megabytes=4) as disk:
        _put_tables_on(disk, private_servers)
        engine = Engine(private_servers.database_url, private_servers.redis_url)
        worker = start_worker(processes, engine.environment())
        disk.fill()
        for number in range(8):
            turn = engine.start(f"jira:POC-{number}")
            turn.save(steps=[user("x" * 100_000 + str(number)) for _ in range(2)])
            engine.complete(turn)
        worker.wait_for_line("No space left on device")
        assert worker.running
        assert {engine.state(turn.turn_id) for turn in engine.told} <= {"completed", "committed"}
        disk.make_room()
        with recovery.of("room for the tables of Postgres"):
            wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
        assert worker.running
        engine.close()
        private_servers.postgres.kill()


def _put_tables_on(disk: SmallDisk, servers: EmbeddedServers) -> None:
    """The rows of the log, which grow with every turn, and what is stored beside them."""
    place = disk.folder / "tables"
    place.mkdir(mode=0o700)
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        ((data,),) = connection.execute("SHOW data_directory")
        shutil.chown(place, user=Path(data).owner())
        connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        connection.execute(b"ALTER TABLE turnledger.ledger_event SET TABLESPACE small")


def _assert_refused(engine: Engine) -> None:
    """Redis notices with a write that it acknowledges: the one after that is refused."""
    try:
        engine.redis.set("anything", "x" * 10_000)
    except ResponseError as refused:
        assert "MISCONF" in str(refused)  # noqa: PT017  # what it answered before is no failure yet
    else:
        raise AssertionError("it still takes writes")


def _assert_saved(turn: Turn) -> None:
    turn.save()
    assert turn.checkpoint_error is None


def _assert_registered(engine: Engine) -> None:
    assert engine.redis.scard("rq:workers") == 1
