"""The words after a fence that our tests read (`python no-run`, `text output`) in the spelling that mkdocs knows."""

import re
from typing import Any

_CONSOLE = re.compile(r"^```console$", re.MULTILINE)
_FENCE = re.compile(r"^```(?P<language>\w+) (?P<word>[\w-]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The second word becomes a class of the block, so that what is printed can look different from what is typed."""
    named = _FENCE.sub(r"```{.\g<language> .\g<word>}", markdown)
    return _CONSOLE.sub("```{.console .commands}", named)
