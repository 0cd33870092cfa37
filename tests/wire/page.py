"""What docs/reference/wire-contract.md says, as values."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire-contract.md"
_SQL = re.compile(r"^```sql\n-- (?P<name>\w+)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A key or an argument: its name, and for a key its pattern and type, for an argument its type."""

    name: str
    form: str
    type: str = ""


@dataclass(frozen=True)
class ScriptPage:
    """What the page says of a script; the last of `arguments` may stand for many."""

    keys: tuple[Place, ...]
    arguments: tuple[Place, ...]
    has_more: bool
    answers: tuple[str, ...]


def statements() -> dict[str, str]:
    """The statements of the page by name, without the line that names them."""
    return {found["name"]: found["text"].strip() for found in _SQL.finditer(_text())}


def scripts() -> dict[str, ScriptPage]:
    """The scripts of the page by name."""
    return {title.strip("`"): _script(text) for title, text in _sections("Scripts").items()}


def record_fields() -> set[str]:
    """Every field of a record that the page names."""
    rows = _table(_sections("Keys")["The record"], "field")
    return {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def members() -> set[str]:
    """The members of what `turnledger wire` prints, as the page has them."""
    return {name for row in _table(_chapter("Get it"), "member") for name in re.findall(r"`(\w+)`", row[0])}


def _script(text: str) -> ScriptPage:
    keys = _table(text, "KEYS")
    arguments = _table(text, "ARGV")
    assert [row[0] for row in keys] == [str(number) for number in range(1, len(keys) + 1)]
    assert [row[0].strip(".") for row in arguments] == [str(number) for number in range(1, len(arguments) + 1)]
    return ScriptPage(
        keys=tuple(Place(row[1], row[2].strip("`"), row[3]) for row in keys),
        arguments=tuple(Place(row[1], row[2]) for row in arguments),
        has_more=arguments[-1][0].endswith("..."),
        answers=tuple(row[0].split(",")[0].strip("`") for row in _table(text, "answer")),
    )


def _table(text: str, *heads: str) -> list[list[str]]:
    """The rows of every table whose first heads these are."""
    rows: list[list[str]] = []
    wanted = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            wanted = False
        elif tuple(cells[: len(heads)]) == heads:
            wanted = True
        elif wanted and not cells[0].startswith("---"):
            rows.append(cells)
    return rows


def _sections(chapter: str) -> dict[str, str]:
    """The sections of a chapter by title."""
    parts = re.split(r"^### ([^\n]+)\n", _chapter(chapter), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _chapter(title: str) -> str:
    parts = re.split(r"^## ([^\n]+)\n", _text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))[title]


def _text() -> str:
    return PAGE.read_text(encoding="utf-8")
