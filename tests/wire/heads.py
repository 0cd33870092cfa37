"""What the head of a script says of its keys, arguments and answers, as values."""

import re
from importlib.resources import files

from tests.wire.page import Place

_NUMBERED = re.compile(r"(?:^| {2,})(\d+)(?:\.\.\.)? +")


def head_of(script: str) -> str:
    """The comment at the beginning of a script."""
    text = (files("turnledger.checkpoint") / "scripts" / f"{script}.lua").read_text(encoding="utf-8")
    lines = text[: text.index("\n", text.index("-- Answer:"))].splitlines()
    rest = text[len("\n".join(lines)) + 1 :].splitlines()
    while rest and rest[0].startswith("--"):
        lines.append(rest.pop(0))
    return "\n".join(line.removeprefix("--") for line in lines)


def keys_of(script: str) -> list[Place]:
    """Name and type of each key."""
    parts = [re.split(" {2,}", part) for part in _numbered(script, "KEYS")]
    return [Place(name, "", kind) for name, kind, *_ in parts]


def arguments_of(script: str) -> list[str]:
    """The words for each argument."""
    return [" ".join(part.split()) for part in _numbered(script, "ARGV")]


def answers_of(script: str) -> list[str]:
    """The first word of each answer; none where there is but one answer."""
    text = " ".join(head_of(script).partition(" Answer:")[2].split()).rstrip(".")
    return [part.split()[0] for part in text.split("|")] if "|" in text else []


def _numbered(script: str, part: str) -> list[str]:
    """What stands behind each number of a part, which ends with the next one or a line that says what else is read."""
    text = re.split(rf"^ +{part} ", head_of(script), maxsplit=1, flags=re.MULTILINE)[1]
    text = re.split(r"^ +(?:ARGV|also reads|also marks|reads) | Answer:", text, maxsplit=1, flags=re.MULTILINE)[0]
    return _NUMBERED.split("   ".join(text.splitlines()))[2::2]
