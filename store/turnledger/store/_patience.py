"""A connection that gives up a server which says nothing, though its machine still keeps the connection open."""

import time
from collections.abc import Generator
from typing import Any

import psycopg

_NOTHING = 0  # what the driver sends into its generators when it has waited in vain


class PatientConnection(psycopg.Connection[Any]):
    """Closed when the server has said nothing for `patience_s`; None: it may take its time.

    A server that is frozen, or cut off without a word, neither answers nor ends its statement by the timeout it was
    told.
    """

    patience_s: float | None = None

    def wait(self, gen: Generator[Any, Any, Any], *given: Any, **named: Any) -> Any:
        """Raises OperationalError: the server is silent; the connection is closed."""
        if self.patience_s is None:
            return super().wait(gen, *given, **named)
        return super().wait(self._bounded(gen, self.patience_s), *given, **named)

    def _bounded(self, gen: Generator[Any, Any, Any], patience_s: float) -> Generator[Any, Any, Any]:
        heard_at = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready != _NOTHING:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > patience_s:
                    self.close()
                    raise psycopg.OperationalError(f"the server has said nothing for {patience_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
