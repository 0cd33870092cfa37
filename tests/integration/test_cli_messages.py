"""What is said of a server or a file that will not do: what, where, and what to do about it, in one line."""

import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.commands import CommandLine
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turns
from turnledger.store import Replied
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL


@pytest.fixture(autouse=True)
def _environment(named_servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLEDGER_REDIS_RETRIES", "0")
    monkeypatch.setenv("TURNLEDGER_REDIS_CONNECT_TIMEOUT_S", "0.3")
    monkeypatch.setenv("TURNLEDGER_REDIS_REPLY_TIMEOUT_S", "0.3")


def _port(url: str) -> str:
    return str(urlsplit(url).port)


CORRECT_POSTGRES = "start it, or correct TURNLEDGER_DATABASE_URL"
CORRECT_REDIS = "start it, or correct TURNLEDGER_REDIS_URL"
CREATE = "create it, or correct TURNLEDGER_DATABASE_URL"
NO_SSL = "server does not support SSL, but SSL was required"
TALKS_TLS = "(rediss:// is for a Redis that talks TLS)"
ENCODED = "with what is neither letter nor digit in the password percent-encoded"
OPTIONS = ", and after a ? only options of libpq"
POSTGRES: dict[str, tuple[Callable[[str], str], int, str]] = {
    "nobody listens": (
        lambda _: "postgresql://x@127.0.0.1:1/x",
        3,
        f"Postgres does not answer at 127.0.0.1:1: Connection refused; {CORRECT_POSTGRES}",
    ),
    "no such host": (
        lambda _: "postgresql://x@nowhere.invalid/x",
        3,
        f"Postgres does not answer at nowhere.invalid: no host of this name is known; {CORRECT_POSTGRES}",
    ),
    "no such socket": (
        lambda _: "postgresql:///x?host=/nowhere",
        3,
        f"Postgres does not answer at /nowhere/.s.PGSQL.5432: No such file or directory; {CORRECT_POSTGRES}",
    ),
    "no such database": (
        lambda url: f"{url}_not",
        1,
        'Postgres at 127.0.0.1:PORT refuses the connection: database "shared_not" does not exist; ' + CREATE,
    ),
    "no TLS": (
        lambda url: f"{url}?sslmode=require",
        3,
        f"Postgres at 127.0.0.1:PORT has not the TLS that {DATABASE_URL} asks for: {NO_SSL}",
    ),
    "no such port": (
        lambda _: "postgresql://x@127.0.0.1:99999/x",
        2,
        "the port in TURNLEDGER_DATABASE_URL is none: it is a number from 1 to 65535",
    ),
    "an at sign in the password": (
        lambda _: "postgresql://x:sec@ret@127.0.0.1:1/x",
        2,
        (
            f"{DATABASE_URL} cannot be read; write postgresql://user:password@host:port/database "
            f"(or host:port,host:port with ?target_session_attrs=read-write), {ENCODED}{OPTIONS}"
        ),
    ),
    "an at sign and a slash in the password": (
        lambda _: "postgresql://x:sec@ret/word@127.0.0.1:1/x",
        2,
        (
            f"{DATABASE_URL} cannot be read; write postgresql://user:password@host:port/database "
            f"(or host:port,host:port with ?target_session_attrs=read-write), {ENCODED}{OPTIONS}"
        ),
    ),
    "no such option": (
        lambda url: f"{url}?nosuch=1",
        2,
        (
            f"{DATABASE_URL} cannot be read; write postgresql://user:password@host:port/database "
            f"(or host:port,host:port with ?target_session_attrs=read-write), {ENCODED}{OPTIONS}"
        ),
    ),
}
REDIS: dict[str, tuple[Callable[[str], str], int, str]] = {
    "nobody listens": (
        lambda _: "redis://127.0.0.1:1/0",
        3,
        f"Redis does not answer at 127.0.0.1:1: Connection refused; {CORRECT_REDIS}",
    ),
    "no such host": (
        lambda _: "redis://nowhere.invalid:1/0",
        3,
        f"Redis does not answer at nowhere.invalid:1: Name or service not known; {CORRECT_REDIS}",
    ),
    "no TLS": (
        lambda url: url.replace("redis:", "rediss:"),
        3,
        f"Redis does not answer: Timeout connecting to server; {CORRECT_REDIS} {TALKS_TLS}",
    ),
    "no such number": (
        lambda url: url.replace("/0", "/99"),
        1,
        "Redis refused a command: DB index is out of range; correct the number in TURNLEDGER_REDIS_URL",
    ),
    "no number": (
        lambda url: url.replace("/0", "/zero"),
        2,
        (
            f"{REDIS_URL} cannot be read; write redis://user:password@host:port/number, "
            f"or redis+sentinel://user:password@host:port,host:port/service/number, {ENCODED}"
        ),
    ),
    "no such user": (
        lambda url: url.replace("//", "//somebody:wrong@"),
        1,
        "Redis refuses this user: invalid username-password pair or user is disabled; check TURNLEDGER_REDIS_URL",
    ),
}


@pytest.mark.parametrize("case", POSTGRES)
def test_what_is_said_of_postgres(cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """(OP-2)"""
    url, code, words = POSTGRES[case]
    monkeypatch.setenv(DATABASE_URL, url(stores.database_url))
    ended = cli.run("status")
    told = words.replace("PORT", _port(stores.database_url))
    assert (ended.code, ended.errors) == (code, f"turnledger: {told}\n")


@pytest.mark.parametrize("case", REDIS)
def test_what_is_said_of_redis(cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """(OP-2)"""
    url, code, words = REDIS[case]
    monkeypatch.setenv(REDIS_URL, url(stores.redis_url))
    ended = cli.run("status")
    assert (ended.code, ended.errors) == (code, f"turnledger: {words}\n")


def test_a_folder_that_cannot_be_used_is_named(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For `up`, and for the spool, which `doctor` reports (OP-2, OP-3)."""
    file = tmp_path / "file"
    file.write_text("")
    ended = cli.run("up", "--folder", str(file))
    assert ended.code == 2
    assert ended.errors.startswith(f"turnledger: {file}/postgres/lock cannot be used: Not a directory; name another")
    monkeypatch.setenv("TURNLEDGER_SPOOL_FOLDER", str(file))
    ended = cli.run("recover")
    assert ended.code == 2
    assert ended.errors == f"turnledger: the spool folder {file} is no folder; correct it, or TURNLEDGER_SPOOL_FOLDER\n"
    checks = {each["check"]: each for each in cli.run("doctor", "--json").json["checks"]}
    assert checks["spool"]["finding"] == f"the spool folder {file} is no folder"


def test_a_broken_section_stops_no_look(
    cli: CommandLine, stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is told, and `doctor` finds it; what would have to follow it refuses it (OP-2, RT-1)."""
    begin(node).complete(reply=Replied("Fixed"))
    stores.drain()
    file = tmp_path / "engine.yaml"
    file.write_text("turn_engine: [\n")
    monkeypatch.setenv("TURNLEDGER_CONFIG", str(file))
    for command in (["status"], ["migrate"], ["show", LEAD.agent, LEAD.conversation]):
        ended = cli.run(*command, "--json")
        assert ended.code == 0
        assert isinstance(ended.json, dict)
        assert str(file) in ended.errors
        assert "this command does without" in ended.errors
    checks = {each["check"]: each for each in cli.run("doctor", "--json").json["checks"]}
    assert checks["config"]["verdict"] == "wrong"
    assert str(file) in checks["config"]["finding"]
    for command in (["recover"], ["block", LEAD.agent, LEAD.conversation], ["worker"], ["reconcile"]):
        assert cli.run(*command).code == 2


def test_doctor_says_once_that_a_server_is_away(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then which checks could not be made; of two servers both are told (OP-3)."""
    monkeypatch.setenv(REDIS_URL, "redis://127.0.0.1:1/0")
    shown = cli.run("doctor").output
    assert shown.count("Connection refused") == 1
    assert "--  not looked at, for what access says: versions, writes, eviction," in shown
    monkeypatch.setenv(DATABASE_URL, "postgresql://x@127.0.0.1:1/x")
    ended = cli.run("doctor")
    assert ended.code == 3
    assert ended.output.count("Connection refused") == 2


def test_a_redis_that_is_silent_keeps_nobody_waiting_for_long(
    cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and answers nothing: a look ends, and a worker does not start (OP-2, OP-3)."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(REDIS_URL, f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        for command in ("status", "doctor", "worker"):
            assert cli.run(command).code == 3
        assert cli.run("block", LEAD.agent, LEAD.conversation).code == 0


def test_the_beginning_of_an_id_will_do(cli: CommandLine, stores: Stores) -> None:
    """As `show` prints it on a narrow terminal; of a turn that Postgres knows, or Redis alone (OP-2)."""
    for turn_id in ("abcdefgh-1", "abcdefgh-2", "abcdefgx-1"):
        begin(stores.node(), turn_id=turn_id)
    assert cli.run("show", "--turn", "abcdefgx", "--json").json["turn_id"] == "abcdefgx-1"
    ended = cli.run("show", "--turn", "abcdefgh")
    assert ended.code == 2
    assert "several turns begin with abcdefgh: abcdefgh-1, abcdefgh-2; give more of the id" in ended.errors
    assert cli.run("show", "--turn", "abcdefg").code == 2
    stores.execute("DELETE FROM ledger_turn WHERE turn_id = 'abcdefgx-1'")
    assert cli.run("show", "--turn", "abcdefgx-", "--json").json["turn_id"] == "abcdefgx-1"


def test_status_says_where_no_worker_was_heard_of(
    cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with another number or prefix is not seen; the place is told without a password (OP-2)."""
    monkeypatch.setenv("COLUMNS", "300")
    place = f"127.0.0.1:{_port(stores.redis_url)}/0, prefix rq"
    assert f"none heard of within 60 s in {place}: one that runs may use another Redis" in cli.run("status").output


def test_a_commit_job_that_failed_is_named(cli: CommandLine, stores: Stores, node: Turns) -> None:
    """Whose turn waits for the clock, and for nobody's decision (OP-2)."""
    turn = begin(node)
    turn.complete(reply=Replied("Fixed"), steps=[user("Please fix it")])
    stores.redis.zadd(stores.keys.failed_registry, {f"turn-{turn.turn_id}": 4_000_000_000})
    status = cli.run("status", "--json").json
    assert status["failed_turns"] == [turn.turn_id]
    (sentence,) = status["attention"]
    assert sentence.startswith(f"1 commit job failed ({turn.turn_id}): the clock commits such a turn within a minute")
