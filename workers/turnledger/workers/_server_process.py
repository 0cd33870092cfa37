"""One server as a guarded child process: its folder, its port, its lock, its log."""

import fcntl
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from turnledger.store.errors import TurnledgerError
from turnledger.workers import _guard

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
FREE_SECONDS = 15.0
_POLL_SECONDS = 0.01
# Below the ports that systems give to outgoing connections: none of those can take ours during a restart.
_PORTS = range(20_000, 32_000)


class EmbeddedServerFailed(TurnledgerError):
    """An embedded server could not be started."""


@dataclass(frozen=True)
class Program:
    """A command, the signal that stops it cleanly, and the account it runs as (empty: our own)."""

    command: tuple[str, ...]
    stop_signal: int
    account: str = ""


@dataclass
class ServerProcess:
    """A server that runs in ``folder`` and dies with this process.

    At most one server runs in a folder at a time, whoever starts it: the lock belongs to the guard and is
    free again when the server and all its children have ended. The port is kept in the folder, so that it
    stays the same over restarts. The folder ``leftover`` is removed if this process ends without stopping
    the server.
    """

    name: str
    folder: Path
    leftover: Path | None = None
    _guard: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _port: int | None = field(default=None, init=False)

    @property
    def port(self) -> int:
        """The port it runs on, whichever process started it.

        Raises:
            EmbeddedServerFailed: it never ran in this folder.
        """
        if self._port is not None:
            return self._port
        try:
            return int((self.folder / "port").read_text())
        except FileNotFoundError:
            raise EmbeddedServerFailed(f"no {self.name} was ever started in {self.folder}") from None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        """Whether it runs as started by this object."""
        return self._guard is not None and self._guard.poll() is None

    def runs_somewhere(self) -> bool:
        """Whether any process runs it in this folder now."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _locked(lock)
        finally:
            os.close(lock)

    def start(self, prepare: Callable[[], Program], *, ready: Callable[[], bool]) -> None:
        """Run what ``prepare()`` returns, itself called in the locked folder; wait until ``ready()``.

        Raises:
            EmbeddedServerFailed: the folder is in use, or the server ended or was not ready in time.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(self.folder / "lock", name=self.name)
        try:
            self._port = self._port or _kept_port(self.folder / "port")
            program = prepare()
            _wait(lambda: _is_free(self.port), seconds=FREE_SECONDS)
            self._guard = self._spawn(program, lock=lock)
        finally:
            os.close(lock)
        if not _wait(lambda: not self.running or ready(), seconds=START_SECONDS) or not self.running:
            self.kill()
            raise EmbeddedServerFailed(f"{self.name} did not start; the end of {self.log}:\n{self._log_end()}")

    def stop(self) -> None:
        """Shut down cleanly and wait for the end; no effect when it is not running."""
        if self._guard is None:
            return
        self._guard.terminate()
        try:
            self._guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL the server and all its children at once, as a crash would, and wait for the end."""
        if self._guard is None:
            return
        while self.running:
            _kill_children(self._guard.pid)
            time.sleep(_POLL_SECONDS)

    def _spawn(self, program: Program, *, lock: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-I", _guard.__file__, str(os.getpid()), str(program.stop_signal)]
        command += [program.account, str(self.leftover or ""), *program.command]
        with self.log.open("ab") as log:
            # A session of its own keeps Ctrl-C from the server: its users shut down first.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
            )

    def _log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])


def _kill_children(pid: int) -> None:
    import psutil  # comes with the extra `embedded`, as the servers do

    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _take_lock(path: Path, *, name: str) -> int:
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    if _wait(lambda: _locked(lock), seconds=FREE_SECONDS):
        return lock
    os.close(lock)
    raise EmbeddedServerFailed(f"another {name} runs in {path.parent}; stop it, or choose another folder")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kept_port(path: Path) -> int:
    if path.exists() and _is_free(kept := int(path.read_text())):
        return kept
    candidates = random.sample(_PORTS, k=200)
    port = next((port for port in candidates if _is_free(port)), None)
    if port is None:
        raise EmbeddedServerFailed(f"no free port was found on {HOST} between {_PORTS.start} and {_PORTS.stop}")
    path.write_text(str(port))
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _wait(condition: Callable[[], bool], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
