"""Keeps a number of child processes alive: replaced when they end, after longer pauses when they end early."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from turnledger.workers.settings import WorkerSettings

log = structlog.get_logger(__name__)

QUICK_DEATH_S = 10.0  # a process that lived shorter did not do its work
LONGEST_PAUSE_S = 30.0
POLL_S = 0.2
NEEDS_REPAIR = 1  # the exit code of a process that a person has to help


@dataclass(slots=True)
class _Child:
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    started_at: float
    quick_deaths: int = 0
    start_again_at: float = 0.0


class Supervisor:
    """Runs `turnledger` commands as children, each in its place; one SIGTERM to it stops all of them."""

    def __init__(self, commands: Sequence[Sequence[str]], *, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stopped = threading.Event()
        self._children = [_Child(command, _spawn(command), time.monotonic()) for command in commands]

    @property
    def process_ids(self) -> list[int]:
        """The children that run now."""
        return [child.process.pid for child in self._children if child.process.poll() is None]

    def stop(self, *_: object) -> None:
        """Ask everything to end; may be used as a signal handler."""
        self._stopped.set()

    def run(self) -> int:
        """Supervise until `stop`, then end the children; 0 when all of them ended well within the grace."""
        while not self._stopped.wait(POLL_S):
            self.tend()
        return self.end()

    def tend(self) -> None:
        """Replace the children that have ended and whose pause is over."""
        now = time.monotonic()
        for child in self._children:
            if child.process.poll() is None:
                continue
            if not child.start_again_at:
                self._note_death(child, now)
            if now >= child.start_again_at:
                child.process, child.started_at, child.start_again_at = _spawn(child.command), now, 0.0

    def end(self) -> int:
        """SIGTERM to all, SIGKILL to those that outlive the grace."""
        for child in self._children:
            child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.grace_s
        codes = [_wait(child.process, deadline) for child in self._children]
        return 0 if all(code in (0, -signal.SIGTERM) for code in codes) else 1

    def _note_death(self, child: _Child, now: float) -> None:
        quick = now - child.started_at < QUICK_DEATH_S
        child.quick_deaths = child.quick_deaths + 1 if quick else 0
        pause_s = min(2.0 ** (child.quick_deaths - 1), LONGEST_PAUSE_S) if quick else 0.0
        child.start_again_at = now + pause_s
        log.warning(
            "process_ended", command=child.command[0], exit_code=child.process.returncode, next_start_in_s=pause_s
        )


def _spawn(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "turnledger.workers", *command], start_new_session=True)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int:
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return 1
