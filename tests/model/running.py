"""Explores scenarios and variants, each in a process of its own: a variant breaks the product it runs."""

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.model.editing import Edit, ScriptEdit, apply, editor
from tests.model.exploration import Budget, Exploration
from tests.model.product import Product, make_repeatable
from tests.model.scenarios import Scenario, explore
from tests.model.variants import Variant

Bound = Literal["usual", "larger"]
MOST_STATES = 8_000_000  # about as many as fit into 4 GB


@dataclass(frozen=True)
class Task:
    """A scenario, and how the product is broken for it, if at all."""

    name: str
    scenario: Scenario
    budget: Budget
    edits: tuple[Edit, ...] = ()
    scripts: tuple[ScriptEdit, ...] = ()
    expected: Literal["holds", "is caught"] = "holds"


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    task: Task
    exploration: Exploration

    @property
    def verdict(self) -> str:
        """`holds`, `is caught`, `is broken`, `is missed`, or `is cut off`."""
        if self.exploration.violation:
            return "is caught" if self.task.expected == "is caught" else "is broken"
        if not self.exploration.whole:
            return "is cut off"
        return "holds" if self.task.expected == "holds" else "is missed"

    @property
    def is_good(self) -> bool:
        """Whether it is what was expected."""
        return self.verdict == self.task.expected


def scenario_task(scenario: Scenario, *, bound: Bound) -> Task:
    """The product as it is."""
    return Task(scenario.name, scenario, scenario.larger if bound == "larger" else scenario.budget)


def variant_task(variant: Variant) -> Task:
    """The product with one rule left out."""
    return Task(variant.name, variant.scenario, variant.scenario.budget, variant.edits, variant.scripts, "is caught")


_tasks: list[Task] = []  # what a forked process finds; tasks hold functions, which cannot be sent


def run_all(tasks: Sequence[Task], *, processes: int) -> Iterator[Outcome]:
    """Run every task, each in a fresh process; outcomes come as they are ready."""
    _tasks[:] = tasks
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        for number, exploration in pool.imap_unordered(_run, range(len(tasks)), chunksize=1):
            yield Outcome(tasks[number], exploration)


def _run(number: int) -> tuple[int, Exploration]:
    return number, run_task(_tasks[number])


def run_task(task: Task) -> Exploration:
    """Run one task; this process serves for nothing else afterwards."""
    for edit in task.edits:
        apply(edit)
    product = Product(edit=editor(task.scripts))
    make_repeatable(product.here)
    return explore(task.scenario, product, budget=task.budget, most_states=MOST_STATES)
