"""What commands print, whatever stands at the other end: a reader that leaves, a full disk, nothing, a terminal."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turns
from turnledger.store import Replied
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL

COMMAND = [sys.executable, "-m", "turnledger.workers"]
SHOW = ["show", LEAD.agent, LEAD.conversation]
FULL = Path("/dev/full")


@pytest.fixture
def environment(stores: Stores, node: Turns) -> dict[str, str]:
    """Of servers with a committed turn whose text no ASCII terminal can show."""
    begin(node, "Grüße").complete(reply=Replied("日本"), steps=[user("Grüße")])
    stores.drain()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, DATABASE_URL: stores.database_url, REDIS_URL: stores.redis_url, "TERM": "xterm"}


@pytest.mark.parametrize("command", [[*SHOW, "--events"], ["block", *SHOW[1:]]], ids=" ".join)
def test_a_reader_that_leaves_is_no_mistake(environment: dict[str, str], command: list[str]) -> None:
    """As behind `| head -1`; nothing is said, and the code is a shell's own for it (OP-2)."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [*COMMAND, *command], cwd=ROOT, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_disk_that_is_full_is_told_in_one_line(environment: dict[str, str]) -> None:
    """(OP-2)"""
    with FULL.open("w") as full:
        ended = subprocess.run(
            [*COMMAND, "status"], cwd=ROOT, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "turnledger: cannot go on: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_log_that_cannot_be_written_fails_no_commit(environment: dict[str, str], stores: Stores, node: Turns) -> None:
    """The turn is committed, and the worker ends well (OP-7)."""
    turn = begin(node, work_key="k2")
    turn.complete(reply=Replied("Fixed"), steps=[user("Please fix it")])
    environment["TURNLEDGER_LOG_LEVEL"] = "DEBUG"
    with FULL.open("w") as full:
        ended = subprocess.run([*COMMAND, "worker", "--burst"], cwd=ROOT, env=environment, stderr=full, check=False)
    assert ended.returncode == 0
    assert stores.run(turn.turn_id) == "completed"


def test_streams_that_are_closed_keep_nothing_from_being_done(environment: dict[str, str]) -> None:
    """(OP-2)"""
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*closing, *COMMAND, "status"], cwd=ROOT, env=environment, check=False).returncode == 0


def test_a_terminal_that_knows_ascii_alone_gets_escapes(environment: dict[str, str]) -> None:
    """(OP-2)"""
    ascii_alone = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = subprocess.run(
        [*COMMAND, *SHOW], cwd=ROOT, env={**environment, **ascii_alone}, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"Gr\\xfc\\xdfe" in ended.stdout
    assert b"\\u65e5\\u672c" in ended.stdout


def _on_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *command], cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how Linux tells that nobody has the other end any more
        while chunk := os.read(ours, 65_536):
            shown += chunk
    os.close(ours)
    assert process.wait() == 0
    return shown


def test_colours_are_for_terminals_that_want_them(environment: dict[str, str]) -> None:
    """And a narrow one still shows each name and number (OP-2)."""
    assert b"\x1b[" in _on_a_terminal(["status"], environment)
    shown = _on_a_terminal(["status"], {**environment, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "36"})
    assert b"\x1b" not in shown
    assert b"queued rewrites" in shown
    assert "…".encode() not in shown


def test_the_size_of_a_block_stands_on_a_line_of_its_own(environment: dict[str, str]) -> None:
    """Although the block goes into a pipe that ends on the same terminal; into it goes the block alone (OP-2, BL-6)."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "block", *SHOW[1:]], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=theirs
    )
    block, _ = process.communicate()
    os.close(theirs)
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert block.endswith("You replied: 日本".encode())
    assert shown.startswith(b"\r\nblock: ")
