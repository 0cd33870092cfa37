"""A mistake gives one clear line on standard error and an exit code; never a traceback, never silence."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.processes import Processes
from turnledger.workers.embedded import EmbeddedServers

NOBODY = "127.0.0.1:1"


@pytest.fixture
def urls(database_url: str, redis_url: str) -> dict[str, str]:
    return {"TURNLEDGER_DATABASE_URL": database_url, "TURNLEDGER_REDIS_URL": redis_url}


def _line(processes: Processes, *arguments: str, environment: dict[str, str], code: int) -> str:
    """The only line that a command prints before it ends with this code."""
    process = processes.command(*arguments, environment=environment)
    assert process.wait() == code, process.output
    (line,) = process.output.splitlines()
    assert line.startswith("turnledger: ")
    return line


SHOW = ["show", "lead", "jira:POC-7"]
NEED_POSTGRES = [["status"], ["migrate"], SHOW, [*SHOW, "--events"], ["show", "--turn", "t1"], ["worker"], ["clock"]]
NEED_REDIS = [
    ["status"],
    ["show", "--turn", "t1"],
    ["requeue", "t1"],
    ["worker"],
    ["worker", "--processes", "2"],
    ["clock"],
]
NEED_SCHEMA = [["status"], ["show", "lead", "jira:POC-7"], ["worker"], ["worker", "--processes", "2"], ["clock"]]


@pytest.mark.parametrize("command", NEED_POSTGRES, ids=" ".join)
def test_an_unknown_database(processes: Processes, urls: dict[str, str], command: list[str]) -> None:
    environment = {**urls, "TURNLEDGER_DATABASE_URL": urls["TURNLEDGER_DATABASE_URL"] + "_not"}
    line = _line(processes, *command, environment=environment, code=1)
    assert "does not exist" in line
    assert "TURNLEDGER_DATABASE_URL" in line


@pytest.mark.parametrize("command", NEED_POSTGRES, ids=" ".join)
def test_a_postgres_that_is_not_there(processes: Processes, urls: dict[str, str], command: list[str]) -> None:
    environment = {**urls, "TURNLEDGER_DATABASE_URL": f"postgresql://x@{NOBODY}/x"}
    assert "Postgres does not answer" in _line(processes, *command, environment=environment, code=3)


@pytest.mark.parametrize("command", NEED_REDIS, ids=" ".join)
def test_a_redis_that_is_not_there(processes: Processes, urls: dict[str, str], command: list[str]) -> None:
    environment = {**urls, "TURNLEDGER_REDIS_URL": f"redis://{NOBODY}/0"}
    assert "Redis" in _line(processes, *command, environment=environment, code=3)


@pytest.mark.parametrize("command", NEED_SCHEMA, ids=" ".join)
def test_migrations_that_have_not_run(
    processes: Processes, urls: dict[str, str], empty_database_url: str, command: list[str]
) -> None:
    """CK-15"""
    environment = {**urls, "TURNLEDGER_DATABASE_URL": empty_database_url}
    assert "run `turnledger migrate`" in _line(processes, *command, environment=environment, code=1)


def test_migrate_makes_the_schema_and_may_be_repeated(processes: Processes, empty_database_url: str) -> None:
    for _ in range(2):
        process = processes.command("migrate", environment={"TURNLEDGER_DATABASE_URL": empty_database_url})
        assert process.wait() == 0
        assert "schema revision" in process.output


@pytest.mark.parametrize(
    ("variable", "value", "phrase"),
    [
        ("TURNLEDGER_DATABASE_URL", "mysql://x@y/z", "only postgresql:// is supported"),
        ("TURNLEDGER_REDIS_URL", "http://x", "TURNLEDGER_REDIS_URL cannot be read"),
        ("TURNLEDGER_LOG_LEVEL", "LOUD", "TURNLEDGER_LOG_LEVEL is wrong"),
        ("TURNLEDGER_BLOCK_BYTES", "0", "TURNLEDGER_BLOCK_BYTES is wrong"),
        ("TURNLEDGER_REDIS_URL", "", "TURNLEDGER_REDIS_URL is not set"),
    ],
)
def test_a_wrong_setting(processes: Processes, urls: dict[str, str], variable: str, value: str, phrase: str) -> None:
    assert phrase in _line(processes, "status", environment={**urls, variable: value}, code=2)


def test_a_wrong_name(processes: Processes, urls: dict[str, str]) -> None:
    line = _line(processes, "show", "lead", "no key", environment=urls, code=2)
    assert "must be {source}:{local}" in line


def test_no_such_ledger_and_no_such_turn(processes: Processes, urls: dict[str, str]) -> None:
    assert "there is no ledger" in _line(processes, "show", "lead", "jira:X", environment=urls, code=2)
    assert "no ledger" in _line(processes, "show", "lead", "jira:X", "--events", environment=urls, code=2)
    assert "no ledger" in _line(processes, "show", "lead", "jira:X", "--version", "0", environment=urls, code=2)
    line = _line(processes, "show", "--turn", "t1", environment=urls, code=2)
    assert "there is no turn t1; give 8 characters of its id or more" in line
    assert "there is no turn" in _line(processes, "requeue", "t1", environment=urls, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "lead"],
        ["show", "--turn", "t1", "--events"],
        ["show", "--turn", "t1", "--version", "1"],
        [*SHOW, "--turn", "t1"],
        [*SHOW, "--events", "--version", "1"],
        [*SHOW, "--before", "7"],
        [*SHOW, "--events", "--last", "0"],
        ["replay"],
        ["nosuch"],
        ["worker", "--processes", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_shows_the_usage(processes: Processes, urls: dict[str, str], arguments: list[str]) -> None:
    process = processes.command(*arguments, environment=urls)
    assert process.wait() == 2
    assert "Usage: turnledger" in process.output


def test_a_bad_line_of_a_file_is_named_before_anything_is_started(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('{"id": "a", "messages": []}\n{"id": "b"\n')
    assert "chats.jsonl, line 2 is not JSON" in _line(processes, "replay", str(file), environment={}, code=2)
    assert "there is no file" in _line(processes, "replay", str(tmp_path / "none"), environment={}, code=2)


@pytest.fixture
def unsafe_redis_url(redis_url: str) -> Iterator[str]:
    """A Redis that may throw away what it was given."""
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        yield redis_url
        client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize("command", [["worker"], ["worker", "--processes", "2"], ["clock"]], ids=" ".join)
def test_a_redis_that_evicts_is_refused_with_the_fix(
    processes: Processes, urls: dict[str, str], unsafe_redis_url: str, command: list[str]
) -> None:
    """FL-5"""
    assert "set `maxmemory-policy noeviction`" in _line(processes, *command, environment=urls, code=1)


def test_a_wrong_password(processes: Processes, private_servers: EmbeddedServers) -> None:
    """Of Postgres, then of Redis."""
    database_url, redis_url = private_servers.database_url, private_servers.redis_url
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE visitor LOGIN PASSWORD 'right'")
        (rules,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        Path(rules).write_text("host all visitor 127.0.0.1/32 scram-sha-256\n" + Path(rules).read_text())
        connection.execute("SELECT pg_reload_conf()")
    wrong = database_url.replace("//turnledger@", "//visitor:wrong@")
    environment = {"TURNLEDGER_DATABASE_URL": wrong, "TURNLEDGER_REDIS_URL": redis_url}
    assert "password authentication failed" in _line(processes, "status", environment=environment, code=1)
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("requirepass", "right")
    environment = {
        "TURNLEDGER_DATABASE_URL": database_url,
        "TURNLEDGER_REDIS_URL": redis_url.replace("//", "//:wrong@"),
    }
    for command in (["worker"], ["show", "--turn", "t1"]):
        assert "Redis refuses this user" in _line(processes, *command, environment=environment, code=1)
