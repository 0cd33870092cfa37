"""The page about the command line has every command with every option, and examples that can be typed."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from turnledger.workers.cli import exits
from turnledger.workers.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
GROUP: Any = get_command(app)
COMMANDS: dict[str, Any] = {name: command for name, command in GROUP.commands.items() if not command.hidden}
_OPTIONS = re.compile(r"(?<=\| option \| what it is \|\n\|---\|---\|\n)(?:\|.*\n)*")
_WITHOUT_JSON = {"up", "demo", "worker", "clock", "upkeep", "dashboard"}


def sections(text: str) -> dict[str, str]:
    """What the page has under each heading, in its order."""
    _, *found = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2], strict=True))


def written(text: str) -> str:
    """The page with the options as the commands have them; `python -m tests.docs.test_command_page` writes it."""
    parts = re.split(r"(^## .+\n)", text, flags=re.MULTILINE)
    for place, part in enumerate(parts):
        command = COMMANDS.get(part.removeprefix("## ").strip())
        if command is not None:
            parts[place + 1] = _with_rows(parts[place + 1], _rows(command))
    return "".join(parts)


def _with_rows(section: str, rows: str) -> str:
    found = _OPTIONS.search(section)
    return section if found is None else section[: found.start()] + rows + section[found.end() :]


def _rows(command: Any) -> str:
    return "".join(
        f"| {_name(each)} | {_told(each)} |\n" for each in command.params if not getattr(each, "hidden", False)
    )


def _name(parameter: Any) -> str:
    takes = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        return f"`{takes}`"
    return f"`{' '.join([*parameter.opts, takes]).strip()}`".replace("|", "\\|")


def _told(parameter: Any) -> str:
    default = parameter.default
    said = "" if default in (None, False) or default is ... or parameter.required else f" Default: `{default}`."
    return f"{parameter.help}{said}".replace("|", "\\|")


def test_the_tables_of_options_are_up_to_date() -> None:
    """(OP-2)"""
    text = PAGE.read_text(encoding="utf-8")
    assert text == written(text), "run: python -m tests.docs.test_command_page"


def test_the_page_has_every_command_and_no_other() -> None:
    """In the order of the help, each with its exit codes and, but for those that run on, its JSON or a page that has it
    (OP-2)."""
    found = sections(PAGE.read_text(encoding="utf-8"))
    assert next(iter(found)) == "For all commands"
    assert set(found) - {"For all commands"} == set(COMMANDS)
    for name, command in COMMANDS.items():
        assert "| code | when |" in found[name], name
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) is (name not in _WITHOUT_JSON)
        explains = (
            "| member | what it is |" in found[name] or "has the checks" in found[name] or "each member" in found[name]
        )
        assert explains is ("--json" in options), name
        shown = {parameter for parameter in command.params if not getattr(parameter, "hidden", False)}
        assert bool(_OPTIONS.search(found[name])) is bool(shown), name


def test_every_exit_code_is_explained() -> None:
    """(OP-2)"""
    general = sections(PAGE.read_text(encoding="utf-8"))["For all commands"]
    for code, meaning in exits.MEANINGS.items():
        assert f"| {code} | {meaning.partition(' (')[0]} |" in general


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_help_can_be_typed(name: str) -> None:
    """Each command has one, and each is accepted as it stands (OP-2)."""
    examples = [line for line in COMMANDS[name].epilog.split("\n\n") if line.startswith("turnledger ")]
    assert examples
    for example in examples:
        words = example.partition(" > ")[0].split()[1:]
        assert words[0] == name
        with GROUP.make_context("turnledger", words) as context:
            command = GROUP.commands[words[0]]
            command.make_context(name, list(words[1:]), parent=context).close()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
