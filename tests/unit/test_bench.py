"""What `make bench` says of its goals, and which of its parts a name asks for."""

import io
import sys

import pytest
from rich.console import Console

from tests.bench import __main__ as bench
from tests.bench import recovery
from tests.bench.results import Goal, Report, Result, print_verdict
from turnledger.store.crash_points import CRASH_POINTS


def _result(ratio: float, *, goal: Goal | None) -> Result:
    return Result("figure", ratio, "ms", "peer", 1.0, goal)


def test_a_missed_goal_is_named_and_what_has_none_is_not_counted() -> None:
    """EV-9 and others are judged by a figure that somebody must notice."""
    at_most = Goal("at most", 1.3)
    report = Report("a. Title", "how", [_result(1.3, goal=at_most), _result(1.4, goal=at_most), _result(9, goal=None)])
    screen = Console(file=io.StringIO(), width=120)
    print_verdict(screen, [report])
    said = screen.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert "1 of 2 goals met" in said
    assert said.count("missed: ") == 1
    assert "missed: a. Title: figure against peer: 1.40, goal at most 1.3" in said


@pytest.mark.parametrize(
    ("asked", "measured"),
    [
        ([], list(bench.MEASUREMENTS)),
        (["replay"], ["replay"]),
        (["sweep"], ["sweeping"]),
        (["resume", "draining"], ["draining", "resume"]),
    ],
)
def test_a_part_is_asked_for_by_its_name_or_how_it_begins(
    asked: list[str], measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *asked])
    assert bench.chosen_names() == measured


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "replay", "nosuch"])
    with pytest.raises(SystemExit):
        bench.chosen_names()
    assert "no measurement is called nosuch; there are draining, " in capsys.readouterr().err


def test_workers_are_killed_where_there_are_such_points() -> None:
    """FL-7"""
    assert set(recovery.POINTS) < set(CRASH_POINTS)
