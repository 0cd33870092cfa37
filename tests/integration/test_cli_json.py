"""What `--json` prints has the members that the page of the command line names, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import CommandLine
from tests.docs.test_command_page import PAGE, sections
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turns
from turnledger.checkpoint.budgets import Budgets
from turnledger.store import CallRecord, Message, Replied
from turnledger.workers.alive import SignOfLife
from turnledger.workers.settings import WorkerSettings

LEDGER = (LEAD.agent, LEAD.conversation)
_TABLE = re.compile(r"(?<=\| member \| what it is \|\n\|---\|---\|\n)(?:\|.*\n)*")
# What is inside is somebody else's, or is told elsewhere on the page.
INSIDE = {
    *("agents", "done", "entries[].calls[].arguments", "events[].payload", "events[].content", "steps[].content"),
    *("saved_steps", "stored.entry", "stored.events"),
}


pytestmark = pytest.mark.usefixtures("named_servers")


@pytest.fixture
def lived(stores: Stores, node: Turns) -> str:
    """A ledger with a turn of every kind, and the turn in it whose account has everything."""
    calls = [
        CallRecord("look", {"at": "it"}, "success", kind="read", call_id="c1"),
        CallRecord("send", {"x": 1}, "error", "it did not go"),
    ]
    turn = begin(node, work_key="k1", messages=[Message("m1", "Please fix it", "Ada")])
    turn.complete(
        reply=Replied("I cannot", receipt="r-1"),
        steps=[user("Please fix it")],
        calls=calls,
        set_out_to="fix it",
        reviewer="It landed",
        outcome="blocked",
        blocked_on="a missing grant",
        decision="done",
    )
    stores.drain()
    begin(node, "second", work_key="k2").complete(reply=Replied("Done"))
    begin(node, "third", work_key="k3")
    begin(node, "fourth", work_key="k4").park(reason="authorization")
    Budgets(stores.records).set_limit(1_000, agent="lead")
    return turn.turn_id


def tables(name: str) -> list[set[str]]:
    """The members that a section names, a set for each table of them."""
    section = sections(PAGE.read_text(encoding="utf-8"))[name]
    first_cells = [[row.split(" | ")[0] for row in found[0].splitlines()] for found in _TABLE.finditer(section)]
    return [{member for cell in cells for member in re.findall(r"`([^`]+)`", cell)} for cells in first_cells]


def members(value: Any, at: str = "") -> Iterator[str]:
    """Every member with its path; of a list each of what is in it."""
    if at in INSIDE:
        return
    if isinstance(value, list):
        for each in value:
            yield from members(each, f"{at}[]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            path = f"{at}.{name}".lstrip(".")
            yield path
            yield from members(inner, path)


def assert_as_told(printed: Any, told: set[str]) -> None:
    """Named are all of them but those that only hold others, and nothing more."""
    found = set(members(printed))
    holders = {path for path in found if any(other.startswith((f"{path}.", f"{path}[]")) for other in found)}
    assert found - holders <= told
    assert told <= found


@pytest.mark.parametrize(
    ("words", "table"),
    [
        (("migrate", "--roles"), 0),
        (("acl",), 0),
        (("budget",), 0),
        (("show", *LEDGER), 0),
        (("show", *LEDGER, "--events"), 1),
        (("show", *LEDGER, "--version", "0"), 2),
        (("show", "--turn", "TURN"), 3),
        (("block", *LEDGER, "--task", "x"), 0),
        (("recover", "--drain"), 0),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_each_member_is_explained(
    lived: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], table: int
) -> None:
    """(OP-2)"""
    printed = CommandLine(capsys).run(*(lived if word == "TURN" else word for word in words), "--json").json
    assert_as_told(printed, tables(words[0])[table])


def test_each_member_of_a_sweep_is_explained(lived: str, stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """(OP-2)"""
    stores.redis.hset(stores.keys.record(lived), "ledger", "no ledger")
    for words in (["reconcile", "--dry-run"], ["reconcile"]):
        assert_as_told(CommandLine(capsys).run(*words, "--json").json, tables("reconcile")[0])


def test_each_member_of_a_turn_that_is_queued_again_is_explained(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    """(OP-2)"""
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    assert_as_told(CommandLine(capsys).run("requeue", turn.turn_id, "--json").json, tables("requeue")[0])


def test_each_member_of_a_sign_of_life_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """(OP-2)"""
    monkeypatch.setenv("TURNLEDGER_ALIVE_FOLDER", str(tmp_path))
    with SignOfLife(WorkerSettings()):
        assert_as_told(CommandLine(capsys).run("alive", "--json").json, tables("alive")[0])


def test_each_member_of_a_replay_is_explained(
    stores: Stores, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Standard output is one object, although progress was shown (OP-2)."""
    file = tmp_path / "chats.jsonl"
    file.write_text('{"id": "a", "messages": [{"role": "user", "content": "hello"}]}')
    ended = CommandLine(capsys).run("replay", str(file), "--json")
    assert ended.code == 0, ended
    assert_as_told(ended.json, tables("replay")[0])
