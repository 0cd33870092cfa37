"""Quoting: how a text stands inside a block, so that no line of it can pass for a line of the block.

A text of one line stands behind its label. A text of several lines begins below the label, each of its
lines behind ``> ``, so that no line of it begins like a heading, a label or a code fence. What a reader
or a terminal might take for a line break, and what UTF-8 cannot carry, is shown instead of sent: a
control character by its picture (``␍`` is a carriage return), any other as ``⟨U+2028⟩``. Where a text
holds such a picture or ``⟨U+`` itself, that is spelled in the second form too, so the rule is reversible.
"""

from __future__ import annotations

import re

_LINE = "\n> "
_PICTURES = 0x2400
_CARRIAGE_RETURN = "\u240d"
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u2400-\u241f\ud800-\udfff]|⟨(?=U\\+)")
_SHOWN = re.compile("[\u2400-\u241f]|⟨U\\+([0-9A-F]{4})⟩")
_SPELLED_BREAK = re.compile(r"\\(?=n)|\n")
_JSON_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def quote(text: str) -> str:
    """What stands behind a label's colon: the text on the same line, or its lines below, quoted."""
    shown = show_hidden(text)
    if "\n" in shown:
        return _LINE + shown.replace("\n", _LINE)
    return f" {shown}" if shown else ""


def unquote(quoted: str) -> str:
    """The text that ``quote`` was given."""
    if quoted.startswith(_LINE):
        return restore_hidden(quoted[len(_LINE) :].replace(_LINE, "\n"))
    return restore_hidden(quoted[1:])


def one_line(text: str) -> str:
    r"""The text on one line, each line feed as ``\n`` (and a written ``\n`` as ``⟨U+005C⟩n``)."""
    shown = show_hidden(text)
    if "\n" in shown or "\\n" in shown:
        return _SPELLED_BREAK.sub(lambda found: "\\n" if found[0] == "\n" else "⟨U+005C⟩", shown)
    return shown


def restore_line(line: str) -> str:
    """The text that ``one_line`` was given."""
    return restore_hidden(line.replace("\\n", "\n"))


def safe_json(json_text: str) -> str:
    """The same JSON with what could break a line, or cannot be sent, written as JSON escapes."""
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def show_hidden(text: str) -> str:
    """The text with line feeds and tabs as they are and every other control character made visible."""
    # Texts from the web end every line with a carriage return; replaced by itself, that costs little.
    return _HIDDEN.sub(_show, text).replace("\r", _CARRIAGE_RETURN)


def restore_hidden(text: str) -> str:
    """The text that ``show_hidden`` was given."""
    return _SHOWN.sub(_restore, text)


def _show(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def _restore(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else chr(ord(found[0]) - _PICTURES)
