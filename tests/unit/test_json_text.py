"""JSON text and jsonb text: what comes back, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from turnledger.store.errors import InvalidInput
from turnledger.store.json_text import (
    Text,
    decode_json,
    decode_jsonb,
    encode_json,
    encode_jsonb,
    escape,
    nests_deeper,
    unescape,
)

# Every code point alone, surrogates included; a high one followed by a low one is a character's spelling.
any_text = st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc", "Cs", "Co", "So"])).filter(
    lambda text: text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
AWKWARD = ["\x00", "\x1a", "\x1a0000", "\\u0000", "\\", "\\\\u001a", "\ud800", "x\udfffy", "\u202eabc", "😀", "\n\t"]


@given(any_json)
def test_json_text_round_trip(value: Any) -> None:
    """What goes into JSON text comes back equal, and the text is valid UTF-8 (EV-10)."""
    text = encode_json(value)
    assert decode_json(text) == value
    assert "\n" not in text
    text.encode()


@given(any_json)
def test_jsonb_text_round_trip(value: Any) -> None:
    """What goes into jsonb text comes back equal, names of members included (EV-10)."""
    assert decode_jsonb(json.loads(encode_jsonb(value))) == value


@given(any_json)
def test_jsonb_text_can_be_stored(value: Any) -> None:
    """No string in jsonb text decodes to a NUL or a lone surrogate, which jsonb refuses (EV-10)."""
    for text in _strings(json.loads(encode_jsonb(value))):
        assert "\x00" not in text
        text.encode()


@given(st.text(st.characters(categories=["L", "Cc", "Cs"])))
def test_escape_is_reversible(text: str) -> None:
    """Escaping loses nothing, not even the escape character or surrogates side by side (EV-10)."""
    escaped = escape(text)
    assert unescape(escaped) == text
    assert "\x00" not in escaped
    escaped.encode()


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_texts_as_value_and_name(text: str) -> None:
    """NUL, lone surrogates, escape characters and spelled-out escapes survive both forms (EV-10)."""
    value = {text: [text]}
    assert decode_json(encode_json(value)) == value
    assert decode_jsonb(json.loads(encode_jsonb(value))) == value


def test_json_text_is_compact_and_readable() -> None:
    """JSON text has no spaces and keeps non-ASCII characters as they are."""
    assert encode_json({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'


def test_jsonb_escape_is_spelled_with_the_escape_character() -> None:
    """NUL becomes U+001A and 0000, the escape character U+001A and 001a."""
    assert json.loads(encode_jsonb("a\x00b\x1ac\ud800")) == "a\x1a0000b\x1a001ac\x1ad800"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "steps"),
        ([1, {"a": float("inf")}], "steps[1].a"),
        ({"content": {"amount": float("-inf")}}, "steps.content.amount"),
        ({"a b": b"bytes"}, "steps['a b']"),
        ({"a": [{}, {"b": object()}]}, "steps.a[1].b"),
        ({"a": {b"name": 1}}, "steps.a[b'name']"),
        ({"a": {float("nan"): 1}}, "steps.a[nan]"),
        ({"a": {1, 2}}, "steps.a"),
        ([[10**5000]], "steps[0][0]"),
    ],
)
@pytest.mark.parametrize("encode", [encode_json, encode_jsonb])
def test_refused_values_are_named_by_path(encode: Any, value: object, path: str) -> None:
    """NaN, infinities, bytes and other types are refused with the path of the value (EV-7, EV-10)."""
    with pytest.raises(InvalidInput) as caught:
        encode(value, where="steps")
    assert caught.value.where == path
    assert str(caught.value).startswith(f"{path} ")


def test_a_value_that_holds_itself_is_refused() -> None:
    """A circle is refused where it closes."""
    value: dict[str, Any] = {"a": []}
    value["a"].append(value)
    with pytest.raises(InvalidInput, match=r"value\.a\[0\] holds itself"):
        encode_json(value)


def test_one_object_used_twice_is_no_circle() -> None:
    """The path names the true cause although a container occurs twice before it."""
    shared = {"x": 1}
    with pytest.raises(InvalidInput, match=r"value\[2\] is of type bytes"):
        encode_json([shared, shared, b""])


def test_too_deep_a_value_is_refused() -> None:
    """A value nested beyond what can be written is refused, not a crash."""
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encode_json(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", '{"a":-Infinity}', "'a'", "[1,]", '"a\nb"'])
def test_what_is_not_json_is_refused(text: str) -> None:
    """Text that is no JSON is refused, NaN and infinities included."""
    with pytest.raises(InvalidInput, match="body is not JSON"):
        decode_json(text, where="body")


def test_error_about_text_does_not_repeat_the_text() -> None:
    """What was refused is not copied into the error, which may reach a log (OP-7)."""
    with pytest.raises(InvalidInput) as caught:
        decode_json('{"secret"')
    assert "secret" not in str(caught.value)


def test_text_type_takes_any_string_and_only_strings() -> None:
    """A pydantic field of type Text keeps NUL and lone surrogates and refuses other types (EV-10)."""

    class Model(BaseModel):
        text: Text

    assert Model(text="\ud800\x00").text == "\ud800\x00"
    assert Model(text="\ud800\x00").model_dump() == {"text": "\ud800\x00"}
    with pytest.raises(ValidationError, match="must be text, not int"):
        Model.model_validate({"text": 1})


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in _strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return []


def test_a_number_that_no_float_holds_is_refused_where_that_is_asked_for() -> None:
    """What JSON has no form for cannot be written again (EV-7)."""
    assert decode_json("[1e400]") == [float("inf")]
    assert decode_json("[1.5, -2]", numbers="finite") == [1.5, -2]
    with pytest.raises(InvalidInput, match="out of range"):
        decode_json("[1e400]", numbers="finite")


def test_levels_of_lists_and_objects_are_counted() -> None:
    """Also of what holds itself, however often."""
    itself: list[Any] = []
    itself += [itself, itself]
    values = [7, "[[[", [], [{}], {"a": 1, "b": ([],)}, itself]
    assert [nests_deeper(value, levels=2) for value in values] == [False, False, False, False, True, True]
    assert nests_deeper(itself, levels=1_000)
    assert [nests_deeper([[1]], levels=levels) for levels in (0, 1, 2)] == [True, True, False]
