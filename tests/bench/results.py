"""What the measurements found: a table for a person, a file for a program."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

LATEST = Path(".bench") / "latest.json"


@dataclass(frozen=True, slots=True)
class Goal:
    """The bound that a ratio must keep."""

    kind: Literal["at least", "at most"]
    bound: float

    def __str__(self) -> str:
        return f"{self.kind} {self.bound:g}"

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.bound if self.kind == "at least" else ratio <= self.bound


@dataclass(frozen=True, slots=True)
class Result:
    """One figure, and the figure of its peer on the same machine in the same run: `ratio` is the one by the other."""

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        return self.value / self.peer_value

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.goal.met_by(self.ratio)

    @property
    def against(self) -> str:
        return f"{self.peer}: {_short(self.peer_value)} {self.unit}"

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "against": self.against,
            "ratio": _rounded(self.ratio),
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one measurement, and in `how` what was measured and in which way."""

    title: str
    how: str
    results: Sequence[Result]


def print_report(console: Console, report: Report) -> None:
    table = Table(title=report.title, title_justify="left", title_style="bold", expand=False)
    for heading in ("figure", "value", "against", "ratio", "goal", "met"):
        table.add_column(heading, justify="right" if heading in ("value", "ratio") else "left", overflow="fold")
    for result in report.results:
        goal = "" if result.goal is None else str(result.goal)
        value = f"{_short(result.value)} {result.unit}"
        table.add_row(result.name, value, result.against, f"{result.ratio:.2f}", goal, _verdict(result.met))
    console.print(table)
    console.print(Text(report.how, style="dim"))
    console.print()


def print_verdict(console: Console, reports: Iterable[Report]) -> None:
    """How many of the goals are met, and which are not."""
    judged = [(report, result) for report in reports for result in report.results if result.met is not None]
    missed = [(report, result) for report, result in judged if not result.met]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} goals met", highlight=False)
    for report, result in missed:
        line = f"missed: {report.title}: {result.name} against {result.peer}: {result.ratio:.2f}, goal {result.goal}"
        console.print(Text(line, style="bold red"))


def write_results(reports: Iterable[Report], *, path: Path = LATEST) -> None:
    """Replace the file by a list of `{name, value, unit, against, ratio, goal, met}`."""
    rows = [result.as_json() for report in reports for result in report.results]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _verdict(met: bool | None) -> Text:  # noqa: FBT001  # it is shown, it switches nothing
    if met is None:
        return Text("")
    return Text("yes", style="green") if met else Text("NO", style="bold red")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded(value: float) -> float:
    return round(value, 1 if value >= 100 else 4)
