"""Makes a failure of the dice small: throws are left out for as long as the same still does not hold."""

import time
from collections.abc import Iterator
from dataclasses import replace

from tests.machine.dice import Failure, Throw, play
from tests.machine.world import World

LIMIT_S = 60.0


def minimised(world: World, failure: Failure, *, limit_s: float = LIMIT_S) -> Failure:
    """A failure of the same kind with fewer throws, as far as the time allows."""
    ends = time.monotonic() + limit_s
    size = max(1, len(failure.throws) // 2)
    while True:
        failure, fewer = _without_parts(world, failure, size=size, ends=ends)
        if time.monotonic() >= ends or (size == 1 and not fewer):
            return _in_peace(world, failure)
        size = size if fewer and size == 1 else max(1, size // 2)


def _without_parts(world: World, failure: Failure, *, size: int, ends: float) -> tuple[Failure, bool]:
    """Left out one part after the other; whether any of them was not needed."""
    first, fewer = 0, False
    while first < len(failure.throws) and time.monotonic() < ends:
        throws = failure.throws
        found = play(world, throws[:first] + throws[first + size :])
        if found is not None and found.kind == failure.kind:
            failure, fewer = found, True
        else:
            first += size
    return failure, fewer


def _in_peace(world: World, failure: Failure) -> Failure:
    """With no interruption that is not needed."""
    for number, calmer in _calmer(failure.throws):
        throws = list(failure.throws)
        throws[number : number + 1] = [calmer]
        found = play(world, throws)
        if found is not None and found.kind == failure.kind and len(found.throws) == len(throws):
            failure = replace(found, throws=tuple(throws))
    return failure


def _calmer(throws: tuple[Throw, ...]) -> Iterator[tuple[int, Throw]]:
    for number, throw in enumerate(throws):
        if throw.arguments.get("meanwhile") is not None:
            yield number, Throw(throw.name, {**throw.arguments, "meanwhile": None})
