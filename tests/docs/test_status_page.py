"""The page about `turnledger status` names every member of its JSON, in order, and no other."""

import re
from dataclasses import fields
from pathlib import Path

from turnledger.workers.cli.figures import Status

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "status.md"


def test_every_member_of_the_status_is_explained() -> None:
    """OP-2"""
    section = PAGE.read_text(encoding="utf-8").partition("## status")[2].partition("## show")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        *(field.name for field in fields(Status)),
        "attention",
    ]
