"""Which calls of a turn still wait for an answer, as its steps are saved one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from turnledger.store.errors import InvalidInput
from turnledger.store.steps import Step, check_step


@dataclass(frozen=True, slots=True)
class CallChange:
    """What a batch of steps does to the calls of a turn.

    ``made`` are all ids that it issues, ``opened`` those of them that it leaves without an answer,
    ``closed`` the ids that were open before and are answered now.
    """

    made: frozenset[str]
    opened: frozenset[str]
    closed: frozenset[str]


@dataclass(slots=True)
class OpenCalls:
    """The calls of one turn: every id made so far, and those still without an answer.

    ``check`` changes nothing and costs what the new steps cost, however long the turn is; ``advance``
    takes its result over once the steps are saved. A call id may come again after it was answered:
    vendors do that, and it is another call then.
    """

    made: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, steps: Iterable[Step]) -> OpenCalls:
        """The calls of steps that were saved before, taken as they are."""
        calls = cls()
        for step in steps:
            made = {call.id for call in step.calls}
            calls.made |= made
            calls.open |= made
            calls.open -= {answer.call_id for answer in step.answers}
        return calls

    def check(self, steps: Iterable[Step], *, allow_open: bool, where: str = "steps") -> CallChange:
        """What these steps change. Within one step its calls come before its answers.

        Raises InvalidInput naming step and call for a call id that still waits for an answer, for an
        answer to a call that was never made or is answered already, and, unless ``allow_open``, for a
        call left unanswered, and for what is no Step, or no sound one.
        """
        batch = _Batch(self)
        for index, step in enumerate(steps):
            check_step(step, where=f"{where}[{index}]")
            for call in step.calls:
                if problem := batch.make(call.id):
                    raise _refusal(f"{where}[{index}]", f"makes call {call.id!r}, which {problem}")
            for answer in step.answers:
                if problem := batch.answer(answer.call_id):
                    raise _refusal(f"{where}[{index}]", f"answers call {answer.call_id!r}, which {problem}")
        unanswered = batch.opened | (self.open - batch.closed)
        if unanswered and not allow_open:
            names = ", ".join(map(repr, sorted(unanswered)))
            raise _refusal(where, f"leave call {names} unanswered; save a call together with its answer")
        return CallChange(frozenset(batch.made), frozenset(batch.opened), frozenset(batch.closed))

    def advance(self, change: CallChange) -> None:
        """Take over what ``check`` gave."""
        self.made |= change.made
        self.open -= change.closed
        self.open |= change.opened


class _Batch:
    """The calls and answers of one batch, on top of those before it. Each method names the problem."""

    def __init__(self, before: OpenCalls) -> None:
        self._before = before
        self.made: set[str] = set()
        self.opened: set[str] = set()
        self.closed: set[str] = set()

    def make(self, call_id: str) -> str | None:
        if call_id in self.opened or self._was_open(call_id):
            return "still waits for its answer"
        self.made.add(call_id)
        self.opened.add(call_id)
        return None

    def answer(self, call_id: str) -> str | None:
        if call_id in self.opened:
            self.opened.discard(call_id)
        elif self._was_open(call_id):
            self.closed.add(call_id)
        else:
            known = call_id in self.made or call_id in self._before.made
            return "is answered already" if known else "was never made"
        return None

    def _was_open(self, call_id: str) -> bool:
        return call_id in self._before.open and call_id not in self.closed


def _refusal(where: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{where} {problem}", where=where)
