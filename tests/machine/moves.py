"""What the rules of the machine take, described once: hypothesis draws it, and dice throw it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.machine.interrupting import Interruption, Meanwhile

INTERRUPTED_SHARE = 0.3  # of the thrown calls that have crash points: enough of the others have to get somewhere
_MEANWHILE: Sequence[Meanwhile] = get_args(Meanwhile)

Rule = TypeVar("Rule", bound=Callable[..., None])
Need = Callable[[Any], bool]


class Argument(Protocol):
    """The values that one argument of a rule may have."""

    def strategy(self) -> st.SearchStrategy[Any]: ...

    def thrown(self, dice: Random) -> Any: ...


@dataclass(frozen=True)
class OneOf:
    """Each of these as often as the others; one that is named twice, twice as often."""

    options: Sequence[Any]

    def strategy(self) -> st.SearchStrategy[Any]:
        return st.sampled_from(self.options)

    def thrown(self, dice: Random) -> Any:
        return dice.choice(self.options)


@dataclass(frozen=True)
class Newest:
    """A number from 0 to `most`: the lower, the likelier."""

    most: int

    def strategy(self) -> st.SearchStrategy[Any]:
        return st.integers(0, self.most)

    def thrown(self, dice: Random) -> Any:
        return min(int(dice.expovariate(1)), self.most)


@dataclass(frozen=True)
class Letters:
    """Up to `most` of these letters."""

    of: str
    most: int

    def strategy(self) -> st.SearchStrategy[Any]:
        return st.text(self.of, max_size=self.most)

    def thrown(self, dice: Random) -> Any:
        return "".join(dice.choices(self.of, k=dice.randint(0, self.most)))


@dataclass(frozen=True)
class Interrupted:
    """Nothing, or something that happens at one of these crash points, and at which pass."""

    points: Sequence[str]

    def strategy(self) -> st.SearchStrategy[Any]:
        happens = st.builds(
            Interruption,
            point=st.sampled_from(self.points),
            meanwhile=st.sampled_from(_MEANWHILE),
            passes=st.integers(1, 2),
        )
        return st.one_of(st.none(), st.none(), happens)

    def thrown(self, dice: Random) -> Any:
        if dice.random() >= INTERRUPTED_SHARE:
            return None
        return Interruption(
            point=dice.choice(self.points), meanwhile=dice.choice(_MEANWHILE), passes=dice.choice([1, 1, 1, 2])
        )


@dataclass(frozen=True)
class Move:
    """A rule for dice: how often it comes up beside the others, what has to be there first, and what it takes."""

    name: str
    weight: int
    need: Need
    arguments: Mapping[str, Argument]


MOVES: dict[str, Move] = {}


def move(weight: int, *, need: Need | None = None, **arguments: Argument) -> Callable[[Rule], Rule]:
    """Make a method of the machine a rule of hypothesis, and a move of the dice."""

    def decorate(method: Rule) -> Rule:
        MOVES[method.__name__] = Move(method.__name__, weight, need or (lambda _: True), arguments)
        make_rule: Any = rule  # its overloads know no mapping of strategies
        made: Rule = make_rule(**{name: argument.strategy() for name, argument in arguments.items()})(method)
        return precondition(need)(made) if need else made

    return decorate
