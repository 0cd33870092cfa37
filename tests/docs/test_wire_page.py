"""The page about the wire contract says what scripts, statements and library say; see tests/wire."""

import ast
import json
from pathlib import Path
from typing import get_args

import pytest

from tests.wire import heads, page
from tests.wire.vectors import FILE, as_file
from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.record import Record
from turnledger.checkpoint.records import COMMIT_FIELDS
from turnledger.checkpoint.wire import SCRIPTS, STATEMENTS, wire_contract
from turnledger.workers.cli.output import Output
from turnledger.workers.cli.wire import run_wire

WIRE = Path(__file__).parents[1] / "wire"
RAW = ("engine", "forms", "servers")
CHANGED = "other languages call this: see 'When it changes' in docs/reference/wire-contract.md"
CONTRACT = wire_contract(CheckpointSettings(redis_url="redis://-"))


def test_the_page_has_every_script_and_every_statement() -> None:
    assert set(page.scripts()) == set(SCRIPTS)
    assert set(page.statements()) == {"schema", *STATEMENTS}
    assert page.members() == set(CONTRACT)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_s_keys_arguments_and_answers_are_those_of_its_head(name: str) -> None:
    told = page.scripts()[name]
    assert [(each.name, each.type) for each in told.keys] == [(key.name, key.type) for key in heads.keys_of(name)], (
        CHANGED
    )
    assert [each.name for each in told.arguments] == heads.arguments_of(name), CHANGED
    assert list(told.answers) == heads.answers_of(name), CHANGED


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_the_one_that_the_library_runs(name: str) -> None:
    statements: dict[str, dict[str, object]] = CONTRACT["statements"]  # type: ignore[assignment]  # one JSON value
    assert page.statements()[name] == statements[name]["text"], CHANGED


def test_every_field_that_a_commit_or_a_resume_reads_is_on_the_page() -> None:
    known = page.record_fields()
    assert set(COMMIT_FIELDS) <= known
    inside = {"turn_id", "untouched", "replacement", "inputs"}  # of the library alone
    assert {name for name in Record.__dataclass_fields__ if name not in inside} <= known


def test_the_vectors_are_the_library_s() -> None:
    assert FILE.read_text(encoding="ascii") == as_file(), "run: python -m tests.wire"
    assert set(json.loads(as_file())) >= {"work_keys", "steps", "blocks"}


@pytest.mark.parametrize("module", RAW)
def test_the_raw_engine_imports_nothing_of_turnledger(module: str) -> None:
    tree = ast.parse((WIRE / f"{module}.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in names if name.partition(".")[0] in ("tests", "turnledger")}
    assert ours <= {f"tests.wire.{each}" for each in RAW}


def test_the_command_prints_the_contract_without_any_server(capsys: pytest.CaptureFixture[str]) -> None:
    for output in get_args(Output):
        run_wire(output=output)
        printed = capsys.readouterr().out
        assert json.loads(printed) == json.loads(json.dumps(CONTRACT))
        assert (len(printed.splitlines()) == 1) == (output == "json")
