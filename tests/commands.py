"""The command line in the process of a test: the same application, and a tenth of the time that a process takes."""

import json
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from turnledger.workers.cli.app import app

Printed = Callable[[], Any]  # gives what was printed as JSON since the last time


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it printed."""

    code: object
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The one value on standard output; fails when anything else is there."""
        (line,) = self.output.splitlines()
        return json.loads(line)


class CommandLine:
    """Runs commands and keeps nothing of them: no handler of a signal, no configuration of logs."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: str) -> Ended:
        """Run ``turnledger WORDS``, which must end by itself."""
        self._capsys.readouterr()
        with nothing_kept(), pytest.raises(SystemExit) as ended:
            app(list(words), prog_name="turnledger")
        printed = self._capsys.readouterr()
        return Ended(ended.value.code or 0, printed.out, printed.err)


@contextmanager
def nothing_kept() -> Iterator[None]:
    """A command in the block leaves signals and logs of this process as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers = handlers
        root.setLevel(level)
        for number, handler in signals.items():
            signal.signal(number, handler)
