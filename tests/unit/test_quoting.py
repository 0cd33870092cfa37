"""Quoting: texts stand in a block in a way that can be undone and cannot pass for structure."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnledger.store.quoting import one_line, quote, restore_line, safe_json, unquote

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
tricky_text = st.text(
    st.characters()
    | st.sampled_from(
        [*BREAKS, "\x00", "\ud800", "\udfff", "␍", "␀", "\\", "n", "⟨", "U", "+", "0", "D", "⟩", ">", " ", "#", "`"]
    )
)


@given(tricky_text)
@example("⟨U+000D⟩")
@example("⟨⟨U+27E8⟩U+000D⟩")
@example("␍\r⟨U⟨U+")
@example("> a\n>b\n\n> ")
def test_quoting_is_reversible(text: str) -> None:
    """Every text comes back from its quoted form exactly (BL-13)."""
    assert unquote(quote(text)) == text


@given(tricky_text)
@example("a\\n\nb\\\\n\r\n")
def test_one_line_is_reversible(text: str) -> None:
    """So does every text that has to stand on one line (BL-13)."""
    assert restore_line(one_line(text)) == text


@given(tricky_text)
def test_quoted_lines_are_marked(text: str) -> None:
    """However lines are told apart, each line of a quoted text but the one behind its label begins with `>` (BL-13)."""
    first, *others = f"Label:{quote(text)}".splitlines()
    assert first.startswith("Label:")
    assert all(line.startswith(">") for line in others)


@given(tricky_text)
def test_one_line_is_one_line(text: str) -> None:
    """A name or an error never spans lines (BL-3)."""
    assert len(f"- {one_line(text)}".splitlines()) == 1


@given(tricky_text)
def test_quoted_text_can_be_sent(text: str) -> None:
    """Quoted texts are valid UTF-8 without NUL, whatever went in (BL-13, EV-10)."""
    assert b"\x00" not in quote(text).encode()
    assert b"\x00" not in one_line(text).encode()


@given(tricky_text)
def test_safe_json_is_the_same_json(text: str) -> None:
    """JSON on one line keeps its value and can be sent (BL-3)."""
    shown = safe_json(json.dumps(text, ensure_ascii=False))
    assert len(shown.splitlines()) == 1
    shown.encode()
    assert json.loads(shown) == json.loads(json.dumps(text))


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("hello", " hello"),
        ("", ""),
        (" ", "  "),
        ("tab\there", " tab\there"),
        ("\n", "\n> \n> "),
        ("one\n\n## two\n", "\n> one\n> \n> ## two\n> "),
        ("a\r\nb", "\n> a␍\n> b"),
        ("a\u2028b", " a⟨U+2028⟩b"),
        ("nul \x00, half \ud83d", " nul ␀, half ⟨U+D83D⟩"),
        ("␍ and ⟨U+2028⟩", " ⟨U+240D⟩ and ⟨U+27E8⟩U+2028⟩"),
        ("⟨x⟩", " ⟨x⟩"),
    ],
)
def test_how_quoted_text_looks(text: str, quoted: str) -> None:
    """One line stays behind its label, several stand below it, hidden characters are shown (BL-13)."""
    assert quote(text) == quoted


def test_how_one_line_looks() -> None:
    """Line feeds are written as two characters, and a written pair is told apart (BL-3)."""
    assert one_line("a\nb") == "a\\nb"
    assert one_line("C:\\new") == "C:⟨U+005C⟩new"
    assert one_line("C:\\temp") == "C:\\temp"


def test_quoting_is_linear() -> None:
    """A text made to be slow is not: a megabyte of openings takes well under a second (BL-13)."""
    begin = time.process_time()
    unquote(quote("⟨U+" * 300_000))
    assert time.process_time() - begin < 3
