"""What the command line logs, and what it never does."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from turnledger.store import InvalidInput
from turnledger.workers.cli.logs import configure_logging, send_errors_into

SECRET = "a text of a conversation"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)


class _Written(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


def _logged(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_json_line_with_time_level_and_process() -> None:
    """OP-7"""
    stream = io.StringIO()
    configure_logging(stream)
    structlog.get_logger().info("turn_parked", turn_id="t1")
    (line,) = _logged(stream)
    assert line.keys() == {"event", "turn_id", "level", "timestamp", "process"}


def test_a_line_is_written_whole_since_the_processes_of_a_pool_share_one_pipe() -> None:
    """OP-7"""
    stream = _Written()
    configure_logging(stream)
    structlog.get_logger().info("turn_parked", turn_id="t1")
    (written,) = stream.writes
    assert written.endswith("\n")


def test_a_traceback_that_a_library_logs_is_left_out_since_it_may_quote_content() -> None:
    """OP-7"""
    stream = io.StringIO()
    configure_logging(stream)
    library = logging.getLogger("rq.worker")
    error = ValueError(SECRET)
    library.error("job %s failed\n%s", "turn-1", error, exc_info=error)
    (line,) = _logged(stream)
    assert line["event"] == "job turn-1 failed"
    assert line["error"] == "ValueError"
    assert SECRET not in stream.getvalue()


def test_libraries_are_heard_from_warnings_on() -> None:
    stream = io.StringIO()
    configure_logging(stream)
    logging.getLogger("alembic").info("Context impl PostgresqlImpl")
    assert stream.getvalue() == ""


def test_the_level_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLEDGER_LOG_LEVEL", "WARNING")
    stream = io.StringIO()
    configure_logging(stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in _logged(stream)] == ["loud"]


def test_a_person_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLEDGER_LOG_FORMAT", "text")
    stream = io.StringIO()
    configure_logging(stream)
    structlog.get_logger().info("turn_parked", turn_id="t1")
    assert "turn_parked" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_wrong_level_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLEDGER_LOG_LEVEL", "LOUD")
    with pytest.raises(InvalidInput, match="TURNLEDGER_LOG_LEVEL"):
        configure_logging(io.StringIO())


def test_a_child_that_starts_late_does_not_bring_back_the_log_of_a_parent_that_is_gone(tmp_path: Path) -> None:
    """An interrupted replay removes its log; a node that was just being started used to make it again."""
    send_errors_into(tmp_path / "removed.log")
    assert not list(tmp_path.iterdir())
