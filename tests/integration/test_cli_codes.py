"""Each command ends in the exit codes that its page names, with and without `--json`."""

from pathlib import Path

import pytest

from tests.commands import CommandLine, Ended
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Replied
from turnledger.workers.alive import SignOfLife
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.settings import WorkerSettings

NOBODY = "127.0.0.1:1"
NO_POSTGRES, NO_REDIS = f"postgresql://x@{NOBODY}/x", f"redis://{NOBODY}/0"
SHOW = ["show", LEAD.agent, LEAD.conversation]
BLOCK = ["block", LEAD.agent, LEAD.conversation]
ONCE = [
    ["migrate"],
    ["acl"],
    ["alive"],
    ["wire"],
    ["budget"],
    ["status"],
    ["doctor"],
    SHOW,
    [*SHOW, "--events"],
    [*SHOW, "--version", "0"],
    ["show", "--turn", "t1"],
    BLOCK,
    [*BLOCK, "--task", "x"],
    ["requeue", "t1"],
    ["reconcile"],
    ["reconcile", "--dry-run"],
    ["recover"],
    ["recover", "--drain"],
]
RUN_ON = [["worker"], ["worker", "--processes", "2"], ["clock"], ["upkeep"], ["dashboard", "--port", "0"]]
IN_REDIS = [["budget"], ["requeue", "t1"]]
IN_POSTGRES = [each for each in [*ONCE, *RUN_ON] if each not in (["acl"], ["alive"], ["wire"], *IN_REDIS)]


