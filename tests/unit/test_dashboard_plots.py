"""The plots of the dashboard, number by number (OP-4)."""

import re

import pytest

from turnledger.checkpoint.tally import Minute, _quantile
from turnledger.workers.dashboard.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    age,
    commit_waits,
    commits_a_second,
    duration,
    figure,
)

FIRST = 29_674_080  # a whole hour


def _hour(*turns: int) -> list[Minute]:
    return [
        Minute(FIRST + place, number, 0.2 if number else None, 1.6 if number else None)
        for place, number in enumerate(turns)
    ]


def _points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_the_rate_of_each_minute_is_in_its_place() -> None:
    """The highest below the top, none at the floor, and the minute that is not over is left out (OP-4)."""
    plot = commits_a_second(_hour(0, 600, 300, 9_999))
    (_, area), (_, line) = plot.lines
    assert [y for _, y in _points(line)] == [HEIGHT - BOTTOM, TOP, (HEIGHT - BOTTOM + TOP) / 2]
    assert [tick.label for tick in plot.rows] == ["0", "5", "10"]
    assert [spot.label for spot in plot.spots] == ["00:00 UTC · 0/s", "00:01 UTC · 10/s", "00:02 UTC · 5/s"]
    assert plot.now == [("line", "5/s")]
    assert area.endswith("Z")


def test_everything_stays_within_the_drawing() -> None:
    """Whatever was committed (OP-4)."""
    for hour in (_hour(*[0] * 60), _hour(*range(60)), _hour(*[10**9] * 60)):
        for plot in (commits_a_second(hour), commit_waits(hour)):
            for _, path in plot.lines:
                assert all(LEFT <= x <= WIDTH and TOP <= y <= HEIGHT - BOTTOM for x, y in _points(path))
            assert len(plot.spots) == 59
            assert [tick.label for tick in plot.columns] == ["00:00", "00:15", "00:30", "00:45"]


@pytest.mark.parametrize("minute", range(15))
def test_no_time_below_a_plot_is_cut_at_its_edge(minute: int) -> None:
    """In whichever minute the hour ends; a time such as 23:45 is 30 wide (OP-4)."""
    hour = _hour(*[1] * 75)[minute : minute + 60]
    for plot in (commits_a_second(hour), commit_waits(hour)):
        assert len(plot.columns) in (3, 4)
        assert all(LEFT - 15 <= tick.at <= WIDTH - 15 for tick in plot.columns)


def test_a_minute_without_commits_breaks_the_lines_of_waits() -> None:
    """Nothing waited no time (OP-4)."""
    plot = commit_waits(_hour(5, 0, 5, 5, 1))
    for _, path in plot.lines:
        assert path.count("M") == 2
    assert plot.spots[1].label == "00:01 UTC · no commits"
    assert plot.now == [("line", "half within 200 ms"), ("line second", "95 % within 1.6 s")]


def test_before_the_first_commit_there_is_an_empty_plot() -> None:
    """Not an error (OP-4)."""
    assert commit_waits(_hour(0, 0)).now == []
    assert commits_a_second([]).lines[0] == ("area", "")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0"), (0.04, "40 ms"), (1.5, "1.5 s"), (119, "119 s"), (720, "12 min"), (10_800, "3 h"), (864_000, "10 days")],
)
def test_durations_are_told_in_fitting_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_an_age_is_told_in_whole_seconds() -> None:
    assert (age(0.3), age(1.9), age(75.4)) == ("under 1 s", "1 s", "75 s")


def test_figures_are_short() -> None:
    assert [figure(value) for value in (0, 0.4166, 5, 12.4, 1_490.2)] == ["0", "0.42", "5", "12", "1,490"]


def test_quantiles_come_from_the_counts_of_the_waits() -> None:
    """Within a fifth of the truth (OP-4)."""
    waits = [(0, 49), (2, 46), (20, 5)]
    assert _quantile(waits, share=0.5) == 0.002
    assert _quantile(waits, share=0.95) == 0.002
    assert _quantile(waits, share=0.96) == 1.024
    assert _quantile([], share=0.5) is None
