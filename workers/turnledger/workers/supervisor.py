"""Keeps a number of child processes alive: replaced when they end, after longer pauses when they end early."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnledger.store.logs import get_logger
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

QUICK_DEATH_S = 10.0  # a process that lived shorter did not do its work
LONGEST_PAUSE_S = 30.0
POLL_S = 0.2
NEEDS_REPAIR = frozenset({1, 2})  # the exit codes of a process that a person has to help; see cli.exits
_WELL = frozenset({0, -signal.SIGTERM})  # a process that has not yet begun has nothing to finish


@dataclass(slots=True)
class _Child:
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    started_at: float
    quick_deaths: int = 0
    start_again_at: float = 0.0


class Supervisor:
    """Runs `turnledger` commands as children, each in its place; one SIGTERM to it stops all of them.

    A child that ends with 0 has done its share, and the next one is started at once. One that needs repair is tried
    every 30 s, so that the pool works again by itself once it is repaired. Any other end is a crash: from the second
    quick one on the pause doubles, up to 30 s.
    """

    def __init__(self, commands: Sequence[Sequence[str]], *, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stopped = threading.Event()
        self._children = [_Child(command, _spawn(command), time.monotonic()) for command in commands]

    @property
    def process_ids(self) -> list[int]:
        """The children that run now."""
        return [child.process.pid for child in self._running()]

    def stop(self, *_: object) -> None:
        """Ask everything to end; may be used as a signal handler, any number of times."""
        self._stopped.set()

    def run(self) -> int:
        """Supervise until `stop`, then end the children; 0 when those that ran ended well within the grace."""
        while not self._stopped.wait(POLL_S):
            self.tend()
        return self.end()

    def drain(self) -> int:
        """Wait until the children have ended by themselves, or end them at `stop`; none is replaced.

        0 when all of them ended well: what a crashed one had in hand may still be undone.
        """
        while self._running() and not self._stopped.wait(POLL_S):
            continue
        self.end()
        failed = [child for child in self._children if child.process.returncode not in _WELL]
        for child in failed:
            log.warning("process_ended", **_names(child))
        return 1 if failed else 0

    def tend(self) -> None:
        """Replace the children that have ended and whose pause is over."""
        now = time.monotonic()
        for child in self._children:
            if child.process.poll() is None:
                continue
            if not child.start_again_at:
                self._note_end(child, now)
            if now >= child.start_again_at:
                self._start_again(child, now)

    def end(self) -> int:
        """SIGTERM to all, SIGKILL to those that outlive the grace; 0 when all that ran ended well."""
        running = self._running()
        for child in running:
            child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.grace_s
        codes = [_wait(child, deadline) for child in running]
        return 0 if _WELL.issuperset(codes) else 1

    def _running(self) -> list[_Child]:
        return [child for child in self._children if child.process.poll() is None]

    def _note_end(self, child: _Child, now: float) -> None:
        code = child.process.returncode
        crashed = code != 0 and code not in NEEDS_REPAIR
        quick = crashed and now - child.started_at < QUICK_DEATH_S
        child.quick_deaths = child.quick_deaths + 1 if quick else 0
        pause_s = min(2.0 ** (child.quick_deaths - 1), LONGEST_PAUSE_S) if quick else 0.0
        if code in NEEDS_REPAIR:
            pause_s = LONGEST_PAUSE_S
        child.start_again_at = now + pause_s
        names = {**_names(child), "next_start_in_s": pause_s}
        if code == 0:
            log.info("process_done", **names)
        elif crashed:
            log.warning("process_ended", **names)
        else:
            log.error("process_needs_repair", **names)

    def _start_again(self, child: _Child, now: float) -> None:
        try:
            process = _spawn(child.command)
        except OSError as error:  # no memory, or no process to be had: not for ever
            child.start_again_at = now + LONGEST_PAUSE_S
            log.error("process_not_started", command=" ".join(child.command), reason=str(error))
            return
        child.process, child.started_at, child.start_again_at = process, now, 0.0


def _names(child: _Child) -> dict[str, object]:
    """Which child it was, as the logs and `ps` name it."""
    return {"child": child.process.pid, "command": " ".join(child.command), "exit_code": child.process.returncode}


def _spawn(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A session of its own keeps Ctrl-C from the child: a second signal would end it in the middle of its work."""
    return subprocess.Popen([sys.executable, "-m", "turnledger.workers", *command], start_new_session=True)


def _wait(child: _Child, deadline: float) -> int:
    try:
        return child.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()
        log.error("process_killed", **_names(child), reason="it did not end within the grace")
        return 1
