"""Names in place of over-long tool arguments and errors."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from turnledger.store.entry import CallRecord, Entry, Replied, decode_entry, encode_entry
from turnledger.store.fitting import condensed, name_payload, needs_fitting, with_names, with_stand_ins

LONG = "x" * 201
LONG_NAME = f"(201 bytes not shown, digest {hashlib.sha256(LONG.encode()).hexdigest()[:8]})"


def entry_with(*calls: CallRecord) -> Entry:
    return Entry(turn_id="t1", entry_id="e1", reply=Replied(LONG), triggered_by=LONG, set_out_to=LONG, calls=calls)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (812, "812 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (14 * 1024, "14 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (int(2.3 * 1024 * 1024), "2.3 MiB"),
    ],
)
def test_sizes_in_names(size: int, shown: str) -> None:
    """A name gives the size in bytes, KiB or MiB (RW-3)."""
    assert name_payload("x" * size).startswith(f"({shown} not shown, digest ")


def test_digest_in_names() -> None:
    """A name ends with the first four bytes of the SHA-256 of the text's UTF-8 bytes (RW-3)."""
    text = "é" * 300
    assert name_payload(text) == f"(600 bytes not shown, digest {hashlib.sha256(text.encode()).hexdigest()[:8]})"


def test_any_text_has_a_name() -> None:
    """Lone surrogates and NUL have a name too (RW-3, EV-10)."""
    assert name_payload("\ud800\x00" * 200).startswith("(800 bytes not shown")


@pytest.mark.parametrize("value", ["x" * 200, "é" * 200, 10**300, 1.5, True, None, {"a": "x" * 190}, ["x" * 190]])
def test_short_values_stay(value: Any) -> None:
    """Need is judged in characters; numbers and booleans always keep their type (RW-1)."""
    entry = entry_with(CallRecord("n", {"a": value}, "success"))
    assert not needs_fitting(entry)
    assert with_names(entry) is entry


@pytest.mark.parametrize(
    ("value", "text"),
    [(LONG, LONG), ({"a": LONG}, f'{{"a":"{LONG}"}}'), ([LONG, 1], f'["{LONG}",1]')],
)
def test_long_values_are_named(value: Any, text: str) -> None:
    """A long string is one piece, a large object or list another, judged and named by its JSON (RW-1)."""
    entry = entry_with(CallRecord("n", {"a": value, "b": 3, "c": "short"}, "success"))
    assert needs_fitting(entry)
    assert with_names(entry).calls[0].arguments == {"a": name_payload(text), "b": 3, "c": "short"}


def test_a_failed_calls_error_is_named() -> None:
    """The error of a failed call is the other thing that is fitted (RW-1)."""
    fitted = with_names(entry_with(CallRecord("n", {}, "error", LONG)))
    assert fitted.calls[0].error == LONG_NAME
    assert fitted.calls[0].outcome == "error"


@pytest.mark.parametrize("arguments", [LONG, [LONG]])
def test_arguments_that_are_no_object_are_one_piece(arguments: Any) -> None:
    """Raw text and lists as arguments are named as a whole (RW-1)."""
    assert isinstance(with_names(entry_with(CallRecord("n", arguments))).calls[0].arguments, str)
    assert len(with_names(entry_with(CallRecord("n", arguments))).calls[0].arguments) < 60


def test_nothing_else_is_fitted() -> None:
    """Texts, replies, names and argument names keep any length (RW-1, EN-8)."""
    entry = entry_with(CallRecord(LONG, {LONG: 1}, "success"))
    assert with_names(entry) is entry


def test_a_repeated_piece_is_rewritten_once() -> None:
    """The rewriter sees each different piece once, and its answer stands everywhere (RW-1)."""
    seen: list[str] = []

    def rewriter(text: str) -> str:
        seen.append(text)
        return f"(condensed) {len(seen)}"

    calls = (CallRecord("n", {"a": LONG, "b": LONG}), CallRecord("m", {"a": LONG, "b": LONG + "y"}))
    fitted = with_names(entry_with(*calls), rewriter=rewriter)
    assert seen == [LONG, LONG + "y"]
    assert [call.arguments for call in fitted.calls] == [
        {"a": "(condensed) 1", "b": "(condensed) 1"},
        {"a": "(condensed) 1", "b": "(condensed) 2"},
    ]


def test_a_stand_in_is_told_what_the_piece_is() -> None:
    """An argument, or an error: the question to a rewriter differs (RW-2)."""
    seen: list[tuple[str, str]] = []

    def stand_in(text: str, kind: str) -> str:
        seen.append((text, kind))
        return "short"

    entry = entry_with(CallRecord("n", {"a": LONG}, "error", LONG + "!"))
    fitted = with_stand_ins(entry, stand_in=stand_in)
    assert seen == [(LONG, "argument"), (LONG + "!", "error")]
    assert fitted.calls == (CallRecord("n", {"a": "short"}, "error", "short"),)


@pytest.mark.parametrize(
    ("account", "stands"),
    [("x" * 188, "used"), ("x" * 189, "not"), ("é" * 94, "used"), ("é" * 95, "not"), ("", "not"), (" \n", "not")],
)
def test_an_account_is_used_if_it_fits_with_its_prefix(account: str, stands: str) -> None:
    """In 200 bytes of UTF-8 (RW-1)."""
    assert condensed(account) == (f"(condensed) {account}" if stands == "used" else None)
    assert condensed(None) is None
    assert condensed("half a pair \ud800") is None


def test_a_fitted_entry_needs_no_fitting() -> None:
    """Fitting is finished in one go, and its result can be stored (RW-3)."""
    fitted = with_names(entry_with(CallRecord("n", {"a": LONG}, "error", LONG)))
    assert not needs_fitting(fitted)
    assert decode_entry(encode_entry(fitted), ordinal=None) == fitted


def test_the_given_entry_is_left_alone() -> None:
    """The original keeps its values (RW-3)."""
    entry = entry_with(CallRecord("n", {"a": LONG}))
    with_names(entry)
    assert entry == replace(entry, calls=(CallRecord("n", {"a": LONG}),))
