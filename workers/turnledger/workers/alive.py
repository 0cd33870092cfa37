"""Signs of life: what a process leaves at each turn of its loop, so that one that hangs is told from one that waits.

They need no server. A worker that waits for a Redis that is away is alive: to start it anew would not help.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from turnledger.store import InvalidInput
from turnledger.workers.settings import WorkerSettings

NOTIFY_SOCKET = "NOTIFY_SOCKET"  # systemd names it to the processes that it watches
_READY = b"READY=1\nWATCHDOG=1"


@dataclass(frozen=True, slots=True)
class Sign:
    """A process of this machine that lives, and for how many seconds it has been silent."""

    process: int
    silent_s: float


class SignOfLife:
    """Leaves the sign of this process: a file's time in `alive_folder`, and a word to systemd where it listens.

    As a block it leaves the first sign, and takes all away at the end. Where nothing asks for signs, none is left.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._folder = settings.alive_folder
        self._socket = os.environ.get(NOTIFY_SOCKET, "")
        self._file: int | None = None  # locked while this process lives, so that a dead one's is known

    def __enter__(self) -> "SignOfLife":
        """Raises InvalidInput when the folder is not there and cannot be made, or takes no file."""
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with _nobody_else_in(self._folder):
                    self._file = os.open(self._path(self._folder), os.O_CREAT | os.O_RDWR, 0o644)
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(
                    f"a process {os.getpid()} of another host leaves its signs in TURNLEDGER_ALIVE_FOLDER "
                    f"({self._folder}); name a folder of this host alone"
                ) from None
            except OSError as error:
                raise InvalidInput(
                    f"no sign of life can be left in TURNLEDGER_ALIVE_FOLDER ({self._folder}): {error.strerror}; "
                    "name a folder that this user may write to, or unset it"
                ) from None
        self.give()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None and self._file is not None:
            self._path(self._folder).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def give(self) -> None:
        """Leave one more."""
        if self._file is not None:
            os.utime(self._file)
        self._notify()

    @staticmethod
    def _path(folder: Path) -> Path:
        return folder / str(os.getpid())

    def _notify(self) -> None:
        if not self._socket:
            return
        address = f"\0{self._socket[1:]}" if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            channel.sendto(_READY, address)


def signs(folder: Path) -> Sequence[Sign]:
    """The last sign of each process that lives, by its id; what the dead left is removed."""
    if not folder.is_dir():
        return []
    with _nobody_else_in(folder):
        found = [_living(path) for path in sorted(folder.iterdir()) if path.name.isdecimal()]
    return [sign for sign in found if sign is not None]


def _living(path: Path) -> Sign | None:
    with suppress(OSError), path.open("rb") as file:
        if _is_held(file.fileno()):
            return Sign(int(path.name), max(time.time() - os.fstat(file.fileno()).st_mtime, 0.0))
        path.unlink()
    return None


@contextmanager
def _nobody_else_in(folder: Path) -> Iterator[None]:
    """A file that its process has made and not locked yet must not be taken for that of a dead one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
