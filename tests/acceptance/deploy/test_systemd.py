"""The systemd units: what they say is right, and each of their commands runs as they give it (OP-5)."""

import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.deploying import ROOT, Stack
from tests.processes import Process, Processes

FOLDER = ROOT / "deploy/systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/turnledger/bin/turnledger"
GRACE_S = 30
BEFORE_READY_S = 60.0

Unit = dict[str, list[str]]


def _read(path: Path) -> Unit:
    """The settings of a unit, each with its values in order; no name of ours stands in two sections."""
    found: Unit = {}
    for line in path.read_text().splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def _name(path: Path) -> str:
    return path.stem.removeprefix("turnledger-").rstrip("@")


@pytest.mark.parametrize("path", SERVICES, ids=_name)
def test_a_unit_is_confined_and_ends_in_time(path: Path) -> None:
    """It may talk to servers and write nothing; a stop waits longer than the grace of the process (OP-5, OP-6)."""
    unit = _read(path)
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert unit[name] == ["yes"], name
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert unit["WantedBy"] == ["turnledger.target"]
    if unit["Type"] == ["oneshot"]:
        return
    assert unit["KillMode"] == ["mixed"]
    assert int(unit["TimeoutStopSec"][0].rstrip("s")) > GRACE_S
    assert unit["StartLimitIntervalSec"] == ["0"]
    recycles = _name(path) in ("worker", "upkeep")
    assert unit["Restart"] == (["always"] if recycles else ["on-failure"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    """With the program where this environment has it (OP-5)."""
    program = Path(sys.executable).with_name("turnledger")
    for path in (*SERVICES, FOLDER / "turnledger.target"):
        name = path.name.replace("@.", "@1.")
        (tmp_path / name).write_text(path.read_text().replace(PROGRAM, str(program)))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line or "turnledger" in line]
    assert said == []
    assert done.returncode == 0


@pytest.fixture
def owner(stack: Stack) -> Iterator[str]:
    """The URL of a login in the owner's role, as docs/how-to/secure-it.md makes one."""
    admin = stack.as_login("migrate", "DATABASE_URL")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE USER deploy PASSWORD 'word' IN ROLE turnledger_owner")
        yield admin.replace(f"turnledger:{stack.variables['ADMIN_PASSWORD']}@", "deploy:word@")
        connection.execute("DROP USER deploy")


def _files(stack: Stack, owner: str) -> dict[str, dict[str, str]]:
    """What is in the EnvironmentFiles."""
    both = ("DATABASE_URL", "REDIS_URL")
    port = {"TURNLEDGER_DASHBOARD_PORT": str(stack.dashboard_port)}
    return {
        "owner": {"TURNLEDGER_DATABASE_URL": owner},
        "worker": {f"TURNLEDGER_{name}": stack.as_login("worker", name) for name in both},
        "dashboard": {f"TURNLEDGER_{name}": stack.as_login("dashboard", name) for name in both} | port,
    }


class _Systemd:
    """Starts units as systemd would, and hears what they tell it."""

    def __init__(self, folder: Path, *, processes: Processes, files: dict[str, dict[str, str]]) -> None:
        self._folder = folder
        self._processes = processes
        self._files = files
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    def start(self, path: Path) -> tuple[Process, socket.socket]:
        unit = _read(path)
        channel = self._open.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        channel.bind(str(self._folder / _name(path)))
        channel.settimeout(BEFORE_READY_S)
        program, *words = shlex.split(unit["ExecStart"][0])
        assert program == PROGRAM
        given = dict(word.split("=", 1) for word in unit["Environment"])
        named = self._files[Path(unit["EnvironmentFile"][0]).stem]
        notify = {"NOTIFY_SOCKET": str(channel.getsockname())} if unit["Type"] == ["notify"] else {}
        return self._processes.command(*words, environment={**given, **named, **notify}), channel


@pytest.fixture
def systemd(stack: Stack, owner: str, tmp_path: Path, processes: Processes) -> Iterator[_Systemd]:
    systemd = _Systemd(tmp_path, processes=processes, files=_files(stack, owner))
    yield systemd
    systemd.close()


def test_each_unit_does_its_work(systemd: _Systemd) -> None:
    """One that is watched says that it is ready, and that it lives; SIGTERM ends each with 0 (OP-5, OP-6)."""
    started = {_name(path): systemd.start(path) for path in SERVICES}
    migrated, _ = started.pop("migrate")
    assert migrated.wait() == 0, migrated.output
    page, _ = started["dashboard"]
    page.wait_for_line("The dashboard is at", seconds=BEFORE_READY_S)
    for name in ("worker", "upkeep", "clock"):
        process, channel = started[name]
        assert channel.recv(100) == b"READY=1\nWATCHDOG=1", process.output
    for process, _ in started.values():
        process.signal(signal.SIGTERM)
    assert {name: process.wait(seconds=GRACE_S) for name, (process, _) in started.items()} == dict.fromkeys(started, 0)


def test_the_watchdog_is_more_patient_than_the_processes() -> None:
    """It kills none that leaves its signs as our settings say (OP-5)."""
    from turnledger.workers.settings import WorkerSettings

    watched = [_read(path)["WatchdogSec"] for path in SERVICES if _read(path)["Type"] == ["notify"]]
    assert watched == [["2min"]] * 3
    assert WorkerSettings().alive_s == 120.0  # the same two minutes
