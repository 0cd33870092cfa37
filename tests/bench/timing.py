"""Timing two sides of a ratio in turns, so that whatever else the machine does hits both."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence

Side = Callable[[], float]


def seconds_of(action: Callable[[], object]) -> float:
    """How long the action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def in_turns(*sides: Side, rounds: int) -> list[list[float]]:
    """Run the sides A, B, A, B, ... and return the figures of each; every round starts with another side."""
    orders = [[(number + place) % len(sides) for place in range(len(sides))] for number in range(rounds)]
    return _run(sides, orders)


def in_order(*sides: Side, rounds: int) -> list[list[float]]:
    """The same for sides of which the second needs what the first has done."""
    return _run(sides, [list(range(len(sides)))] * rounds)


def _run(sides: Sequence[Side], orders: Sequence[Sequence[int]]) -> list[list[float]]:
    gc.collect()
    figures: list[list[float]] = [[] for _ in sides]
    for order in orders:
        for side in order:
            figures[side].append(sides[side]())
    return figures


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], *, share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
