"""Pauses between tries: doubling, bounded, and spread so that workers do not come back together."""

import random
from collections.abc import Iterator


def pauses(*, first_s: float, longest_s: float, random_source: random.Random) -> Iterator[float]:
    """Endless pauses in seconds, each between half of its bound and the whole."""
    bound = first_s
    while True:
        yield bound * random_source.uniform(0.5, 1.0)
        bound = min(bound * 2, longest_s)
