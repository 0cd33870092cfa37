"""Postgres without room for its write-ahead log, and a failover that lost what the standby had not received."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import check_ledgers, wait_for_invariants, wait_until
from tests.processes import Processes
from tests.recovering import Recovery
from tests.small_disk import SmallDisk, small_disk
from tests.standby import standby_of
from turnledger.workers.embedded import EmbeddedServers

ROOM_AGAIN_S = 30


@pytest.fixture
def disk(folder: Path) -> Iterator[SmallDisk]:
    """Where the account of Postgres can go."""
    with small_disk(folder / "disk", megabytes=64) as mounted:
        yield mounted


def test_a_postgres_that_dies_of_a_full_disk_loses_nothing(
    engine: Engine, disk: SmallDisk, private_servers: EmbeddedServers, processes: Processes, recovery: Recovery
) -> None:
    """Starts are flagged and completions stay pending until there is room and it is started again (FL-1, QU-7)."""
    _put_log_on(disk, private_servers)
    worker, clock = start_worker(processes, engine.environment()), start_clock(processes, engine.environment())
    engine.play()
    running = engine.start("jira:POC-2")
    disk.fill()
    wait_until(lambda: _assert_dead(engine), seconds=ROOM_AGAIN_S)
    flagged = engine.start("jira:POC-3")
    assert flagged.history_error is not None
    for turn in (running, flagged):
        engine.complete(turn)
        assert turn.spooled is None
    private_servers.postgres.kill()
    disk.make_room()
    with recovery.of("room for the log of Postgres, its start included"):
        private_servers.postgres.start()
        wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told, seconds=ROOM_AGAIN_S)
    assert worker.running
    assert clock.running
    private_servers.postgres.kill()


def test_commits_that_a_failover_lost_are_made_again(
    engine: Engine, private_servers: EmbeddedServers, folder: Path, recovery: Recovery
) -> None:
    """From the spare copies that Redis keeps for an hour (FL-9)."""
    engine.play()
    engine.commit_all()
    with standby_of(private_servers.postgres, folder=folder / "standby") as standby:
        standby.catch_up()
        standby.fall_behind()
        for number in range(3):
            engine.play(f"jira:POC-{number}")
        engine.commit_all()
        private_servers.postgres.kill()
        survivor = Engine(standby.url, engine.redis_url)
        with recovery.of("the standby promoted, one sweep of the reconciler"):
            standby.promote()
            survivor.reconcile()
            survivor.commit_all()
        check_ledgers(standby.url, survivor.redis_url, told=engine.told)
        wait_for_invariants(standby.url, survivor.redis_url, told=engine.told, seconds=ROOM_AGAIN_S)
        survivor.close()


def _put_log_on(disk: SmallDisk, servers: EmbeddedServers) -> None:
    with psycopg.connect(servers.database_url) as connection:
        ((data,),) = connection.execute("SHOW data_directory")
    servers.postgres.stop()
    log, place = Path(data) / "pg_wal", disk.folder / "pg_wal"
    owner = log.owner()
    shutil.copytree(log, place)
    for path in (place, *place.rglob("*")):
        shutil.chown(path, user=owner)
    shutil.rmtree(log)
    log.symlink_to(place)
    servers.postgres.start()


def _assert_dead(engine: Engine) -> None:
    """Postgres ends itself when its log cannot grow; each new file of it takes 16 MB."""
    try:
        with engine.connected() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS ballast (word text)")
            connection.execute("INSERT INTO ballast SELECT repeat('x', 100) FROM generate_series(1, 100000)")
    except psycopg.Error:
        pass
    try:
        with engine.connected():
            pass
    except psycopg.OperationalError:
        return
    raise AssertionError("it still answers")
