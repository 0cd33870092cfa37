"""The log of the library: structlog's, as the engine has set that up.

Where nothing is set up, structlog prints every line to standard output, in between what the engine prints itself. A
library must not do that: then only warnings and errors are told, on standard error.
"""

import logging
import sys
from typing import Any, cast

import structlog
from structlog.typing import FilteringBoundLogger


def get_logger(name: str) -> FilteringBoundLogger:
    """The log of a module; what is set up later holds too."""
    return cast("FilteringBoundLogger", _Log(name))


class _Log:
    def __init__(self, name: str) -> None:
        self._as_set_up = structlog.get_logger(name)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._as_set_up if structlog.is_configured() else _warnings_alone(), method)


def _warnings_alone() -> Any:
    """Made anew for each line: standard error may have been put elsewhere since.

    A line is one write: what other threads and processes print into the same pipe stays out of it.
    """
    wrapper = structlog.make_filtering_bound_logger(logging.WARNING)
    return structlog.wrap_logger(structlog.WriteLogger(sys.stderr), wrapper_class=wrapper)
