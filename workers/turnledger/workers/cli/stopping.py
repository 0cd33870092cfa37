"""How a command ends early: at a signal, or with the process that started it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

PARENT_CHECK_S = 0.5
LAST_GRACE_S = 40.0  # more than the grace that a worker has for what it has in hand

_Handler = Callable[[int, FrameType | None], None]


def on_stop(handler: _Handler) -> None:
    """Call this at SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def unwind_on_stop() -> None:
    """At SIGINT, SIGTERM and SIGHUP leave all blocks in order, so that what they started ends; exit 128 + signal."""
    on_stop(_unwind)
    signal.signal(signal.SIGHUP, _unwind)


def end_with(parent: int) -> None:
    """Stop this process, cleanly if it can, when the process that started it is gone (0: never)."""
    if parent:
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def _unwind(number: int, _: FrameType | None) -> None:
    sys.stderr.write("\nInterrupted: what was started is being ended.\n")
    raise SystemExit(128 + number)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
