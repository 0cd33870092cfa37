"""Starts processes of the project, waits for what they print, kills them, and leaves none behind."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

ROOT = Path(__file__).parents[1]
_MARK = "TURNLEDGER_TEST_PROCESSES"
PATIENCE_S = 60.0  # for what must come, however busy the machine; only a test that fails waits so long


def lives(process: "psutil.Process") -> bool:
    """Whether it runs; what has ended and only waits to be reaped does not."""
    import psutil  # comes with the extra `embedded`

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Process:
    """One started process; all it prints, errors included, is in ``output``, in the order in which it came.

    Output and errors come through a pipe each: what one thread logs must not stand inside a line that another prints.
    """

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._popen = popen
        self._pipes = (popen.stdout, popen.stderr)
        self._lines: list[tuple[IO[str], str]] = []
        self._changed = threading.Condition()
        self._readers = [threading.Thread(target=self._read, args=[pipe], daemon=True) for pipe in self._pipes]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        with self._changed:
            return "".join(line for _, line in self._lines)

    @property
    def output_then_errors(self) -> str:
        """As a terminal shows a command whose last word is on standard error."""
        with self._changed:
            return "".join(line for pipe in self._pipes for origin, line in self._lines if origin is pipe)

    def wait_for_line(self, text: str, *, seconds: float = PATIENCE_S) -> str:
        """Return the first line that contains ``text``; fail when none comes in time or the process ends."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = next((line for _, line in self._lines if text in line), None)
                if found is not None:
                    return found.rstrip("\n")
                left = deadline - time.monotonic()
                if left <= 0 or not any(reader.is_alive() for reader in self._readers):
                    raise AssertionError(f"no line with {text!r} came; the output was:\n{self.output}")
                self._changed.wait(min(left, 0.1))

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL this process alone, as a crash would, and reap it; its children are left to themselves."""
        self._popen.kill()
        self.wait()

    def wait(self, *, seconds: float = PATIENCE_S) -> int:
        """Return the exit code once it has ended by itself; fail when it has not in time."""
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s; the output was:\n{self.output}") from None
        for reader in self._readers:
            reader.join(1.0)  # a child that holds the pipe open must not hold us
        return code

    def close(self) -> None:
        """Let go of its output; call it when no descendant can hold the pipe open any more."""
        for reader, pipe in zip(self._readers, self._pipes, strict=True):
            reader.join()
            pipe.close()

    def _read(self, pipe: IO[str]) -> None:
        for line in pipe:
            with self._changed:
                self._lines.append((pipe, line))
                self._changed.notify_all()


def _is_handed_on(name: str) -> bool:
    return not name.startswith("TURNLEDGER_") or name == "TURNLEDGER_SPOOL_FOLDER"


class Processes:
    """Starts processes; at the end of its ``with`` block these and all their descendants are gone."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """``environment`` is added for every process; of TURNLEDGER_* only the spool is handed on."""
        self._mark = uuid.uuid4().hex
        self._environment = {name: value for name, value in os.environ.items() if _is_handed_on(name)}
        self._environment |= {"PYTHONUNBUFFERED": "1", _MARK: self._mark, **(environment or {})}
        self._started: list[Process] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            process.kill()
        self._kill_descendants()
        for process in self._started:
            process.close()

    def command(
        self, *arguments: str, environment: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> Process:
        """Start ``turnledger ARGUMENTS``; ``within`` are arguments of a Python that becomes it in some other place."""
        return self._start(*within, "-m", "turnledger.workers", *arguments, environment=environment)

    def script(self, path: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        """Start a Python file."""
        return self._start(str(path), *arguments, environment=environment)

    def module(
        self, name: str, *arguments: str, environment: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> Process:
        """Start a module, as ``command`` does."""
        return self._start(*within, "-m", name, *arguments, environment=environment)

    def snippet(self, source: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        """Start Python source text."""
        return self._start("-c", source, *arguments, environment=environment)

    def program(
        self, command: Sequence[str], *, folder: Path = ROOT, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start any program in this folder."""
        popen = subprocess.Popen(
            command,
            cwd=folder,
            env=self._environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(Process(popen))
        return self._started[-1]

    def _start(self, *arguments: str, environment: Mapping[str, str] | None) -> Process:
        return self.program([sys.executable, *arguments], environment=environment)

    def _kill_descendants(self) -> None:
        import psutil  # comes with the extra `embedded`

        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self._mark:
                    process.kill()
            except psutil.Error:
                continue  # it has ended, or is not ours to look at
