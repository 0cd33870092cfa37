"""What is explored: who acts, from which beginning, and how much may go wrong on the way."""

from dataclasses import dataclass

from tests.model.actors import Machine, Program
from tests.model.execution import Stores
from tests.model.exploration import Budget, Exploration, Explorer
from tests.model.invariants import Memory, Told
from tests.model.postgres_model import Tables
from tests.model.product import Product
from tests.model.programs import (
    TROUBLE,
    clock,
    compact,
    complete,
    deliver,
    fail,
    node,
    park,
    resume,
    save,
    start,
    submitted_again,
    worker,
)
from tests.model.recovery import Recovery


@dataclass(frozen=True)
class Scenario:
    """`before` have run to their end, one after the other, when the exploration begins.

    `larger` is what may go wrong where there is time for it.
    """

    name: str
    programs: tuple[Program, ...]
    budget: Budget
    larger: Budget
    before: tuple[Program, ...] = ()


def explore(scenario: Scenario, product: Product, *, budget: Budget, most_states: int) -> Exploration:
    """Visit every state of the scenario, or stop at the first broken promise."""
    stores, memory = Stores({}, Tables()), Memory()
    machine = Machine(product, scenario.before, numbered_from=len(scenario.programs) + 1)
    for number in range(len(scenario.before)):
        memory = _run_to_end(machine, number, stores=stores, memory=memory)
    machine = Machine(product, scenario.programs)
    explorer = Explorer(machine, Recovery(product), budget=budget, stores=stores, memory=memory)
    return explorer.run(most_states=most_states)


def _run_to_end(machine: Machine, number: int, *, stores: Stores, memory: Memory) -> Memory:
    local = machine.begin(number)
    name = machine.programs[number].name
    told = memory.told
    while local.waits_for is not None:
        step = machine.step(number, local, stores)
        local, stores.redis, stores.tables = step.local, step.redis, step.tables
        told |= {Told(name, report.turn_id, 1) for report in step.reports if report.what == "completed"}
    return Memory(told=told)


_A = (start("a", work_key="k"), save("A1"), complete("A2"), *submitted_again("a"))
_B = (start("b", work_key="k"), complete("B1"), *submitted_again("b"))
_C = (start("c"), complete("C1"), *submitted_again("c"))
_TAKES_A = (resume("a"), save("B1"), complete("B2"), *submitted_again("a"))
_TAKES_A_TOO = (resume("a"), save("C1"), complete("C2"), *submitted_again("a"))
_REPLACES = (start("a", work_key="k"), save("A1"), compact(), save("A2"), complete("A3"), *submitted_again("a"))
_REPLACES_TOO = (start("b"), save("B1"), compact(), complete("B2"), *submitted_again("b"))

