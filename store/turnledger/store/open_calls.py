"""Which calls of a turn still wait for an answer, as its steps are saved one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from turnledger.store.errors import InvalidInput
from turnledger.store.steps import Step


@dataclass(frozen=True, slots=True)
class CallChange:
    """What a batch of steps adds to the calls of a turn: ids newly made, and ids answered."""

    made: frozenset[str]
    answered: frozenset[str]


@dataclass(slots=True)
class OpenCalls:
    """The calls of one turn: every id made so far, and those still without an answer.

    ``check`` changes nothing and costs what the new steps cost, however long the turn is; ``advance``
    takes its result over once the steps are saved.
    """

    made: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, steps: Iterable[Step]) -> OpenCalls:
        """The calls of steps that were saved before, taken as they are."""
        calls = cls()
        for step in steps:
            made = frozenset(call.id for call in step.calls)
            calls.advance(CallChange(made, frozenset(answer.call_id for answer in step.answers)))
        return calls

    def check(self, steps: Iterable[Step], *, allow_open: bool, where: str = "steps") -> CallChange:
        """What these steps add. Within one step its calls come before its answers.

        Raises InvalidInput naming step and call for a call id made twice, for an answer to a call that
        was never made or is answered already, and, unless ``allow_open``, for a call left unanswered.
        """
        made: set[str] = set()
        answered: set[str] = set()
        for index, step in enumerate(steps):
            for call in step.calls:
                if call.id in self.made or call.id in made:
                    raise _refusal(f"{where}[{index}]", f"makes call {call.id!r}, which was made before")
                made.add(call.id)
            for answer in step.answers:
                if problem := self._problem(answer.call_id, made=made, answered=answered):
                    raise _refusal(f"{where}[{index}]", f"answers call {answer.call_id!r}, which {problem}")
                answered.add(answer.call_id)
        unanswered = (self.open | made) - answered
        if unanswered and not allow_open:
            names = ", ".join(map(repr, sorted(unanswered)))
            raise _refusal(where, f"leave call {names} unanswered; save a call together with its answer")
        return CallChange(frozenset(made), frozenset(answered))

    def advance(self, change: CallChange) -> None:
        """Take over what ``check`` gave."""
        self.made |= change.made
        self.open |= change.made
        self.open -= change.answered

    def _problem(self, call_id: str, *, made: set[str], answered: set[str]) -> str | None:
        if call_id not in made and call_id not in self.made:
            return "was never made"
        if call_id in answered or (call_id not in made and call_id not in self.open):
            return "is answered already"
        return None


def _refusal(where: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{where} {problem}", where=where)
