"""The page of guarantees and the tests name the same promises."""

import re

from tests.pages import DOCS, ROOT

PAGE = DOCS / "reference" / "guarantees.md"


def test_every_promise_is_pinned_by_a_test() -> None:
    promised = re.findall(r"^\| ([A-Z]{2}-\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {
        number
        for file in (ROOT / "tests").rglob("*.py")
        for number in re.findall(r"\b[A-Z]{2}-\d+\b", file.read_text(encoding="utf-8"))
    }
    assert promised
    assert sorted(set(promised) - named) == []
    assert len(promised) == len(set(promised))
