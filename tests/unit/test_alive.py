"""Signs of life: left by each process where the settings want them, and read by `turnledger alive` (OP-5)."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnledger.store import InvalidInput
from turnledger.workers.alive import NOTIFY_SOCKET, SignOfLife, signs
from turnledger.workers.cli.alive import run_alive
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.settings import WorkerSettings

STARTS = 500
LEAVES_A_SIGN = """
import sys
from pathlib import Path
from turnledger.workers.alive import SignOfLife
from turnledger.workers.settings import WorkerSettings
with SignOfLife(WorkerSettings(alive_folder=Path(sys.argv[1]))):
    print("left", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where signs are left, and where the command looks for them."""
    monkeypatch.setenv("TURNLEDGER_ALIVE_FOLDER", str(tmp_path / "alive"))
    return tmp_path / "alive"


def _sign(folder: Path | None) -> SignOfLife:
    return SignOfLife(WorkerSettings(alive_folder=folder))


def test_a_process_is_alive_from_its_first_sign_to_its_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before and afterwards nobody lives there (OP-5)."""
    assert run_alive(output="text") == NEEDS_A_PERSON
    with _sign(folder):
        assert run_alive(output="text") == OK
        assert str(os.getpid()) in capsys.readouterr().out
    assert run_alive(output="json") == NEEDS_A_PERSON
    assert json.loads(capsys.readouterr().out) == {"alive": False, "signs": []}
    assert list(folder.iterdir()) == []


def test_a_process_that_is_silent_for_too_long_hangs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until it leaves a sign again (OP-5)."""
    with _sign(folder) as sign:
        long_ago = time.time() - 1_000
        os.utime(folder / str(os.getpid()), (long_ago, long_ago))
        assert run_alive(output="text") == NEEDS_A_PERSON
        assert "has been silent for 100" in capsys.readouterr().out
        sign.give()
        assert run_alive(output="text") == OK


def test_one_that_hangs_is_not_hidden_by_another(folder: Path) -> None:
    """Of several processes in one container (OP-5)."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_SIGN, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"left\n"
        os.utime(folder / str(other.pid), (0, 0))
        with _sign(folder):
            assert {sign.process for sign in signs(folder)} == {other.pid, os.getpid()}
            assert run_alive(output="text") == NEEDS_A_PERSON
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert run_alive(output="text") == OK  # what the dead left does not count, and goes
            assert [path.name for path in folder.iterdir()] == [str(os.getpid())]


def test_where_no_sign_can_be_left_nothing_starts(tmp_path: Path) -> None:
    """It says which setting is to be mended (OP-5)."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="TURNLEDGER_ALIVE_FOLDER"), _sign(tmp_path / "file" / "alive"):
        pass


def test_without_a_folder_there_are_no_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody can tell (OP-5)."""
    monkeypatch.setenv("TURNLEDGER_ALIVE_FOLDER", "")
    with _sign(None) as sign:
        sign.give()
    with pytest.raises(InvalidInput, match="TURNLEDGER_ALIVE_FOLDER is not set"):
        run_alive(output="text")


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_hears_of_each_sign(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it listens, by its own protocol; when it is gone, nothing is disturbed (OP-5)."""
    name = f"@turnledger-{os.getpid()}" if kind == "abstract" else str(tmp_path / "notify")
    monkeypatch.setenv(NOTIFY_SOCKET, name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.settimeout(5.0)
        with _sign(None) as sign:
            assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
            sign.give()
            assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
    sign.give()


def test_one_that_looks_does_not_take_a_starting_process_for_a_dead_one(tmp_path: Path) -> None:
    """However often they meet: its sign would be missing from then on, and it be killed for that (OP-5)."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            signs(tmp_path)

    with ThreadPoolExecutor() as pool:
        looking = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(STARTS):
                with _sign(tmp_path):
                    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]
        finally:
            ended.set()
        for looker in looking:
            looker.result()


def test_the_sign_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    """By the first who looks (OP-5)."""
    (tmp_path / "4711").touch()
    assert signs(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
