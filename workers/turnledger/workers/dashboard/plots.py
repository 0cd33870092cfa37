"""Lines over the last hour, as the numbers that a template draws."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnledger.checkpoint.tally import Minute

WIDTH, HEIGHT = 600, 130
LEFT, TOP, BOTTOM = 44, 8, 18  # room for the figures beside and below
HALF_A_TIME = 15  # half the width of such as 23:45, which must not be cut at the edge
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A figure at the edge of a plot, at this place."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Spot:
    """One minute of a plot: where it begins, how wide it is, and what it says in words."""

    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything that a drawing of it needs; `lines` are paths, `now` words, each with the class that colours it."""

    title: str
    now: Sequence[tuple[str, str]]
    lines: Sequence[tuple[str, str]]
    rows: Sequence[Tick]
    columns: Sequence[Tick]
    spots: Sequence[Spot]


def commits_a_second(hour: Sequence[Minute]) -> Plot:
    """Turns committed a second, minute by minute. The minute that is not over is left out: it would always dip."""
    minutes = hour[:-1]
    rates: list[float | None] = [minute.turns / 60 for minute in minutes]
    scale = _Scale(rates, minutes=len(minutes))
    words = [f"{_clock(minute)} · {figure(rate or 0)}/s" for minute, rate in zip(minutes, rates, strict=True)]
    return Plot(
        title="Commits a second",
        now=[("line", f"{figure(rates[-1] or 0)}/s")] if rates else [],
        lines=[("area", scale.area(rates)), ("line", scale.line(rates))],
        rows=scale.rows(figure),
        columns=_columns(minutes, scale),
        spots=_spots(words, scale),
    )


def commit_waits(hour: Sequence[Minute]) -> Plot:
    """From complete to commit: half of the turns waited no longer than the one line, 95 of 100 than the other."""
    minutes = hour[:-1]
    median, long = [minute.median_wait_s for minute in minutes], [minute.long_wait_s for minute in minutes]
    scale = _Scale([*median, *long], minutes=len(minutes))
    words = [f"{_clock(minute)} · {', '.join(_waits(minute)) if minute.turns else 'no commits'}" for minute in minutes]
    last = next((minute for minute in reversed(minutes) if minute.turns), None)
    return Plot(
        title="From complete to commit",
        now=[] if last is None else list(zip(("line", "line second"), _waits(last), strict=True)),
        lines=[("line second", scale.line(long)), ("line", scale.line(median))],
        rows=scale.rows(duration),
        columns=_columns(minutes, scale),
        spots=_spots(words, scale),
    )


class _Scale:
    """Places values and minutes on the drawing; the top is the next round number."""

    def __init__(self, values: Sequence[float | None], *, minutes: int) -> None:
        self.top = _round_up(max((value for value in values if value is not None), default=0.0))
        self.step = (WIDTH - LEFT) / max(minutes, 1)

    def x(self, place: int) -> float:
        return round(LEFT + (place + 0.5) * self.step, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - value / self.top * (HEIGHT - BOTTOM - TOP), 1)

    def line(self, values: Sequence[float | None]) -> str:
        """A path that is broken where there is no value; a lone value is a short dash."""
        parts, before = [], False
        for place, value in enumerate(values):
            if value is not None:
                parts.append(f"{'L' if before else 'M'}{self.x(place)} {self.y(value)}")
                parts += [] if before else ["h0.1"]
            before = value is not None
        return "".join(parts)

    def area(self, values: Sequence[float | None]) -> str:
        """What lies below the line of values without gaps."""
        if not values:
            return ""
        floor = HEIGHT - BOTTOM
        along = "".join(f"L{self.x(place)} {self.y(value or 0)}" for place, value in enumerate(values))
        return f"M{self.x(0)} {floor}{along}L{self.x(len(values) - 1)} {floor}Z"

    def rows(self, label: Callable[[float], str]) -> list[Tick]:
        return [Tick(self.y(value), label(value)) for value in (0.0, self.top / 2, self.top)]


def figure(value: float) -> str:
    """Such as 0.4, 12, or 1,490."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Such as 40 ms, 1.5 s, 12 min, or 3 h."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms" if seconds else "0"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def age(seconds: float) -> str:
    """A duration for which no more than whole seconds matter."""
    return duration(math.floor(seconds)) if seconds >= 1 else "under 1 s"


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(nice * power for nice in _NICE if nice * power >= value * 0.999)


def _waits(minute: Minute) -> tuple[str, str]:
    median, long = minute.median_wait_s or 0.0, minute.long_wait_s or 0.0
    return f"half within {duration(median)}", f"95 % within {duration(long)}"


def _clock(minute: Minute) -> str:
    return f"{minute.number // 60 % 24:02}:{minute.number % 60:02} UTC"


def _columns(minutes: Sequence[Minute], scale: _Scale) -> list[Tick]:
    found = [(place, minute) for place, minute in enumerate(minutes) if minute.number % 15 == 0]
    return [
        Tick(min(scale.x(place), WIDTH - HALF_A_TIME), _clock(minute).removesuffix(" UTC")) for place, minute in found
    ]


def _spots(words: Sequence[str], scale: _Scale) -> list[Spot]:
    return [Spot(round(LEFT + place * scale.step, 1), round(scale.step, 1), label) for place, label in enumerate(words)]
