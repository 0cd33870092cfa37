"""The table of faults: every row names tests that exist, and every test of faults has a row."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "faults.md"
HEAD = "| failure | the engine sees | what is kept | recovery | tests |"
NAMED = re.compile(r"`([a-z_/]+\.py)::(test_[a-z0-9_]+)`( \(F\))?")
FOLDERS = ("faults", "acceptance/faults")  # every test here stands in the table
AT_LEAST = 15 + 6  # the failures of the design, and those that an operator asks about besides


def rows() -> list[list[str]]:
    """The cells of every row of the tables with this head."""
    found: list[list[str]] = []
    for part in PAGE.read_text(encoding="utf-8").split(HEAD)[1:]:
        lines = part.strip().splitlines()[1:]  # behind the rule below the head
        table = lines[: next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
        found += [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return found


ROWS = rows()


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The tests of a file, by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def is_left_to_make_faults(test: ast.FunctionDef) -> bool:
    """Whether the whole test is marked, and not only some of its parameters."""
    return any(ast.unparse(each) == "pytest.mark.faults" for each in test.decorator_list)


@pytest.mark.parametrize("cells", ROWS, ids=[cells[0][:60] for cells in ROWS])
def test_every_row_is_whole_and_names_tests_that_exist(cells: list[str]) -> None:
    """And says of each whether `make test` runs it."""
    assert len(cells) == 5
    assert all(cells)
    named = NAMED.findall(cells[4])
    assert named
    assert "<br>".join(f"`{file}::{name}`{mark}" for file, name, mark in named) == cells[4]
    for file, name, mark in named:
        test = functions(TESTS / file).get(name)
        assert test is not None, f"{file} has no {name}"
        assert bool(mark) == is_left_to_make_faults(test), f"{file}::{name} is marked otherwise"


def test_there_is_a_row_for_every_failure_of_the_design() -> None:
    """Fewer would mean that one was forgotten; a failure stands in one row."""
    failures = [cells[0] for cells in ROWS]
    assert len(failures) == len(set(failures))
    assert len(failures) >= AT_LEAST


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_test_of_a_fault_has_a_row(folder: str) -> None:
    named = {(file, name) for cells in ROWS for file, name, _ in NAMED.findall(cells[4])}
    for path in sorted((TESTS / folder).glob("test_*.py")):
        for name in functions(path):
            assert (f"{folder}/{path.name}", name) in named
