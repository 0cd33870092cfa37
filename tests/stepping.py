"""Workers in this process that go from one crash point to the next when they are told to, or die there."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from turnledger.checkpoint import commit_point
from turnledger.store import commit
from turnledger.workers import committer
from turnledger.workers.rewriting import fitter

_MODULES = (commit_point, commit, committer, fitter)
_TURN_S = 60.0  # a step that takes longer hangs


class Killed(BaseException):
    """What a worker meets at the crash point where it dies: nothing of ours catches it."""


class SteppedWorker:
    """Runs one call at a time in a thread of its own, and stands still at every crash point."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._call: Callable[[], None] | None = None
        self._order = ""
        self.at: str | None = None
        self.error: BaseException | None = None
        self.busy = False

    def begin(self, call: Callable[[], None]) -> None:
        """Start a call, up to its first crash point or its end."""
        self._call, self.error, self.busy, self.at = call, None, True, None
        threading.Thread(target=self._run, daemon=True).start()
        self._wait()

    def step(self) -> None:
        """Go on to the next crash point, or to the end."""
        self._tell("go")

    def kill(self) -> None:
        """Die where it stands."""
        self._tell("die")

    def finish(self) -> None:
        """Go on to the end."""
        while self.busy:
            self.step()

    def _tell(self, order: str) -> None:
        with self._changed:
            self._order, self.at = order, None
            self._changed.notify_all()
        self._wait()

    def _wait(self) -> None:
        with self._changed:
            moved = self._changed.wait_for(lambda: self.at is not None or not self.busy, _TURN_S)
        assert moved, "a worker hangs"

    def _run(self) -> None:
        assert self._call is not None
        SteppedWorker._of_thread.worker = self
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001  # whatever it is, whoever steps it has to see it
            self.error = error
        with self._changed:
            self.busy = False
            self._changed.notify_all()

    def _arrive(self, name: str) -> None:
        with self._changed:
            self.at, self._order = name, ""
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._order))
            if self._order == "die":
                raise Killed(name)

    @classmethod
    def arrive(cls, name: str) -> None:
        """A crash point: the worker of this thread stands still; other threads go on."""
        worker = getattr(cls._of_thread, "worker", None)
        if worker is not None:
            worker._arrive(name)


@contextmanager
def stepped_crash_points() -> Iterator[None]:
    """For the length of the block, the crash points of commits and rewritings are where stepped workers stand still."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            patch.setattr(module, "crash_point", SteppedWorker.arrive)
        yield
