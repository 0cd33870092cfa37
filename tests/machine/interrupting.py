"""What may happen while a call is between two systems: its process dies, or others go on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tests.machine import acting, draining, starting, trouble
from tests.machine.example import TROUBLE, Example
from tests.machine.faults import die
from tests.machine.world import Node

Meanwhile = Literal[
    "it dies", "it is cut off from redis", "it loses postgres", "its turn is taken up", "its work is done elsewhere",
    "others complete", "workers commit", "the clock sweeps", "the reconciler sweeps", "redis fails over",
    "redis is flushed",
]  # fmt: skip
WHILE_LEDGERS_ARE_LOCKED: tuple[Meanwhile, ...] = ("it dies", "it is cut off from redis", "redis fails over")
LEDGERS_ARE_LOCKED = ("commit.locked", "commit.read", "commit.written")


@dataclass(frozen=True)
class Interruption:
    """What happens when a crash point is reached for the nth time."""

    point: str
    meanwhile: Meanwhile
    passes: int


def arm(example: Example, interruption: Interruption) -> None:
    """Let it happen, once."""
    point, meanwhile = interruption.point, interruption.meanwhile
    if point in LEDGERS_ARE_LOCKED and meanwhile not in WHILE_LEDGERS_ARE_LOCKED:
        meanwhile = "it dies"
    happening = _HAPPENINGS[meanwhile]

    def happen() -> None:
        example.note_interruption()
        example.tally[f"at {point}: {meanwhile}"] += 1
        happening(example)

    example.world.interruptions.arm(point, passes=interruption.passes, action=happen)


def _other_node(example: Example) -> Node:
    return example.node(example.caller.number + 1)


def _is_taken_up(example: Example) -> None:
    turn = example.subject
    if turn is not None:
        draining.lapse(example, turn)
        starting.resume(example, _other_node(example), turn)


def _is_done_elsewhere(example: Example) -> None:
    turn = example.subject
    if turn is None:
        return
    node = _other_node(example)
    starting.start(example, node, ledger=turn.ledger, work_key=turn.work_key, message="")
    newest = list(example.model.turns.values())[-1]
    for handle in newest.handles:
        acting.complete(example, handle, reach="replied", letters="a")


def _others_complete(example: Example) -> None:
    for handle in example.model.handles:
        if handle.of is not example.subject and handle.attempt is None and handle.process is not example.caller.process:
            acting.complete(example, handle, reach="replied", letters="a")


def _as_worker(action: Callable[[Example], None]) -> Callable[[Example], None]:
    def act(example: Example) -> None:
        whole = example.world.worker.seat.is_whole
        try:
            action(example)
        except TROUBLE:
            assert not whole, "trouble in calm"

    return act


_HAPPENINGS: Mapping[Meanwhile, Callable[[Example], None]] = {
    "it dies": lambda _: die(),
    "it is cut off from redis": lambda example: trouble.befall(example.caller.seat, "redis is cut off"),
    "it loses postgres": lambda example: trouble.befall(example.caller.seat, "postgres is down"),
    "its turn is taken up": _is_taken_up,
    "its work is done elsewhere": _is_done_elsewhere,
    "others complete": _others_complete,
    "workers commit": _as_worker(lambda example: draining.work(example, jobs=2)),
    "the clock sweeps": _as_worker(lambda example: example.world.worker.sweep()),
    "the reconciler sweeps": _as_worker(draining.reconcile),
    "redis fails over": lambda example: trouble.redis_loses(example, "fails over", pick=0),
    "redis is flushed": lambda example: trouble.redis_loses(example, "is flushed", pick=0),
}
