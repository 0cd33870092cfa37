"""What goes wrong on purpose: a node's line to Redis, its way to Postgres, and a process that dies on the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import Connection as RedisConnection
from redis.connection import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from sqlalchemy import Connection, Engine

from turnledger.store import Database, StoreUnavailable
from turnledger.store.crash_points import CRASH_POINTS, crash_point
from turnledger.store.database import Pace

_SCRIPT_CALLS = ("EVALSHA", "EVAL")


class Line:
    """A process's line to Redis: whole, cut, or about to lose the answer of a script that has run."""

    def __init__(self) -> None:
        self.is_cut = False
        self.answers_to_lose = 0

    @property
    def is_whole(self) -> bool:
        return not self.is_cut and not self.answers_to_lose

    def mend(self) -> None:
        self.is_cut = False
        self.answers_to_lose = 0

    def loses_this_answer(self) -> bool:
        if not self.answers_to_lose:
            return False
        self.answers_to_lose -= 1
        return True


class _LineConnection(RedisConnection):
    """A connection over a line."""

    def __init__(self, *, line: Line, **given: Any) -> None:
        super().__init__(**given)  # type: ignore[no-untyped-call]  # redis-py's
        self._line = line
        self._runs_script = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002  # redis-py's
        if self._line.is_cut:
            self.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
            raise RedisConnectionError("the line is cut")
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]  # redis-py's

    def send_command(self, *arguments: Any, **options: Any) -> None:
        self._runs_script = arguments[0] in _SCRIPT_CALLS
        super().send_command(*arguments, **options)  # type: ignore[no-untyped-call]  # redis-py's

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        answer = super().read_response(*arguments, **options)
        if self._runs_script and self._line.loses_this_answer():
            self.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
            raise RedisConnectionError("the answer was lost")
        return answer


def redis_over(line: Line, url: str) -> Redis:
    """A client that repeats a call once when its connection broke, without waiting."""
    pool = ConnectionPool.from_url(
        url, connection_class=_LineConnection, line=line, decode_responses=True, retry=Retry(NoBackoff(), 1)
    )
    return Redis(connection_pool=pool)


class Link(Database):
    """A process's way to Postgres over connections that all share: open, down, or about to lose a commit's answer."""

    def __init__(self, shared: Database) -> None:
        self.settings = shared.settings
        self.config = shared.config
        self._shared = shared
        self.forget()
        self.is_down = False
        self.commits_to_lose = 0

    @property
    def engine(self) -> Engine:
        return self._shared.engine

    @property
    def is_whole(self) -> bool:
        return not self.is_down and not self.commits_to_lose

    def forget(self) -> None:
        """A new process knows where it works, and not yet which deployment that is."""
        self._home = self._shared.home

    def mend(self) -> None:
        self.is_down = False
        self.commits_to_lose = 0

    @contextmanager
    def transaction(self, *, lock_timeout_ms: int | None = None, pace: Pace = "work") -> Iterator[Connection]:
        self._refuse_when_down()
        with self._shared.transaction(lock_timeout_ms=lock_timeout_ms, pace=pace) as connection:
            yield connection
        if self.commits_to_lose:
            self.commits_to_lose -= 1
            raise StoreUnavailable("the answer to the commit was lost")

    @contextmanager
    def snapshot(self, *, pace: Pace = "work") -> Iterator[Connection]:
        self._refuse_when_down()
        with self._shared.snapshot(pace=pace) as connection:
            yield connection

    def close(self) -> None:
        """The connections are everybody's."""

    def _refuse_when_down(self) -> None:
        if self.is_down:
            raise StoreUnavailable("Postgres is down")


class Died(BaseException):
    """The process ends here, as by SIGKILL: nothing may catch this but who plays the processes."""


class Interruptions:
    """Something that happens when the code under test gets to a crash point: once, at its nth pass."""

    def __init__(self) -> None:
        self._name = ""
        self._passes = 0
        self._action: Callable[[], None] | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand in for the product's own crash points."""
        modules = [module for name, module in sys.modules.items() if name.startswith("turnledger.")]
        patched = [module for module in modules if getattr(module, "crash_point", None) is crash_point]
        for module in patched:
            module.crash_point = self._reached  # type: ignore[attr-defined]  # each imported it by name
        try:
            yield
        finally:
            for module in patched:
                module.crash_point = crash_point  # type: ignore[attr-defined]  # as above

    def arm(self, name: str, *, passes: int, action: Callable[[], None]) -> None:
        assert name in CRASH_POINTS, f"there is no crash point {name}"
        self._name, self._passes, self._action = name, passes, action

    def disarm(self) -> None:
        self._action = None

    @property
    def is_armed(self) -> bool:
        return self._action is not None

    def _reached(self, name: str) -> None:
        if self._action is None or name != self._name:
            return
        self._passes -= 1
        if self._passes > 0:
            return
        action, self._action = self._action, None
        action()


def die() -> None:
    """As SIGKILL does."""
    raise Died