TWO_RUNS = Scenario(
    "two runs of one work key",
    (node("A", *_A, faults=TROUBLE), node("B", *_B, faults=TROUBLE), worker(jobs=2)),
    budget=Budget(crashes=1, faults=1),
    larger=Budget(crashes=2, faults=2),
)
TWO_RUNS_FAILOVER = Scenario(
    "two runs of one work key, and a failover",
    (node("A", *_A), node("B", *_B), worker(jobs=2)),
    budget=Budget(crashes=1, failovers=1, forgotten=2),
    larger=Budget(crashes=1, failovers=1, forgotten=4),
)
THREE_TURNS = Scenario(
    "two runs of one work key and another turn",
    (
        node("A", start("a", work_key="k"), complete("A1")),
        node("B", start("b", work_key="k"), complete("B1")),
        node("C", start("c"), complete("C1")),
        worker(jobs=2),
    ),
    budget=Budget(),
    larger=Budget(crashes=1),
)
_REPEATED = (start("a", work_key="k"), complete("B1"), *submitted_again("a"))
REPEATED_START = Scenario(
    "a start repeated while the first is under way",
    (node("A", *_A, faults=TROUBLE), node("B", *_REPEATED, faults=TROUBLE), worker(jobs=1)),
    budget=Budget(crashes=1, faults=1),
    larger=Budget(crashes=2, faults=1),
)
REPEATED_START_FAILOVER = Scenario(
    "a start repeated, and a failover",
    (node("A", *_A), node("B", *_REPEATED), worker(jobs=1)),
    budget=Budget(crashes=1, failovers=1, forgotten=2),
    larger=Budget(crashes=1, failovers=1, forgotten=4),
)
WHILE_COMMITTING = Scenario(
    "turns that start while others are committed",
    (
        node("A", start("a", work_key="k"), complete("A1")),
        node("B", start("b"), complete("B1")),
        worker(jobs=2),
    ),
    budget=Budget(crashes=1),
    larger=Budget(crashes=2),
    before=(node("Z", start("z", work_key="k2"), complete("Z1")),),
)
TAKE_OVER = Scenario(
    "a turn taken over",
    (node("A", *_A, faults=TROUBLE), node("B", *_TAKES_A, faults=TROUBLE), worker(jobs=1)),
    budget=Budget(crashes=1, failovers=1, faults=1),
    larger=Budget(crashes=1, failovers=1, faults=2),
)
TAKE_OVER_FORGOTTEN = Scenario(
    "a turn taken over, and a failover that forgets it",
    (node("A", *_A), node("B", *_TAKES_A), worker(jobs=1)),
    budget=Budget(crashes=1, failovers=1, forgotten=5),
    larger=Budget(crashes=2, failovers=1, forgotten=8),
)
TWO_TAKE_OVERS = Scenario(
    "a parked turn taken over twice",
    (node("A", start("a"), park()), node("B", *_TAKES_A), node("C", *_TAKES_A_TOO), worker(jobs=1)),
    budget=Budget(failovers=1, forgotten=2),
    larger=Budget(crashes=1, failovers=1, forgotten=4),
)
RESUMED_AFTER = Scenario(
    "a turn resumed after its history was replaced",
    (
        node("A", start("a"), save("A1"), compact(), complete("A2")),
        node("B", start("b"), save("B1"), park()),
        node("C", resume("b"), save("C1"), complete("C2")),
        worker(jobs=1),
    ),
    budget=Budget(),
    larger=Budget(crashes=1),
)
REPLACEMENT = Scenario(
    "history replaced while another turn runs",
    (node("A", *_REPLACES), node("B", start("b"), save("B1"), complete("B2")), worker(jobs=2)),
    budget=Budget(crashes=1),
    larger=Budget(crashes=2),
)
TWO_REPLACEMENTS = Scenario(
    "two turns replace one history",
    (node("A", *_REPLACES), node("B", *_REPLACES_TOO), worker(jobs=2)),
    budget=Budget(),
    larger=Budget(crashes=1),
)
REPLACEMENT_TAKEN_OVER = Scenario(
    "a turn that replaces history, taken over",
    (
        node("A", *_REPLACES),
        node("B", resume("a"), save("B1"), compact(), complete("B2"), *submitted_again("a")),
        worker(jobs=1),
    ),
    budget=Budget(failovers=1, forgotten=2),
    larger=Budget(crashes=1, failovers=1, forgotten=5),
)
COMMITTERS = Scenario(
    "two workers and the clock commit one ledger",
    (worker(jobs=2), worker(jobs=2), clock()),
    budget=Budget(crashes=1),
    larger=Budget(crashes=2),
    before=(node("A", start("a", work_key="k"), complete("A1")), node("B", start("b"), complete("B1"))),
)
DELIVERY = Scenario(
    "a reply delivered, and the turn taken over",
    (node("A", start("a"), deliver("A1")), node("B", resume("a"), deliver("B1")), worker(jobs=1)),
    budget=Budget(crashes=1),
    larger=Budget(crashes=2),
)
FAILURE = Scenario(
    "a run fails and its work is taken up again",
    (node("A", start("a", work_key="k"), fail()), node("B", *_B), node("C", resume("a"), fail()), worker(jobs=1)),
    budget=Budget(crashes=1),
    larger=Budget(crashes=2),
)

SCENARIOS = (
    TWO_RUNS,
    TWO_RUNS_FAILOVER,
    THREE_TURNS,
    REPEATED_START,
    REPEATED_START_FAILOVER,
    WHILE_COMMITTING,
    TAKE_OVER,
    TAKE_OVER_FORGOTTEN,
    TWO_TAKE_OVERS,
    RESUMED_AFTER,
    REPLACEMENT,
    TWO_REPLACEMENTS,
    REPLACEMENT_TAKEN_OVER,
    COMMITTERS,
    DELIVERY,
    FAILURE,
)
