"""Visits every state that the actors can reach, nearest first, and checks each; a violation comes with its path.

A state is a tuple of small numbers: which Redis, what a failover could bring back, which Postgres, who
holds the ledger's lock, what the invariants remember, how much may still go wrong, and where each actor stands.
Every step is worked out once by running the product, and looked up from then on.
"""

import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.actors import Local, Machine
from tests.model.execution import Fault, Report, Stores
from tests.model.invariants import Invariants, Memory
from tests.model.numbers import Changes, Numbers, RedisNumbers
from tests.model.postgres_model import Tables
from tests.model.recovery import Recovery
from tests.model.view import RedisFacts, described
from tests.model.violation import Violation

State = tuple[int, ...]
REDIS, BEFORE, TABLES, LOCK, MEMORY, BUDGET, ACTORS = range(7)
NOTHING = -1
FAULT_WORDS: Mapping[Fault, str] = {
    "lost": "the request is lost",
    "unanswered": "it is done, the answer is lost",
    "busy": "the lock is not to be had in time",
}


class Budget(NamedTuple):
    """How much may still go wrong on one path; a failover forgets at most `forgotten` of the newest writes."""

    crashes: int = 0
    failovers: int = 0
    faults: int = 0
    forgotten: int = 1


class Move(NamedTuple):
    """One actor's step, in numbers."""

    local: int
    changes: Changes
    tables: int
    reports: int
    label: int


class Broken(Exception):
    """A promise was broken by the move to this state; None where the move itself was impossible."""

    def __init__(self, what: str, *, label: int, after: State | None) -> None:
        super().__init__(what)
        self.label = label
        self.after = after


@dataclass(slots=True)
class Exploration:
    """What was visited, and the time it took a processor; `violation` and `path`: what was broken, and how."""

    states: int = 0
    moves: int = 0
    depth: int = 0
    seconds: float = 0.0
    whole: bool = True
    violation: str = ""
    path: list[str] = field(default_factory=list)


