"""The engine-node processes of a replay, as the process that started them sees them."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from turnledger.store import TurnledgerError

END_S = 5.0


class Nodes:
    """Processes that play. What they report is tallied by one thread each; read it at any time.

    `turns` holds, by conversation key, the turn_ids whose completion was acknowledged, in order.
    """

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self.turns: dict[str, list[str]] = {}
        self.problems: list[str] = []
        self.completed = 0
        self._ready = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._processes = [_spawn(command) for command in commands]
        self._readers = [self._reader(process) for process in self._processes]

    @property
    def running(self) -> bool:
        """Whether one of them still plays, or has something to tell."""
        return any(reader.is_alive() for reader in self._readers)

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Return when all of them could begin.

        Raises:
            NodeFailed: one ended, or was not ready in time.
        """
        for process in self._processes:
            if not self._ready.acquire(timeout=timeout_s) or process.poll() is not None:
                raise NodeFailed

    def go(self) -> None:
        """Let them begin."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.close()

    def failures(self) -> list[str]:
        """A sentence for each that did not play to its end; to be asked when none is running any more."""
        codes = [process.wait() for process in self._processes]
        return [f"engine node {number} ended with exit code {code}" for number, code in enumerate(codes, 1) if code]

    def end(self) -> None:
        """Kill those that still run: an engine node may die at any time."""
        for process in self._processes:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(END_S)

    def _reader(self, process: subprocess.Popen[str]) -> threading.Thread:
        assert process.stdout is not None
        thread = threading.Thread(target=self._read, args=(process.stdout,), name="node-reader", daemon=True)
        thread.start()
        return thread

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._note(json.loads(line))
        self._ready.release()  # whoever waits for a node that has ended need not wait on

    def _note(self, report: dict[str, str]) -> None:
        if "ready" in report:
            self._ready.release()
            return
        with self._lock:
            self.completed += 1
            self.turns.setdefault(report["key"], []).append(report["turn_id"])
            if report["problem"]:
                self.problems.append(report["problem"])


class NodeFailed(TurnledgerError):
    """An engine node did not begin to play."""


def _spawn(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "turnledger.workers", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
