"""The pages of the documentation, and the blocks of code in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: the words after the fence, its text, and the line of the page it begins on."""

    kind: str
    text: str
    line: int


def blocks(page: Path, *kinds: str) -> Iterator[Block]:
    """The blocks of these kinds, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if found["kind"].strip() in kinds:
            yield Block(found["kind"].strip(), found["text"], text.count("\n", 0, found.start("text")))


def without_blocks(page: Path) -> str:
    """The page's own words: of each block of code only its lines are left, empty."""
    text = page.read_text(encoding="utf-8")
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)


def name_of(page: Path) -> str:
    """The page as a reader would name it."""
    return str(page.relative_to(ROOT))
