"""The steps of a turn that a process holds: as values, in wire form, and which calls are open."""

from collections.abc import Sequence
from typing import NamedTuple

from turnledger.checkpoint.errors import OversizedPayload
from turnledger.checkpoint.task_alone import task_alone
from turnledger.store import Step
from turnledger.store.open_calls import CallChange, OpenCalls
from turnledger.store.steps import decode_step, encode_step


class NewSteps(NamedTuple):
    """Steps that were checked and not yet taken over."""

    steps: tuple[Step, ...]
    wire: tuple[str, ...]
    calls: CallChange


class TurnSteps:
    """Every step of one turn, in order; they are the same ones in both forms."""

    def __init__(self, wire: Sequence[str], *, most_bytes: int, block: str) -> None:
        self.wire = list(wire)
        self.steps = [decode_step(step) for step in wire]
        self.calls = OpenCalls.of(self.steps)
        self._most_bytes = most_bytes
        self._block = block

    def __len__(self) -> int:
        return len(self.steps)

    def checked(self, steps: Sequence[Step], *, calls_may_stay_open: bool, also_sent: str = "") -> NewSteps:
        """The steps, less the turn's block, ready to be sent together with a further text; nothing is taken over.

        Raises:
            InvalidInput: a call is left unanswered, or answered and never made.
            OversizedPayload: more bytes than one call may carry.
        """
        change = self.calls.check(steps, allow_open=calls_may_stay_open)
        kept = tuple(task_alone(step, block=self._block) for step in steps)
        wire = tuple(encode_step(step) for step in kept)
        size = sum(map(byte_size, wire)) + byte_size(also_sent)
        if size > self._most_bytes:
            raise OversizedPayload(
                f"this call would carry {size} bytes, at most {self._most_bytes} are allowed; save in smaller parts"
            )
        return NewSteps(kept, wire, change)

    def accept(self, new: NewSteps) -> None:
        """Take over what `checked` gave."""
        self.steps.extend(new.steps)
        self.wire.extend(new.wire)
        self.calls.advance(new.calls)


def byte_size(text: str) -> int:
    """Its size in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
