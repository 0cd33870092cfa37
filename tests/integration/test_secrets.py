"""A password in a URL is told nowhere: not in an error, a log, what a command prints, or the title of a process."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis

from tests.ledger_checks import wait_until
from tests.processes import Processes
from turnledger.checkpoint import CheckpointSettings
from turnledger.store import Database, StoreSettings, migrate
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.embedded import Durability, EmbeddedServers, embedded_servers

MARKER = "Mark3rWord"
DEAD = "127.0.0.1:1"

# Runs every command with every pair of URLs, in one process: starting one for each would take minutes.
RUNS_EVERYTHING = """
import json, os, sys, traceback
from turnledger.workers.cli.app import app
for name, urls in json.loads(sys.argv[1]).items():
    for command in json.loads(sys.argv[2]):
        os.environ.update(urls)
        try:
            app(command, standalone_mode=True, prog_name="turnledger")
            code = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
            code = "traceback"
        print("ended:", json.dumps([name, command[0], code]), flush=True)
"""
COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["show", "lead", "jira:POC-7"],
    ["show", "--turn", "t1"],
    ["block", "lead", "jira:POC-7"],
    ["migrate"],
    ["migrate", "--roles"],
    ["acl"],
    ["alive"],
    ["wire"],
    ["worker", "--burst"],
    ["worker", "--processes", "2", "--burst"],
    ["clock"],
    ["upkeep"],
    ["reconcile", "--dry-run"],
    ["recover", "--drain"],
    ["requeue", "t1"],
    ["budget"],
]
ENDLESS = ("clock", "upkeep")  # where the servers are there
# They start their own, or play against those that all the others use; the dashboard has tests of its own.
OWN_SERVERS = {"up", "demo", "replay", "node", "dashboard"}
EXIT_CODES = {0, 1, 2, 3}


@pytest.fixture(scope="module")
def guarded(servers: EmbeddedServers) -> Iterator[dict[str, str]]:
    """The URLs of servers that ask for a password, with the right one; where there are no `servers`, there are none."""
    with embedded_servers(durability=Durability.SCRATCH) as own:
        with psycopg.connect(own.database_url, autocommit=True) as admin:
            admin.execute(f"CREATE USER guarded SUPERUSER PASSWORD '{MARKER}'".encode())
            row = admin.execute("SHOW hba_file").fetchone()
            assert row is not None
            rules = Path(row[0])
            rules.write_text("host all guarded all scram-sha-256\n" + rules.read_text())
            admin.execute("SELECT pg_reload_conf()")
        with Redis.from_url(own.redis_url) as redis:
            rules_of_redis = ("on", "~*", "&*", "+@all", f">{MARKER}")
            redis.execute_command("ACL", "SETUSER", "guarded", *rules_of_redis)
        urls = {
            DATABASE_URL: own.database_url.replace("turnledger@", f"guarded:{MARKER}@"),
            REDIS_URL: own.redis_url.replace("redis://", f"redis://guarded:{MARKER}@"),
        }
        database = Database.from_settings(database_url=urls[DATABASE_URL])
        migrate(database)
        database.close()
        yield urls


def _wrong(guarded: dict[str, str]) -> dict[str, dict[str, str]]:
    """Pairs of URLs that do not lead to a server, or not to one that takes the password."""
    database, redis = guarded[DATABASE_URL], guarded[REDIS_URL]
    passwords = {
        "wrong password": f"x{MARKER}",
        "a slash": f"x/{MARKER}",
        "an at sign": f"x@{MARKER}",
        "a bracket": f"[{MARKER}",
        "a hash": f"{MARKER}#x",
        "a question mark": f"{MARKER}?x",
        "a colon": f"{MARKER}:x",
        "a percent sign": f"{MARKER}%zz",
    }
    pairs = {name: (database.replace(MARKER, word), redis.replace(MARKER, word)) for name, word in passwords.items()}
    pairs |= {
        "nobody there": (f"postgresql://u:{MARKER}@{DEAD}/x", f"redis://u:{MARKER}@{DEAD}/0"),
        "no such host": (f"postgresql://u:{MARKER}@nowhere.invalid/x", f"redis://u:{MARKER}@nowhere.invalid/0"),
        "a port of letters": (f"postgresql://u:{MARKER}@127.0.0.1:p/x", f"redis://u:{MARKER}@127.0.0.1:p/0"),
        "another scheme": (f"mysql://u:{MARKER}@{DEAD}/x", f"http://u:{MARKER}@{DEAD}"),
        "no scheme": (f"u:{MARKER}@{DEAD}/x", f"u:{MARKER}@{DEAD}"),
        "in the query": (f"postgresql://{DEAD}/x?password={MARKER}&no=1", f"redis://{DEAD}/0?password={MARKER}&no=1"),
        "only Postgres is wrong": (database.replace(MARKER, f"x{MARKER}"), redis),
        "only Redis is wrong": (database, redis.replace(MARKER, f"x{MARKER}")),
    }
    return {name: dict(zip((DATABASE_URL, REDIS_URL), pair, strict=True)) for name, pair in pairs.items()}


def _endings(output: str) -> list[tuple[str, str, object]]:
    lines = [line.partition("ended: ")[2] for line in output.splitlines() if line.startswith("ended: ")]
    return [tuple(json.loads(line)) for line in lines]


def _run(
    processes: Processes, pairs: dict[str, dict[str, str]], commands: list[list[str]]
) -> list[tuple[str, str, object]]:
    environment = {
        "TURNLEDGER_LOG_LEVEL": "DEBUG",
        "TURNLEDGER_REDIS_RETRIES": "0",
        "TURNLEDGER_DATABASE_CONNECT_TIMEOUT_S": "2",
    }
    process = processes.snippet(RUNS_EVERYTHING, json.dumps(pairs), json.dumps(commands), environment=environment)
    process.wait(seconds=120)
    assert MARKER not in process.output, [line for line in process.output.splitlines() if MARKER in line][:5]
    endings = _endings(process.output)
    assert len(endings) == len(pairs) * len(commands)
    assert [ending for ending in endings if ending[2] not in EXIT_CODES] == []
    return endings


def test_no_command_tells_a_password_whatever_is_wrong(guarded: dict[str, str], processes: Processes) -> None:
    """And each mistake is one of the known exit codes, never a traceback."""
    endings = _run(processes, _wrong(guarded), COMMANDS)
    quiet = {(name, command) for name, command, code in endings if code == 0}
    assert {command for name, command in quiet if not name.startswith("only")} == {"acl", "wire"}


def test_no_command_tells_a_password_when_all_is_well(guarded: dict[str, str], processes: Processes) -> None:
    """Logs at their most talkative included."""
    commands = [command for command in COMMANDS if command[0] not in ENDLESS and "--processes" not in command]
    endings = _run(processes, {"right": guarded}, commands)
    assert sum(code == 0 for _, _, code in endings) > len(commands) / 2


def test_every_command_was_tried() -> None:
    """One that is added later has to be tried, too."""
    from typer.main import get_command

    from turnledger.workers.cli.app import app

    names = set(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group
    assert names - OWN_SERVERS == {command[0] for command in COMMANDS}


def test_no_title_of_a_process_tells_a_password(guarded: dict[str, str], processes: Processes) -> None:
    """Of workers, their children, the clock and upkeep; nor does Redis hear of it."""
    for command in (["worker", "--processes", "2"], ["clock"], ["upkeep"]):
        processes.command(*command, environment=guarded)
    with Redis.from_url(guarded[REDIS_URL], decode_responses=True) as redis:
        wait_until(lambda: _at_least(3, len(redis.smembers("rq:workers"))))
        told = str(redis.client_list()) + str(redis.keys("*"))
        told += str([redis.hgetall(key) for key in redis.smembers("rq:workers")])
    titles = [
        str(process.info["cmdline"]) + str(process.info["name"])
        for process in psutil.process_iter(["cmdline", "name"])
        if "turnledger" in str(process.info["cmdline"]) and process.pid != os.getpid()
    ]
    assert len(titles) >= 5
    assert MARKER not in told + "".join(titles)


def _at_least(least: int, number: int) -> None:
    assert number >= least


def test_settings_do_not_show_their_urls() -> None:
    """Where somebody logs or raises with the whole of them."""
    store = StoreSettings(database_url=f"postgresql://u:{MARKER}@h/x")
    checkpoint = CheckpointSettings(redis_url=f"redis://u:{MARKER}@h/0")
    assert MARKER not in f"{store} {store!r} {checkpoint} {checkpoint!r}"
