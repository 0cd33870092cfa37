"""How long it took from the end of a fault, or from a death, until nothing was left to do; printed, to be read."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Recovery:
    """Times blocks of one test. The figures of `docs/reference/faults.md` are read from what it prints."""

    def __init__(self, test: str) -> None:
        self._test = test

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Time the block: it begins when the fault ends, or with it where the rest recovers by itself."""
        began = time.monotonic()
        yield
        self.note(f"{what}: {time.monotonic() - began:.2f} s")

    def note(self, words: str) -> None:
        """Print what was measured otherwise."""
        sys.stdout.write(f"MEASURED {self._test}: {words}\n")
