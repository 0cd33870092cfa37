"""Processes that die together, at one instant: what systemd, Kubernetes and the OOM killer do to a service.

In a cgroup of version 2 where one can be made (as root, on most machines); elsewhere all processes of the pool are
stopped first and killed then, which is as close as signals come.
"""

import os
import signal
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# A shell would do; this one needs nothing but the Python that runs the tests. It enters the group, then is the command.
ENTER = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class Group(ABC):
    """Processes that are killed at once."""

    kind: str

    @abstractmethod
    def entering(self) -> list[str]:
        """Arguments of Python that come before those of a command which is to run in the group."""

    @abstractmethod
    def kill(self, leader: int) -> None:
        """SIGKILL the leader and everything it started."""


class ControlGroup(Group):
    """The kernel's own; it kills whoever is in it, forks in progress included."""

    kind = "cgroup.kill"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entering(self) -> list[str]:
        return ["-c", ENTER, str(self.folder / "cgroup.procs")]

    def kill(self, leader: int) -> None:
        (self.folder / "cgroup.kill").write_text("1")


class Signals(Group):
    """None of them sees another one die."""

    kind = "SIGSTOP and SIGKILL to each, for want of a cgroup"

    def entering(self) -> list[str]:
        return []

    def kill(self, leader: int) -> None:
        family = [leader, *(child.pid for child in psutil.Process(leader).children(recursive=True))]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process_id in family:
                with suppress(ProcessLookupError):
                    os.kill(process_id, number)


@contextmanager
def group() -> Iterator[Group]:
    """A group without processes; they must be gone when the block ends."""
    folder = _make()
    if folder is None:
        yield Signals()
        return
    try:
        yield ControlGroup(folder)
    finally:
        _remove(folder)


def _make() -> Path | None:
    for root in _hierarchies():
        folder = root / f"turnledger-test-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir()
        except OSError:  # not root, or mounted to be read
            continue
        if (folder / "cgroup.kill").exists():
            return folder
        folder.rmdir()  # a kernel before 5.14
    return None


def _hierarchies() -> list[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]


def _remove(folder: Path) -> None:
    """As soon as the kernel has let go of the last of the killed."""
    for _ in range(200):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
    folder.rmdir()
