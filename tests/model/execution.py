"""Runs the product's own code one atomic step at a time.

An actor is a list of operations, each a plain call of the product. What an operation has seen so far (the answer
of every script and statement) determines where it stands: to take one more step it is run again from its
beginning, is told the same answers, and does for real only what comes next. It stops before the step after. So
an actor between two steps is a value, and can be crashed, copied and compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redis.exceptions import ConnectionError as RedisConnectionError

from tests.model.postgres_model import Tables
from tests.model.redis_model import Frozen, Keyspace
from turnledger.store.errors import StoreBusy, StoreUnavailable

Fault = Literal["none", "lost", "unanswered", "busy"]
Kind = Literal["redis", "postgres"]


class Paused(BaseException):
    """The operation stands before a step that it may not take now."""

    def __init__(self, kind: Kind, label: str) -> None:
        super().__init__(kind, label)
        self.kind = kind
        self.label = label


class Raised(NamedTuple):
    """An answer that was an error."""

    name: str

    def error(self) -> Exception:
        """The error that the product sees."""
        if self.name == "redis":
            return RedisConnectionError("the model cut the connection")
        return StoreBusy() if self.name == "busy" else StoreUnavailable()


class Answer(NamedTuple):
    """What one request was answered, and which request it was."""

    label: str
    value: Any


class Report(NamedTuple):
    """What an operation tells the invariants, in the step in which it happened."""

    what: str
    turn_id: str
    detail: Any = None


@dataclass(slots=True)
class Stores:
    """Both stores as one step finds and leaves them; `lock_free`: nobody else holds the ledger's row."""

    redis: Frozen
    tables: Tables
    lock_free: bool = True
    fault: Fault = "none"


@dataclass(slots=True)
class Execution:
    """One run of an operation: answers that are known, then at most one atomic step, then a pause.

    `unwritten` is what an open transaction has made of the tables: nobody else sees it before the commit.
    """

    known: Sequence[Answer]
    stores: Stores | None
    tokens: str
    holds_lock: bool = False
    given: list[Answer] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    label: str = ""
    keyspace: Keyspace | None = None
    unwritten: Tables | None = None
    _position: int = 0
    _token: int = 0
    _used: bool = False
    _before: Tables | None = None

    def next_token(self) -> str:
        """A token that is the same each time the operation is run again."""
        self._token += 1
        return f"{self.tokens}{self._token:03d}"

    def report(self, report: Report) -> None:
        """Tell the invariants, unless this was told when the step was taken."""
        if self._position == len(self.known) and (self._used or self.stores is None):
            self.reports.append(report)

    def redis(self, label: str, change: Callable[[Keyspace], Any], *, now_ms: int | None = None) -> Any:
        """One atomic request to Redis."""
        if (answer := self._known(label)) is not None:
            return _told(answer)
        stores = self._fresh("redis", label)
        self._used, self.label = True, label
        if stores.fault == "lost":
            return self._answer(label, Raised("redis"))
        keyspace = Keyspace(stores.redis) if now_ms is None else Keyspace(stores.redis, now_ms=now_ms)
        reply = change(keyspace)
        self.keyspace = keyspace
        stores.redis = keyspace.freeze()
        return self._answer(label, Raised("redis") if stores.fault == "unanswered" else reply)

    def sql(self, label: str, change: Callable[[Tables], tuple[Tables, Any]]) -> Any:
        """One statement; those of one transaction are one step unless Redis or a lock comes between them."""
        if (answer := self._known(label)) is not None:
            return _told(answer)
        waits = label == "lock_ledger" and not self.holds_lock
        blocked = waits and self.stores is not None and not self.stores.lock_free
        stores = self._statement(label, blocked=blocked)
        if stores.fault == "lost":
            return self._answer(label, Raised("down"))
        if blocked:
            return self._answer(label, Raised("busy"))
        stores.tables, value = change(stores.tables)
        if label == "lock_free_ledgers":
            value = value if stores.lock_free else (value[0], ())
            waits = bool(value[1])
        self.holds_lock = self.holds_lock or waits
        return self._answer(label, value)

    def commit(self) -> None:
        """The end of a transaction; a step of its own where Redis was asked inside."""
        if (answer := self._known("commit")) is not None:
            _told(answer)
            return
        stores = self._statement("commit", blocked=False)
        self._before, self.unwritten, self.holds_lock = None, None, False
        lost = {"lost": "down", "unanswered": "unanswered"}.get(stores.fault)
        self._answer("commit", None if lost is None else Raised(lost))

    def roll_back(self) -> None:
        """A transaction that ended in an error."""
        if self._known("rollback") is not None:
            return
        if self.stores is not None and self._before is not None:
            self.stores.tables = self._before
        self._before, self.unwritten, self.holds_lock = None, None, False
        self._answer("rollback", None)

    def _statement(self, label: str, *, blocked: bool) -> Stores:
        """The stores, where a statement may run now: the transaction's first one begins a step."""
        if self._before is not None and self.stores is not None and not blocked:
            return self.stores
        stores = self._fresh("postgres", label)
        if blocked and stores.fault != "busy":
            self._hide_unwritten()
            raise Paused("postgres", label)
        self._used, self.label, self._before = True, label, stores.tables
        if self.unwritten is not None:
            stores.tables = self.unwritten
        return stores

    def _known(self, label: str) -> Answer | None:
        if self._position == len(self.known):
            return None
        answer = self.known[self._position]
        assert answer.label == label, f"an operation must be repeatable: it asked for {answer.label}, now for {label}"
        self._position += 1
        return answer

    def _fresh(self, kind: Kind, label: str) -> Stores:
        if self.stores is None or self._used:
            self._hide_unwritten()
            raise Paused(kind, label)
        return self.stores

    def _hide_unwritten(self) -> None:
        if self._before is not None and self.stores is not None and self._before is not self.stores.tables:
            self.unwritten, self.stores.tables = self.stores.tables, self._before

    def _answer(self, label: str, value: Any) -> Any:
        answer = Answer(label, value)
        self.given.append(answer)
        return _told(answer)


def _told(answer: Answer) -> Any:
    if isinstance(answer.value, Raised):
        raise answer.value.error()
    return answer.value
