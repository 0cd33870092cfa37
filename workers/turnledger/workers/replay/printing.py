"""How a replay looks: two bars while it runs, and a table at its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from turnledger.workers.cli.output import visible
from turnledger.workers.replay.result import Result
from turnledger.workers.replay.stage import Reached

SHOWN_PROBLEMS = 10


@contextmanager
def progress_bars(screen: Console, *, total: int) -> Iterator[Callable[[Reached], None]]:
    """Two bars for the length of the block, moved by the function it yields."""
    columns = (
        TextColumn("  {task.description:<24}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen) as bars:
        completed = bars.add_task("completed by the nodes", total=total)
        committed = bars.add_task("committed to Postgres", total=total)

        def show(reached: Reached) -> None:
            bars.update(completed, completed=reached.completed)
            bars.update(committed, completed=reached.committed)

        yield show


def result_table(result: Result) -> Table:
    """The numbers, the wrong ones in red."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    table.add_column(style="dim", overflow="fold")
    for name, number, right, meaning in _rows(result):
        table.add_row(name, f"{number:,}", meaning, style=None if right else "bold red")
    for name, figure, meaning in _figures(result):
        table.add_row(name, figure, meaning)
    return table


def print_problems(screen: Console, result: Result) -> None:
    """What exactly is wrong, as far as it fits."""
    for problem in result.problems[:SHOWN_PROBLEMS]:
        screen.print(visible(problem), style="red", markup=False, soft_wrap=True)
    if len(result.problems) > SHOWN_PROBLEMS:
        screen.print(f"... and {len(result.problems) - SHOWN_PROBLEMS:,} more", style="red")


def _rows(result: Result) -> list[tuple[str, int, bool, str]]:
    return [
        ("turns played", result.turns, True, "as the file has them"),
        ("turns completed", result.completed, result.completed == result.turns, "acknowledged to an engine node"),
        ("turns committed", result.committed, result.committed == result.turns, "in Postgres"),
        ("lost", result.lost, not result.lost, "completed, and not in Postgres"),
        ("doubled", result.doubled, not result.doubled, "more than once in Postgres"),
        ("other differences", len(result.problems), not result.problems, "order, numbering, steps, replies, blocks"),
    ]


def _figures(result: Result) -> list[tuple[str, str, str]]:
    rate = "-" if result.turns_per_second is None else f"{result.turns_per_second:,.0f}"
    return [
        ("turns/s", rate, "from the first start to the last commit"),
        ("complete to commit", _milliseconds(result.commit_ms_p50), "p50: half of the turns waited no longer"),
        ("", _milliseconds(result.commit_ms_p99), "p99: 99 of 100 waited no longer"),
    ]


def _milliseconds(number: int | None) -> str:
    return "-" if number is None else f"{number:,} ms"
