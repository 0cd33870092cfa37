"""What the library logs where the engine has set nothing up, and where it has."""

import sys

import pytest
from structlog.testing import capture_logs

from turnledger.store.logs import get_logger

log = get_logger(__name__)


def test_without_a_setup_only_warnings_are_told_and_standard_output_stays_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What an engine prints is its own (OP-7)."""
    log.debug("quiet")
    log.info("prompt.size", block_bytes=7)
    log.warning("turn_unsaved", turn_id="t1")
    log.error("turn_rejected", turn_id="t2")
    said = capsys.readouterr()
    assert said.out == ""
    assert "turn_unsaved" in said.err
    assert "t1" in said.err
    assert "turn_rejected" in said.err
    assert "quiet" not in said.err
    assert "prompt.size" not in said.err


def test_a_line_is_written_whole_since_other_threads_print_into_the_same_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-7"""
    writes: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", writes.append)
    log.warning("turn_unsaved", turn_id="t1")
    (written,) = writes
    assert written.endswith("\n")


def test_a_setup_is_followed_also_when_it_comes_later() -> None:
    """Every line, with its fields (OP-7)."""
    with capture_logs() as lines:
        log.info("prompt.size", block_bytes=7)
    assert lines == [{"event": "prompt.size", "block_bytes": 7, "log_level": "info"}]
