"""Plays the machine with dice: every move and argument is thrown, and no search looks for more of what it has seen.

Hypothesis' generator keeps to what it has tried; dice throw everything in any order, and meet what needs several
accidents at once.
"""

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tests.machine.machine import Machine
from tests.machine.moves import MOVES
from tests.machine.world import World

STEPS = 45
_TOLD = 24  # characters of a message: what follows names words
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
_MOST_LEFT_OUT = 8  # moves that an example does without, so that others come often


class Throw(NamedTuple):
    """One move with its arguments; calls itself as the machine's method would be called."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass(frozen=True)
class Failure:
    """What does not hold, and the throws that lead there; the same `kind` is most likely the same fault."""

    throws: tuple[Throw, ...]
    error: Exception

    @property
    def kind(self) -> str:
        """Where it was noticed, and how the message begins, without ids: they are others each time."""
        last = traceback.extract_tb(self.error.__traceback__)[-1]
        told = _ID.sub("...", str(self.error))
        return f"{type(self.error).__name__} in {last.name}, line {last.lineno}: {told[:_TOLD]}"

    def __str__(self) -> str:
        steps = "\n".join(f"  {throw}" for throw in self.throws)
        return f"{type(self.error).__name__}: {self.error}\n{steps}"


def throws_of(seed: int, *, steps: int = STEPS) -> list[Throw]:
    """The example of a seed."""
    dice = Random(seed)
    names = list(MOVES)
    left_out = set(dice.sample(names[1:], dice.randint(0, _MOST_LEFT_OUT)))
    moves = [MOVES[name] for name in names if name not in left_out]
    chosen = dice.choices(moves, [each.weight for each in moves], k=steps)
    return [
        Throw(each.name, {name: argument.thrown(dice) for name, argument in each.arguments.items()}) for each in chosen
    ]


def play(world: World, throws: Iterable[Throw]) -> Failure | None:
    """Play these throws, but for those whose need is not met, and see that everything holds, to the end."""
    machine, done = Machine(world), list[Throw]()
    try:
        for throw in throws:
            if MOVES[throw.name].need(machine):
                done.append(throw)
                getattr(machine, throw.name)(**throw.arguments)
                machine.everything_holds()
        machine.finish()
    except Exception as error:  # noqa: BLE001  # whatever an engine would see and nobody foresaw
        return Failure(tuple(done), error)
    return None


def play_seeds(world: World, seeds: Sequence[int], *, steps: int = STEPS) -> dict[int, Failure]:
    """Play the examples of these seeds; the failures by seed."""
    played = ((seed, play(world, throws_of(seed, steps=steps))) for seed in seeds)
    return {seed: failure for seed, failure in played if failure is not None}
