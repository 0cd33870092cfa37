"""One example: the world it plays in, what must be true of it, and how a process's call came out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.machine.faults import Died
from tests.machine.model import Handle, Model, ModelTurn, Standing
from tests.machine.world import Node, World
from turnledger.checkpoint import CheckpointUnavailable
from turnledger.store import StoreBusy, StoreUnavailable, TurnledgerError

TROUBLE = (CheckpointUnavailable, StoreUnavailable, StoreBusy)


class VendorError(Exception):
    """The chat did not take the reply."""


@dataclass(frozen=True)
class Outcome:
    """How a call came out. Calm: no store was away, no answer was lost, and nothing happened in between."""

    calm: bool
    value: Any = None
    error: Exception | None = None
    died: bool = False

    @property
    def kind(self) -> str:
        """In a word."""
        return "died" if self.died else "done" if self.error is None else type(self.error).__name__

    @property
    def succeeded(self) -> bool:
        return self.error is None and not self.died

    def unless(self, *expected: type[Exception]) -> None:
        """Fail on an error that is neither one of these nor trouble in times of trouble."""
        self.only(*(expected if self.calm else (*expected, *TROUBLE)))

    def only(self, *allowed: type[Exception]) -> None:
        """Fail on an error that is none of these, whatever the times."""
        if self.error is not None and not isinstance(self.error, allowed):
            raise AssertionError(f"unexpected {type(self.error).__name__}: {self.error}") from self.error


class Example:
    """What rules and checks work on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.model = Model(world.begin_example())
        self._interruptions = 0
        self.caller = world.nodes[0]
        self.subject: ModelTurn | None = None

    @property
    def tally(self) -> Counter[str]:
        """What has been played so far, over all examples."""
        return self.world.tally

    @property
    def agents(self) -> list[str]:
        return [self.model.agent, f"{self.model.agent}-helper"]

    def node(self, number: int) -> Node:
        return self.world.nodes[number % len(self.world.nodes)]

    def node_of(self, handle: Handle) -> Node:
        return self.world.nodes[handle.process.node]

    def note_interruption(self) -> None:
        """Something happens in the middle of a call."""
        self._interruptions += 1

    def kill(self, node: Node) -> None:
        self.note_interruption()
        self.model.process_dies(node.process)
        node.restart()

    def call(self, node: Node, action: Callable[[], Any], *, what: str, about: ModelTurn | None = None) -> Outcome:
        """Have a node do something; a node that dies of it is there again afterwards, with nothing in its hands."""
        outer, self.caller, self.subject = (self.caller, self.subject), node, about
        try:
            outcome = self._outcome(node, action)
        finally:
            self.caller, self.subject = outer
        self.tally[f"{what}: {outcome.kind}"] += 1
        return outcome

    def call_of(self, handle: Handle, action: Callable[[], Any], *, what: str) -> Outcome:
        """Have the node that holds a turn do something with it."""
        return self.call(self.node_of(handle), action, what=what, about=handle.of)

    def _outcome(self, node: Node, action: Callable[[], Any]) -> Outcome:
        whole, before = node.seat.is_whole, self._interruptions
        try:
            value = action()
        except (TurnledgerError, VendorError) as error:
            return Outcome(whole and before == self._interruptions, error=error)
        except Died:
            self.kill(node)
            return Outcome(calm=False, died=True)
        return Outcome(whole and before == self._interruptions, value=value)

    def judge(self, outcome: Outcome, *, standing: Standing, excuses: tuple[type[Exception], ...] = ()) -> None:
        """A superseded holder must have been refused; an owner, in calm, must not."""
        if outcome.succeeded:
            assert standing is not Standing.SUPERSEDED, "a superseded holder was let through"
        elif outcome.calm and standing is Standing.OWNER and not isinstance(outcome.error, excuses):
            raise AssertionError(f"an owner was refused: {outcome.error}") from outcome.error
