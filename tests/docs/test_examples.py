"""What the documentation shows is run as it stands, page by page.

Blocks marked ```python are executed in the order of the page and share their names; ```python no-run is only
compiled. A block marked ```text output must be what the python block before it has printed, but for the times in
it. In ```console blocks, each `$ turnledger ...` must name an existing command with existing options.
"""

import io
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.pages import PAGES, TUTORIAL, Block, blocks, name_of
from turnledger.workers.cli.app import app

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_COMMAND = re.compile(r"^\$ turnledger(?P<words> .*)?$", re.MULTILINE)


def _pages_with(*kinds: str) -> list[Path]:
    return [page for page in PAGES if any(blocks(page, *kinds))]


def _pages_run_here() -> list[Path]:
    """The tutorial is typed into a prompt of its own, over servers of its own (tests/acceptance/test_tutorial.py)."""
    return [page for page in _pages_with("python", "python no-run") if page.parent != TUTORIAL]


@pytest.mark.parametrize("page", _pages_run_here(), ids=name_of)
def test_examples_run(
    page: Path, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", database_url)
    monkeypatch.setenv("TURNLEDGER_REDIS_URL", redis_url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page, "python", "python no-run", "text output"):
        if block.kind == "text output":
            assert _timeless(printed) == _timeless(block.text), f"{name_of(page)}, line {block.line}"
        else:
            printed = _run(block, page=page, names=names)


def _run(block: Block, *, page: Path, names: dict[str, object]) -> str:
    """What the block prints; one that is not run prints nothing."""
    # As many empty lines before it as the page has, so that a traceback names the page's own line.
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with redirect_stdout(io.StringIO()) as output:
        if block.kind == "python":
            exec(code, names)
    return output.getvalue()


def _timeless(text: str) -> str:
    return _TIME.sub("(a time)", text)


@pytest.mark.parametrize("page", _pages_with("console"), ids=name_of)
def test_shown_commands_exist(page: Path) -> None:
    wrong = [
        f"{name_of(page)}: turnledger{found['words']}"
        for block in blocks(page, "console")
        for found in _COMMAND.finditer(block.text)
        if not _exists((found["words"] or "").split())
    ]
    assert wrong == []


def _exists(words: list[str]) -> bool:
    subcommand = [word for word in words[:1] if not word.startswith("-")]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    known = _options(*subcommand)
    return known is not None and options <= known


@cache
def _options(*subcommand: str) -> frozenset[str] | None:
    """The options of a command, None where there is no such command. Nothing is run, and so nothing is configured."""
    command = get_command(app)
    for name in subcommand:
        if not isinstance(command, TyperGroup) or name not in command.commands:
            return None
        command = command.commands[name]
    return frozenset({"--help"}.union(*(option.opts for option in command.params)))