@pytest.fixture(autouse=True)
def _environment(named_servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLEDGER_REDIS_RETRIES", "0")


def _complete(node: Turns) -> Turn:
    turn = begin(node, work_key="k")
    turn.complete(reply=Replied("Fixed"), steps=[user("Please fix it")], decision="done")
    return turn


def _is_told(ended: Ended, *, code: int) -> None:
    """One line on standard error, and nothing on standard output."""
    assert ended.code == code, ended
    assert ended.output == ""
    (line,) = ended.errors.splitlines()
    assert line.startswith("turnledger: ")


def _fails(cli: CommandLine, command: list[str], *, code: int) -> None:
    """In the same way with and without --json, but for `doctor`, whose result is what is wrong."""
    forms = [command] if command in RUN_ON else [command, [*command, "--json"]]
    for words in forms:
        ended = cli.run(*words)
        if command == ["doctor"]:
            assert ended.code == code, ended
            assert ended.errors == ""
            assert "--json" not in words or ended.json["checks"]
        else:
            _is_told(ended, code=code)


def test_0_all_is_well(cli: CommandLine, stores: Stores, node: Turns) -> None:
    """And with --json one object is printed, and nothing else on either stream (OP-2)."""
    turn = _complete(node)
    stores.drain()
    for command in ONCE:
        if command[0] not in ("alive", "doctor", "requeue"):
            words = [turn.turn_id if word == "t1" else word for word in command]
            assert cli.run(*words).code == 0
            ended = cli.run(*words, "--json")
            assert (ended.code, ended.errors) == (0, "")
            assert isinstance(ended.json, dict)


def test_0_a_turn_that_is_queued_again(cli: CommandLine, stores: Stores, node: Turns) -> None:
    """(OP-2)"""
    turn = _complete(node)
    assert cli.run("requeue", turn.turn_id).code == 0
    assert cli.run("requeue", turn.turn_id, "--json").json["queued"] is True


def test_1_a_turn_that_needs_a_person(cli: CommandLine, stores: Stores, node: Turns) -> None:
    """It is the result that says so, on standard output (OP-2)."""
    turn = begin(node)
    turn.park(reason="authorization")
    stores.redis.hset(stores.keys.record(turn.turn_id), "ledger", "no ledger")
    found = cli.run("reconcile", "--json")
    assert (found.code, found.json["reported"]) == (1, 1)
    assert cli.run("doctor", "--json").code == 1
    status = cli.run("status", "--json")
    assert (status.code, len(status.json["attention"]), status.errors) == (1, 1, "")


def test_1_no_process_is_alive(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one's own does (OP-2, OP-5)."""
    monkeypatch.setenv("TURNLEDGER_ALIVE_FOLDER", str(tmp_path))
    assert cli.run("alive", "--json").json == {"alive": False, "signs": []}
    assert cli.run("alive").code == 1
    with SignOfLife(WorkerSettings()):
        assert cli.run("alive").code == 0


def test_1_a_database_without_our_schema(
    cli: CommandLine, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(OP-2, CK-15)"""
    monkeypatch.setenv(DATABASE_URL, empty_database_url)
    for command in IN_POSTGRES:
        if command != ["migrate"]:
            _fails(cli, command, code=1)


def test_1_a_user_whom_redis_refuses(cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-2)"""
    monkeypatch.setenv(REDIS_URL, stores.redis_url.replace("//", "//somebody:wrong@"))
    for command in (*IN_REDIS, ["doctor"], ["worker"], ["clock"]):
        _fails(cli, command, code=1)


def test_1_a_database_that_is_not_there(cli: CommandLine, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-2)"""
    monkeypatch.setenv(DATABASE_URL, stores.database_url + "_not")
    _fails(cli, ["migrate"], code=1)


def test_2_a_setting_that_cannot_be_used(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-2, RT-1)"""
    monkeypatch.setenv("TURNLEDGER_LOG_LEVEL", "LOUD")
    for command in (*ONCE, *RUN_ON, ["up"], ["demo"], ["replay", "x"]):
        _is_told(cli.run(*command), code=2)


NOT_VALID = (
    ["alive", "--json"],
    [*SHOW, "--json"],
    [*SHOW, "--events", "--json"],
    [*SHOW, "--version", "0", "--json"],
    ["show", "--turn", "unknown", "--json"],
    ["show", "--turn", "no id", "--json"],
    ["block", "lead", "no key", "--json"],
    ["requeue", "unknown", "--json"],
    ["budget", "--tokens", "many", "--deployment", "--json"],
    ["worker", "--queue", "nobody"],
    ["dashboard", "--host", "0.0.0.0"],
    ["replay", "/nowhere/chats.jsonl", "--json"],
    ["up", "--folder", "/dev/null/x"],
)


def test_2_what_is_not_there_or_not_valid(cli: CommandLine) -> None:
    """(OP-2)"""
    for command in NOT_VALID:
        _is_told(cli.run(*command), code=2)


def test_2_wrong_usage_is_answered_with_the_usage(cli: CommandLine) -> None:
    """On standard error; --json changes nothing about it (OP-2)."""
    for name in {each[0] for each in (*ONCE, *RUN_ON, ["up"], ["demo"], ["replay"])}:
        for words in ([name, "--nosuch"], [name, "--nosuch", "--json"]):
            ended = cli.run(*words)
            assert (ended.code, ended.output) == (2, "")
            assert f"Usage: turnledger {name}" in ended.errors


def test_3_a_postgres_that_does_not_answer(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-2)"""
    monkeypatch.setenv(DATABASE_URL, NO_POSTGRES)
    for command in IN_POSTGRES:
        _fails(cli, command, code=3)


WITHOUT_REDIS = (["status"], ["doctor"], ["show", "--turn", "t1"], ["reconcile"], ["recover", "--drain"], *IN_REDIS)


def test_3_a_redis_that_does_not_answer(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """(OP-2)"""
    monkeypatch.setenv(REDIS_URL, NO_REDIS)
    for command in (*WITHOUT_REDIS, ["worker"], ["clock"], ["upkeep"]):
        _fails(cli, command, code=3)


def test_what_postgres_has_is_shown_without_redis(
    cli: CommandLine, stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line on standard error says what is missing; the JSON stands alone (OP-2)."""
    _complete(node)
    stores.drain()
    monkeypatch.setenv(REDIS_URL, NO_REDIS)
    for command in (SHOW, BLOCK):
        ended = cli.run(*command, "--json")
        assert ended.code == 0
        assert isinstance(ended.json, dict)
        assert "not shown" in ended.errors
