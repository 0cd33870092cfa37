"""`python -m tests.model`: explore the protocol exhaustively, and show that breaking any rule of it is caught.

Runs the product's own code, step by step in every order, with crashes, lost requests and failovers. See
docs/explanation/model.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tests.model.running import Outcome, Task, run_all, scenario_task, variant_task
from tests.model.scenarios import SCENARIOS
from tests.model.variants import VARIANTS


def main() -> int:
    """0: all scenarios hold and all variants are caught; 1: not so."""
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    tasks = _tasks(arguments)
    if not tasks:
        console.print(f"nothing is called {arguments.only!r}")
        return 1
    began = time.monotonic()
    outcomes = []
    for outcome in run_all(tasks, processes=arguments.processes):
        outcomes.append(outcome)
        _print(console, outcome, how=arguments.counterexamples)
    return _print_sum(console, outcomes, seconds=time.monotonic() - began)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--only", default="", help="only scenarios and variants with these words in their name")
    parser.add_argument("--bound", choices=["usual", "larger"], default="usual", help="how much may go wrong")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--counterexamples", choices=["moves", "changes"], default="moves", help="what is printed of a broken promise"
    )
    return parser.parse_args()


def _tasks(arguments: argparse.Namespace) -> list[Task]:
    """The slow ones first, so that they do not end alone."""
    scenarios = [scenario_task(scenario, bound=arguments.bound) for scenario in SCENARIOS]
    variants = [variant_task(variant) for variant in VARIANTS]
    return [task for task in (*scenarios, *variants) if arguments.only in task.name]


def _print(console: Console, outcome: Outcome, *, how: str) -> None:
    found = outcome.exploration
    style = "green" if outcome.is_good else "bold red"
    console.print(Text(f"{outcome.verdict:10}", style), outcome.task.name, markup=False)
    console.print(
        f"           {found.states:,} states, {found.moves:,} moves, depth {found.depth}, {found.seconds:.1f} s",
        markup=False,
    )
    if found.violation:
        console.print(f"           in: {outcome.task.scenario.name}", markup=False)
        console.print(f"           {found.violation}", style="yellow", markup=False)
        for line in found.path if how == "changes" else _moves(found.path):
            console.print(f"             {line}", markup=False)


def _moves(path: Sequence[str]) -> list[str]:
    return [f"{number:2} {line}" for number, line in enumerate(line for line in path if not line.startswith(" "))]


def _print_sum(console: Console, outcomes: Sequence[Outcome], *, seconds: float) -> int:
    held = [outcome for outcome in outcomes if outcome.task.expected == "holds"]
    caught = [outcome for outcome in outcomes if outcome.task.expected == "is caught"]
    wrong = [outcome for outcome in outcomes if not outcome.is_good]
    states = sum(outcome.exploration.states for outcome in held)
    console.print(
        f"{len(held)} scenarios, {states:,} states, {sum(outcome.is_good for outcome in held)} hold; "
        f"{len(caught)} variants, {sum(outcome.is_good for outcome in caught)} caught; {seconds:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
