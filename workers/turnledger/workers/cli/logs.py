"""Structured logs of the command line: one line an event on standard error, with ids and never with content."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from structlog.typing import EventDict, Processor

from turnledger.store import ENVIRONMENT_PREFIX, read_settings

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class LogSettings(BaseSettings):
    """Where logs go and how many, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    log_level: Level = Field(default="INFO", description="The least important event that is logged.")
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="text for a person, json for a machine; auto: text on a terminal."
    )


def configure_logging(stream: TextIO | None = None) -> None:
    """Send our events, and the warnings of libraries, to standard error or to this stream, as the environment says.

    A line is one write: a pool's processes share one pipe, and their lines stay whole.

    Raises:
        InvalidInput: a log setting is wrong.
    """
    settings = read_settings(LogSettings)
    stream = stream or sys.stderr
    level = getattr(logging, settings.log_level)
    structlog.configure(
        processors=_processors(settings, stream=stream),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Lossy(stream))),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_FirstLines()]
    root.setLevel(max(level, logging.WARNING))


@contextmanager
def logs_into(path: Path) -> Iterator[None]:
    """Let this process log into a file for the length of the block."""
    with path.open("a") as file:
        configure_logging(file)
        try:
            yield
        finally:
            configure_logging()


def send_errors_into(path: Path) -> None:
    """For the rest of this process standard error is this file, if it is there: what a crash prints belongs there too.

    It is never made: when it is gone, so is the process that made it and would remove it.
    """
    with suppress(FileNotFoundError):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, sys.stderr.fileno())
        os.close(file)


def _processors(settings: LogSettings, *, stream: TextIO) -> list[Processor]:
    is_terminal = stream.isatty()
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,  # the job in hand
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_process,
    ]
    if settings.log_format == "text" or (settings.log_format == "auto" and is_terminal):
        return [*common, structlog.dev.ConsoleRenderer(colors=is_terminal)]
    return [*common, structlog.processors.JSONRenderer(ensure_ascii=False)]


def _add_process(_: object, __: str, event: EventDict) -> EventDict:
    event["process"] = os.getpid()
    return event


class _Lossy:
    """A stream whose trouble is nobody's: a full disk, or a reader that is gone, must not fail a commit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class _FirstLines(logging.Handler):
    """Takes records of libraries down to their first line: tracebacks and driver errors may quote content."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().partition("\n")[0]
        error = record.exc_info[0] if record.exc_info else None
        names = {"error": error.__name__} if error else {}
        structlog.get_logger().log(record.levelno, line, logger=record.name, **names)