class Explorer:
    """Explores one scenario, breadth first."""

    def __init__(self, machine: Machine, recovery: Recovery, *, budget: Budget, stores: Stores, memory: Memory) -> None:
        self._machine = machine
        self._recovery = recovery
        self._invariants = Invariants()
        self._recoveries: dict[tuple[int, int, str], tuple[int, int]] = {}
        self._programs = machine.programs
        self._redis = RedisNumbers()
        self._tables: Numbers[Tables] = Numbers()
        self._locals: Numbers[Local] = Numbers()
        self._memories: Numbers[Memory] = Numbers()
        self._budgets: Numbers[Budget] = Numbers()
        self._reports: Numbers[tuple[Report, ...]] = Numbers()
        self._labels: Numbers[str] = Numbers()
        self._moves: dict[tuple[object, ...], Move] = {}
        self._scripted: dict[tuple[object, ...], dict[tuple[str, ...], dict[tuple[int | None, ...], Move]]] = {}
        self._after: dict[tuple[int, Changes], int] = {}
        self._facts: dict[int, RedisFacts] = {}
        self._pasts: Numbers[tuple[int, ...]] = Numbers()
        self._no_past = self._pasts.of(())
        self._enabled: dict[tuple[int, int, int], bool] = {}
        self._observed: dict[tuple[int, ...], int] = {}
        self._checked: set[tuple[int, ...]] = set()
        self.worked_out = 0
        self._no_reports = self._reports.of(())
        self._dead = self._local(Local(0, b"", ended="died"))
        self._twins = _twins(machine)
        self._first = self._first_state(budget, stores, memory)

    def run(self, *, most_states: int) -> Exploration:
        """Visit everything; stop at the first violation, or at so many states."""
        began = time.process_time()
        found = Exploration()
        tree = _Tree(self._first)
        try:
            self._check(self._first, label=NOTHING)
            while tree.place < len(tree.states) and found.whole:
                found.moves += self._visit(tree)
                tree.place += 1
                found.whole = len(tree.states) <= most_states
        except Broken as broken:
            found.violation = str(broken)
            found.path = self._path(tree, broken)
        found.states, found.depth = len(tree.states), tree.depth()
        found.seconds = time.process_time() - began
        return found

    def _visit(self, tree: "_Tree") -> int:
        """Take every move from the state in turn; returns how many there are."""
        state = tree.states[tree.place]
        moves = 0
        at_rest = True
        for label, after in self._steps_from(state):
            at_rest = False
            moves += 1
            if tree.add(after, label=label):
                self._check(after, label=label)
        if at_rest:
            self._check_end(state)
        for label, after in self._mishaps_from(state):
            moves += 1
            if tree.add(after, label=label):
                self._check(after, label=label)
        return moves

    def _first_state(self, budget: Budget, stores: Stores, memory: Memory) -> State:
        places = [self._local(self._machine.begin(number)) for number in range(len(self._programs))]
        redis, tables = self._redis.of(stores.redis), self._tables.of(stores.tables)
        return (redis, self._no_past, tables, NOTHING, self._memories.of(memory), self._budgets.of(budget), *places)

    def _local(self, local: Local) -> int:
        key = (local.operation, local.frozen, repr(local.answers), local.waits_for, local.label, local.ended)
        return self._locals.of(local, key=(*key, local.holds_lock))

    def _steps_from(self, state: State) -> Iterator[tuple[int, State]]:
        budget: Budget = self._budgets.values[state[BUDGET]]
        for number in range(len(self._programs)):
            place = state[ACTORS + number]
            local: Local = self._locals.values[place]
            if local.waits_for is None or not self._is_enabled(number, place, state[REDIS]):
                continue
            free = state[LOCK] in (NOTHING, number)
            blocked = not free and local.label == "lock_ledger"
            if not blocked:
                yield self._step(state, number, fault="none")
            if budget.faults:
                for fault in self._programs[number].faults:
                    if (fault == "busy") == blocked:
                        yield self._step(state, number, fault=fault)

    def _mishaps_from(self, state: State) -> Iterator[tuple[int, State]]:
        budget: Budget = self._budgets.values[state[BUDGET]]
        if budget.crashes:
            for number, program in enumerate(self._programs):
                local: Local = self._locals.values[state[ACTORS + number]]
                if program.crashes and local.waits_for is not None and (local.operation or local.answers):
                    yield self._crash(state, number, budget)
        if budget.failovers:
            for forgotten, redis in enumerate(self._pasts.values[state[BEFORE]], 1):
                yield self._fail_over(state, budget, redis=redis, forgotten=forgotten)

    def _is_enabled(self, number: int, place: int, redis: int) -> bool:
        local = self._locals.values[place]
        if local.answers:
            return True
        key = (number, place, redis)
        if key not in self._enabled:
            self._enabled[key] = self._machine.is_enabled(number, local, self._redis.value(redis))
        return self._enabled[key]

    def _step(self, state: State, number: int, *, fault: Fault) -> tuple[int, State]:
        waits_for = self._locals.values[state[ACTORS + number]].waits_for
        move = self._move_in_redis(state, number, fault) if waits_for == "redis" else self._move(state, number, fault)
        after = list(state)
        after[ACTORS + number] = move.local
        if move.changes:
            after[REDIS] = self._changed(state[REDIS], move.changes)
            after[BEFORE] = self._before(state)
        if waits_for == "postgres":
            after[TABLES] = move.tables
        if self._locals.values[move.local].holds_lock:
            after[LOCK] = number
        elif state[LOCK] == number:
            after[LOCK] = NOTHING
        if fault != "none":
            budget = self._budgets.values[state[BUDGET]]
            after[BUDGET] = self._budgets.of(budget._replace(faults=budget.faults - 1))
        if move.reports != self._no_reports:
            after[MEMORY] = self._observe(after, number, move)
        return move.label, self._canonical(after)

    def _move(self, state: State, number: int, fault: Fault) -> Move:
        """A step in Postgres depends on all of it, and on whether somebody else holds the lock."""
        key = (number, state[ACTORS + number], state[TABLES], state[LOCK] in (NOTHING, number), fault)
        move = self._moves.get(key)
        if move is None:
            move = self._moves[key] = self._worked_out(state, number, fault)[1]
        return move

    def _move_in_redis(self, state: State, number: int, fault: Fault) -> Move:
        """A step in Redis depends on the keys that it touches: what else is there may differ."""
        known = self._scripted.setdefault((number, state[ACTORS + number], fault), {})
        for keys, moves in known.items():
            move = moves.get(self._redis.part(state[REDIS], keys))
            if move is not None:
                return move
        touched, move = self._worked_out(state, number, fault)
        known.setdefault(touched, {})[self._redis.part(state[REDIS], touched)] = move
        return move

    def _worked_out(self, state: State, number: int, fault: Fault) -> tuple[tuple[str, ...], Move]:
        local = self._locals.values[state[ACTORS + number]]
        free = state[LOCK] in (NOTHING, number)
        stores = Stores(self._redis.value(state[REDIS]), self._tables.values[state[TABLES]], free, fault)
        program = self._programs[number]
        where = f"Redis, {local.label}" if local.waits_for == "redis" else f"Postgres, from {local.label} on"
        words = f"{program.name}, {program.operations[local.operation].name}: {where}"
        label = self._labels.of(words if fault == "none" else f"{words}: {FAULT_WORDS[fault]}")
        self.worked_out += 1
        try:
            step = self._machine.step(number, local, stores)
        except Violation as violation:
            raise Broken(str(violation), label=label, after=None) from violation
        except Exception as error:
            raise Broken(f"the product itself fails: {error!r}", label=label, after=None) from error
        return step.touched, Move(
            local=self._local(step.local),
            changes=self._redis.changes(step.changes),
            tables=self._tables.of(step.tables),
            reports=self._reports.of(step.reports),
            label=label,
        )

    def _changed(self, redis: int, changes: Changes) -> int:
        after = self._after.get((redis, changes))
        if after is None:
            after = self._after[redis, changes] = self._redis.changed(redis, changes)
        return after

    def _facts_of(self, redis: int) -> RedisFacts:
        facts = self._facts.get(redis)
        if facts is None:
            facts = self._facts[redis] = RedisFacts.of(self._redis.value(redis))
        return facts

    def _observe(self, after: list[int], number: int, move: Move) -> int:
        key = (after[MEMORY], number, move.reports, after[REDIS], after[TABLES])
        known = self._observed.get(key)
        if known is None:
            memory: Memory = self._memories.values[after[MEMORY]]
            redis, tables = self._facts_of(after[REDIS]), self._tables.values[after[TABLES]]
            try:
                for report in self._reports.values[move.reports]:
                    name = self._programs[number].name
                    memory = self._invariants.observe(memory, report, actor=name, redis=redis, tables=tables)
            except Violation as violation:
                raise Broken(str(violation), label=move.label, after=tuple(after)) from violation
            known = self._observed[key] = self._memories.of(memory)
        return known

    def _crash(self, state: State, number: int, budget: Budget) -> tuple[int, State]:
        after = list(state)
        after[ACTORS + number] = self._dead
        if state[LOCK] == number:
            after[LOCK] = NOTHING
        after[BUDGET] = self._budgets.of(budget._replace(crashes=budget.crashes - 1))
        memory: Memory = self._memories.values[state[MEMORY]]
        after[MEMORY] = self._memories.of(memory.with_dead(self._programs[number].name))
        return self._labels.of(f"{self._programs[number].name} dies"), self._canonical(after)

    def _before(self, state: State) -> int:
        """What a failover could bring back after a write to this state's Redis."""
        budget = self._budgets.values[state[BUDGET]]
        if not budget.failovers:
            return self._no_past
        return self._pasts.of((state[REDIS], *self._pasts.values[state[BEFORE]])[: budget.forgotten])

    def _fail_over(self, state: State, budget: Budget, *, redis: int, forgotten: int) -> tuple[int, State]:
        after = list(state)
        after[REDIS], after[BEFORE] = redis, self._no_past
        after[BUDGET] = self._budgets.of(budget._replace(failovers=budget.failovers - 1))
        facts, tables = self._facts_of(redis), self._tables.values[state[TABLES]]
        memory = self._memories.values[state[MEMORY]]
        after[MEMORY] = self._memories.of(self._invariants.after_failover(memory, redis=facts, tables=tables))
        words = "its newest write" if forgotten == 1 else f"its newest {forgotten} writes"
        return self._labels.of(f"Redis fails over and forgets {words}"), self._canonical(after)

    def _canonical(self, after: list[int]) -> State:
        """Actors that do the same are interchangeable: which of them is where makes no difference."""
        for first, second in self._twins:
            if after[ACTORS + first] > after[ACTORS + second]:
                after[ACTORS + first], after[ACTORS + second] = after[ACTORS + second], after[ACTORS + first]
                after[LOCK] = {first: second, second: first}.get(after[LOCK], after[LOCK])
        return tuple(after)

    def _check(self, state: State, *, label: int) -> None:
        try:
            self._check_stores(state[MEMORY], state[REDIS], state[TABLES])
        except Violation as violation:
            raise Broken(str(violation), label=label, after=state) from violation

    def _check_stores(self, memory: int, redis: int, tables: int) -> None:
        """Each promise once for what it is about: one store, or both and what is remembered."""
        if (memory, redis, tables) in self._checked:
            return
        self._checked.add((memory, redis, tables))
        facts, rows = self._facts_of(redis), self._tables.values[tables]
        if (redis,) not in self._checked:
            self._checked.add((redis,))
            self._invariants.check_redis(facts)
        if (tables, NOTHING) not in self._checked:
            self._checked.add((tables, NOTHING))
            self._invariants.check_tables(rows)
        self._invariants.check_both(self._memories.values[memory], redis=facts, tables=rows)

    def _check_end(self, state: State) -> None:
        """Nobody has a step left: with workers and clock alone, everything completed has to become history."""
        helpers = "workers" if state[BUDGET] == self._first[BUDGET] else "workers and clock"
        try:
            redis, tables = self._recovered(state[REDIS], state[TABLES], helpers=helpers)
            self._check_stores(state[MEMORY], redis, tables)
            self._invariants.check_end(
                self._memories.values[state[MEMORY]], redis=self._facts_of(redis), tables=self._tables.values[tables]
            )
        except Violation as violation:
            raise Broken(
                f"{violation} (once {helpers} have done what they can)", label=NOTHING, after=state
            ) from violation

    def _recovered(self, redis: int, tables: int, *, helpers: str) -> tuple[int, int]:
        key = (redis, tables, helpers)
        if key not in self._recoveries:
            stores = Stores(self._redis.value(redis), self._tables.values[tables])
            self._recovery.run(stores, helpers=helpers)
            self._recoveries[key] = self._redis.of(stores.redis), self._tables.of(stores.tables)
        return self._recoveries[key]

    def _path(self, tree: "_Tree", broken: Broken) -> list[str]:
        """Each move, and below it what it changed."""
        steps = tree.steps_to_here()
        if broken.label != NOTHING:
            steps.append((broken.label, broken.after))
        lines: list[str] = []
        seen: list[str] = []
        for label, state in steps:
            lines.append("at first" if label == NOTHING else self._labels.values[label])
            if state is not None:
                now = described(self._redis.value(state[REDIS]), self._tables.values[state[TABLES]])
                lines += [f"        {line}" for line in now if line not in seen]
                seen = now
        return lines


class _Tree:
    """The states seen so far, each with the state and the move it was first reached by."""

    def __init__(self, first: State) -> None:
        self.states = [first]
        self.place = 0
        self._known = {first}
        self._parents = array("l", [NOTHING])
        self._labels = array("l", [NOTHING])
        self._depths = array("l", [0])

    def add(self, state: State, *, label: int) -> bool:
        """Whether the state is new."""
        if state in self._known:
            return False
        self._known.add(state)
        self.states.append(state)
        self._parents.append(self.place)
        self._labels.append(label)
        self._depths.append(self._depths[self.place] + 1)
        return True

    def depth(self) -> int:
        """The length of the longest shortest path."""
        return self._depths[-1]

    def steps_to_here(self) -> list[tuple[int, State | None]]:
        """Each move with the state it leads to, from the first state to the place in hand."""
        steps: list[tuple[int, State | None]] = []
        place = self.place
        while place != NOTHING:
            steps.append((self._labels[place], self.states[place]))
            place = self._parents[place]
        return steps[::-1]


def _twins(machine: Machine) -> list[tuple[int, int]]:
    programs = machine.programs
    return [
        (first, first + 1)
        for first in range(len(programs) - 1)
        if programs[first].operations is programs[first + 1].operations
    ]
