"""What the model's stores were asked and answered on real paths, for the comparison with real servers."""

import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.base import PGDialect

from tests.model import clients
from tests.model.postgres_model import Answered, Parameters, Tables, copy_into, run_select, run_statement
from tests.model.product import Product, make_repeatable, script_texts
from tests.model.redis_model import Frozen, Keyspace, Reply, Scripts
from tests.model.scenarios import SCENARIOS, Scenario, explore

NOW_FUNCTION = "return time[1] * 1000 + math.floor(time[2] / 1000)"


@dataclass(frozen=True)
class ScriptCase:
    """One script: what it found, what it was told, what it left and answered."""

    name: str
    text: str
    keys: tuple[str, ...]
    arguments: tuple[Any, ...]
    before: Frozen
    after: Frozen
    answer: Reply


@dataclass(frozen=True)
class StatementCase:
    """One statement, COPY or select: what it found, what it left and returned. A select has its text."""

    name: str
    text: str
    parameters: Any
    before: Tables
    after: Tables
    rows: tuple[tuple[Any, ...], ...]


@dataclass
class Cases:
    """So many of each kind, no two alike."""

    scripts: list[ScriptCase] = field(default_factory=list)
    statements: list[StatementCase] = field(default_factory=list)


def record(scenarios: Sequence[Scenario], *, states: int, most: int) -> Cases:
    """Explore in a process of its own, which is not fit for anything else afterwards; at most so many of each name."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        cases: Cases = pool.apply(_record, ([scenario.name for scenario in scenarios], states, most))
    return cases


def _record(names: Sequence[str], states: int, most: int) -> Cases:
    recorder = _Recorder(most)
    product = Product(edit=lambda _, text: text.replace(NOW_FUNCTION, f"return {Keyspace({}).now_ms}"))
    make_repeatable(product.here)
    product.redis.scripts.run = recorder.run_script(product.redis.scripts)  # type: ignore[method-assign]  # listens
    heard = (recorder.run_statement, recorder.copy_into, recorder.run_select)
    vars(clients).update({listener.__name__: listener for listener in heard})
    for scenario in [scenario for scenario in SCENARIOS if scenario.name in names]:
        explore(scenario, product, budget=scenario.budget, most_states=states)
    return recorder.cases


class _Recorder:
    """Listens to what the clients ask of the model's stores."""

    def __init__(self, most: int) -> None:
        self.cases = Cases()
        self._most = most
        self._texts = script_texts()
        self._counts: Counter[str] = Counter()
        self._seen: defaultdict[str, set[int]] = defaultdict(set)

    def run_script(self, scripts: Scripts) -> Any:
        run = scripts.run

        def listened(text: str, *, keyspace: Keyspace, keys: Sequence[str], arguments: Sequence[Any]) -> Reply:
            before = keyspace.freeze()
            answer = run(text, keyspace=keyspace, keys=keys, arguments=arguments)
            name = next(name for name, own in self._texts.items() if text.endswith(own))
            if self._wants(name, (tuple(keys), repr(arguments), repr(sorted(before.items())))):
                case = ScriptCase(name, text, tuple(keys), tuple(arguments), before, keyspace.freeze(), answer)
                self.cases.scripts.append(case)
            return answer

        return listened

    def run_statement(self, tables: Tables, *, name: str, parameters: Parameters) -> Answered:
        answered = run_statement(tables, name=name, parameters=parameters)
        self._statement(name, tables, after=answered.tables, parameters=dict(parameters), rows=answered.rows)
        return answered

    def copy_into(self, tables: Tables, *, target: str, rows: Sequence[Sequence[object]]) -> Tables:
        after = copy_into(tables, target=target, rows=rows)
        self._statement("copy", tables, after=after, parameters=(target, [tuple(row) for row in rows]), rows=())
        return after

    def run_select(self, tables: Tables, query: Select[Any]) -> tuple[str, list[tuple[Any, ...]]]:
        columns, rows = run_select(tables, query)
        text = str(
            query.compile(
                dialect=PGDialect(),  # type: ignore[no-untyped-call]  # as SQLAlchemy has it
                compile_kwargs={"literal_binds": True},
            )
        )
        self._statement("select", tables, after=tables, parameters=None, rows=tuple(rows), text=text)
        return columns, rows

    def _statement(
        self,
        name: str,
        before: Tables,
        *,
        after: Tables,
        parameters: Any,
        rows: tuple[tuple[Any, ...], ...],
        text: str = "",
    ) -> None:
        if self._wants(name, (before, repr(parameters), text)):
            self.cases.statements.append(StatementCase(name, text, parameters, before, after, rows))

    def _wants(self, name: str, asked: Any) -> bool:
        known = hash(asked)
        if self._counts[name] >= self._most or known in self._seen[name]:
            return False
        self._counts[name] += 1
        self._seen[name].add(known)
        return True
