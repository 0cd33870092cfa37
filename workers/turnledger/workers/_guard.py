"""Keeps one server alive exactly as long as the process that asked for it.

Run as a script, with the standard library only::

    python -I _guard.py PARENT_PID STOP_SIGNAL ACCOUNT LEFTOVER COMMAND...

The guard starts COMMAND as ACCOUNT (empty: as itself). SIGTERM to the guard stops the server by STOP_SIGNAL;
the guard ends when the server and all its children have ended. When the parent is gone, however it ended,
the guard stops the server and removes the folder LEFTOVER (empty: nothing). When the guard itself is killed,
Linux stops the server.

A process of its own, since PR_SET_PDEATHSIG of the parent would fire when the *thread* that started the
server ends, and since a pipe to the parent would stay open in every process the parent forks.
"""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PARENT_CHECK_SECONDS = 0.25
STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    parent, stop_signal, account, leftover, *command = arguments
    _set_process_control(_PR_SET_CHILD_SUBREAPER, 1)
    server = _start(command, account=account, stop_signal=int(stop_signal))
    signal.signal(signal.SIGTERM, lambda *_: server.send_signal(int(stop_signal)))
    watched = {"parent": int(parent), "stop_signal": int(stop_signal)}
    threading.Thread(target=_watch_parent, args=[server], kwargs=watched, daemon=True).start()
    code = server.wait()
    _reap_the_rest()
    if leftover and os.getppid() != int(parent):
        _remove(Path(leftover))
    return code if code >= 0 else 128 - code


def _start(command: list[str], *, account: str, stop_signal: int) -> subprocess.Popen[bytes]:
    record = pwd.getpwnam(account) if account else None
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=record.pw_uid if record else None,
        group=record.pw_gid if record else None,
        extra_groups=[] if record else None,
        # Runs after the change of user, which would clear the setting; the guard has one thread by now.
        preexec_fn=lambda: _set_process_control(_PR_SET_PDEATHSIG, stop_signal),  # noqa: PLW1509 - see above
    )


def _set_process_control(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _reap_the_rest() -> None:
    """Wait for the children that a killed server left behind: they came to us, and still use its files."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _watch_parent(server: subprocess.Popen[bytes], *, parent: int, stop_signal: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    server.send_signal(stop_signal)
    time.sleep(STOP_SECONDS)
    server.kill()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # the guard of the other server still has its folder in there, and removes the rest
        folder.parent.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
