"""The actors of the model: lists of operations, each a call of the product, and how they take their steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.execution import Answer, Execution, Fault, Kind, Paused, Report, Stores
from tests.model.postgres_model import Tables
from tests.model.product import Held, Product
from tests.model.redis_model import Frozen, Item, Keyspace
from turnledger.store import TurnledgerError

Guard = Callable[[Keyspace, Callable[[], Held]], bool]


class Actor:
    """What an operation works with: the product, what this actor holds, and the ear of the invariants."""

    def __init__(self, product: Product, *, held: Held, execution: Execution) -> None:
        self.product = product
        self.held = held
        self._execution = execution

    def report(self, what: str, turn_id: str, detail: Any = None) -> None:
        """Tell the invariants what just happened."""
        self._execution.report(Report(what, turn_id, detail))


@dataclass(frozen=True)
class Operation:
    """One call of the product. It begins once `guard` holds. An error of ours ends it, and unless the actor `goes_on`
    all else that it would do."""

    name: str
    run: Callable[[Actor], None]
    guard: Guard | None = None
    goes_on: bool = False


@dataclass(frozen=True)
class Program:
    """An actor's name and what it does. `faults` are those that its own steps may meet."""

    name: str
    operations: tuple[Operation, ...]
    faults: frozenset[Fault] = frozenset()
    crashes: bool = True


class Local(NamedTuple):
    """Where an actor stands: before which step of which operation, and what it knows.

    `waits_for` is None when it has nothing left to do. `ended` says why, where it is not that all is done.
    """

    operation: int
    frozen: bytes
    answers: tuple[Answer, ...] = ()
    waits_for: Kind | None = None
    label: str = ""
    holds_lock: bool = False
    ended: str = ""
    unwritten: Tables | None = None


class Step(NamedTuple):
    """What one step did. What it did to Redis depends on nothing there but the keys that it `touched`."""

    local: Local
    redis: Frozen
    tables: Tables
    reports: tuple[Report, ...]
    label: str
    touched: tuple[str, ...]
    changes: Mapping[str, Item | None]


class Machine:
    """Moves actors: each step is a function of the actor's place and of the one store that it asks."""

    def __init__(self, product: Product, programs: Sequence[Program], *, numbered_from: int = 1) -> None:
        self.product = product
        self.programs = programs
        self._numbered_from = numbered_from

    def begin(self, number: int) -> Local:
        """The actor before its first step."""
        return self._run_on(number, operation=0, held=Held(), reports=[])

    def step(self, number: int, local: Local, stores: Stores) -> Step:
        """Take the actor's next step."""
        reports = [] if local.answers else [Report("begins", self.programs[number].operations[local.operation].name)]
        before = stores.tables
        execution = self._execution(number, local, stores)
        after = self._attempt(number, local, execution=execution, reports=reports)
        written = stores.tables.events[len(before.events) :]
        replaced = [event for event in written if event.type in ("compaction", "handoff")]
        reports += [Report("replaced history after", str(event.turn_id), self._owner(local)) for event in replaced]
        keyspace = execution.keyspace
        touched = () if keyspace is None else tuple(sorted(keyspace.touched))
        changes = {} if keyspace is None else keyspace.changes()
        return Step(after, stores.redis, stores.tables, tuple(reports), execution.label, touched, changes)

    def is_enabled(self, number: int, local: Local, redis: Frozen) -> bool:
        """Whether the actor's next operation may begin, or has begun."""
        guard = None if local.answers else self.programs[number].operations[local.operation].guard
        return guard is None or guard(Keyspace(redis), lambda: self.product.thaw(local.frozen))

    def _owner(self, local: Local) -> str:
        turn = self.product.thaw(local.frozen).turn
        assert turn is not None, "only a holder of a turn replaces history"
        return turn.claim.owner

    def _execution(self, number: int, local: Local, stores: Stores | None) -> Execution:
        tokens = f"{self._numbered_from + number}{local.operation + 1:02d}"
        return Execution(local.answers, stores, tokens, holds_lock=local.holds_lock, unwritten=local.unwritten)

    def _attempt(self, number: int, local: Local, *, execution: Execution, reports: list[Report]) -> Local:
        operation = self.programs[number].operations[local.operation]
        actor = Actor(self.product, held=self.product.thaw(local.frozen), execution=execution)
        self.product.here.execution = execution
        ended = ""
        try:
            operation.run(actor)
        except Paused as pause:
            reports += execution.reports
            return self._paused(local, execution, pause)
        except TurnledgerError as error:
            execution.report(Report("refused", operation.name, type(error).__name__))
            ended = "" if operation.goes_on else type(error).__name__
        reports += execution.reports
        if ended:
            return Local(local.operation, b"", ended=ended)
        return self._run_on(number, operation=local.operation + 1, held=actor.held, reports=reports)

    def _paused(self, local: Local, execution: Execution, pause: Paused) -> Local:
        return local._replace(
            answers=(*local.answers, *execution.given),
            waits_for=pause.kind,
            label=pause.label,
            holds_lock=execution.holds_lock,
            unwritten=execution.unwritten,
        )

    def _run_on(self, number: int, *, operation: int, held: Held, reports: list[Report]) -> Local:
        """Up to the first step of the next operation; one that asks no store is over at once."""
        local = Local(operation, self.product.freeze(held))
        if operation == len(self.programs[number].operations):
            return local._replace(ended="done")
        return self._attempt(number, local, execution=self._execution(number, local, None), reports=reports)
