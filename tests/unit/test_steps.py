"""Steps: content byte for byte, and the wire form."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.store.errors import CorruptData, InvalidInput
from turnledger.store.steps import Answer, Call, Step, Usage, decode_step, decode_stored, encode_step, stated_usage

any_text = st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc", "Co"]) | st.sampled_from(["\ud800", "\x1a"]))
optional_text = st.none() | any_text
calls = st.builds(
    Call,
    id=any_text,
    name=any_text,
    arguments=st.sampled_from(["{}", '{ "b":1.50,\n"a":2}', '"not json"', '"\\ud800\\u0000"']),
    kind=st.sampled_from(["read", "write", None]),
)
answers = st.builds(
    Answer, call_id=any_text, outcome=st.sampled_from(["success", "error", "unknown"]), error=optional_text
)
steps = st.builds(
    Step.of,
    role=any_text.filter(bool),
    content=any_text | st.lists(any_text),
    calls=st.lists(calls, max_size=3),
    answers=st.lists(answers, max_size=3),
    backend=optional_text,
    model=optional_text,
    tools_digest=optional_text,
    usage=st.none() | st.builds(Usage, st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12)),
)
CALLING = Step.of(
    role="assistant",
    content="é",
    calls=[Call("c1", "search", '{"q": 1}', "read"), Call("c2", "send", '"x"')],
    answers=[Answer("c0"), Answer("c9", "error", "no\nroute")],
    backend="azure",
    model="gpt-5",
    tools_digest="ab12",
    usage=Usage(10, 20, 5),
)


@given(steps)
def test_wire_form_round_trip(step: Step) -> None:
    """A step comes back from its wire form as it was, every text included (EV-10, CK-6)."""
    text = encode_step(step)
    text.encode()
    assert decode_step(text) == step


@pytest.mark.parametrize(
    "content",
    [
        '{"b":1, "a":1.50, "a":2e5}',
        " [1 ,\n 2]\n",
        '"\\u0000\\ud800 \\u00e9"',
        "null",
        "1E400",
        '"\n"'.replace("\n", "\\n"),
    ],
)
def test_raw_content_is_kept_byte_for_byte(content: str) -> None:
    """Spacing, member order, number spelling and escapes of raw content stay as they are (EV-10, CK-6)."""
    step = Step.raw(role="assistant", content=content, calls=[Call("c1", "n")])
    assert step.content == content
    assert decode_step(encode_step(step)).content == content


def test_raw_content_can_always_be_sent() -> None:
    """A surrogate code point in raw text is spelled as its escape: the same JSON, in bytes that exist."""
    step = Step.raw(role="user", content='"\ud800"')
    assert step.content == '"\\ud800"'
    assert step.value == "\ud800"


@pytest.mark.parametrize("content", ["", "{", "NaN", '{"a":Infinity}', "[1]]"])
def test_raw_content_that_is_not_json_is_refused(content: str) -> None:
    """Text that is no JSON is refused with its place, NaN and Infinity included (CK-4)."""
    with pytest.raises(InvalidInput, match=r"steps\[3\]\.content is not JSON"):
        Step.raw(role="user", content=content, where="steps[3]")


def test_content_that_is_not_json_is_named_by_path() -> None:
    """A value without a JSON form is refused with its path (CK-4)."""
    with pytest.raises(InvalidInput, match=r"^steps\[2\]\.content\.amount is nan"):
        Step.of(role="user", content={"amount": float("nan")}, where="steps[2]")


@pytest.mark.parametrize("role", ["", None, 3])
def test_role_is_needed(role: Any) -> None:
    """A step without a role is refused (CK-4)."""
    with pytest.raises(InvalidInput, match=r"step\.role is missing"):
        Step.of(role=role, content="")
    with pytest.raises(InvalidInput, match=r"step\.role is missing"):
        Step.raw(role=role, content="1")


def test_value_is_the_decoded_content() -> None:
    """The content reads back as the value it was made of."""
    assert Step.of(role="user", content={"a": [1, "\x00"]}).value == {"a": [1, "\x00"]}


def test_wire_form_is_payload_arguments_content() -> None:
    """The three parts stand on a line each; the payload holds what SQL looks into (CK-4)."""
    payload, arguments, content = encode_step(CALLING).split("\n")
    assert json.loads(payload) == {
        "role": "assistant",
        "calls": [{"id": "c1", "name": "search", "kind": "read"}, {"id": "c2", "name": "send"}],
        "answers": [
            {"call_id": "c0", "outcome": "success"},
            {"call_id": "c9", "outcome": "error", "error": "no\nroute"},
        ],
        "backend": "azure",
        "model": "gpt-5",
        "tools_digest": "ab12",
        "usage": {"input_tokens": 10, "output_tokens": 20, "cached_tokens": 5},
    }
    assert json.loads(arguments) == ['{"q": 1}', '"x"']
    assert content == '"é"'


def test_absent_members_are_left_out_of_the_wire_form() -> None:
    """What a step does not have takes no room."""
    assert encode_step(Step.of(role="user", content="hi")) == '{"role":"user"}\n[]\n"hi"'


def test_stored_step_comes_back_without_arguments() -> None:
    """Postgres gives back payload and content; the arguments of calls are not in it (CK-4)."""
    payload, _, content = encode_step(CALLING).split("\n", 2)
    step = decode_stored(json.loads(payload), content)
    assert [call.arguments for call in step.calls] == ["", ""]
    assert (step.role, step.content, step.answers) == (CALLING.role, CALLING.content, CALLING.answers)
    assert (step.backend, step.model, step.tools_digest) == ("azure", "gpt-5", "ab12")
    assert step.usage == CALLING.usage


def test_stored_names_are_unescaped() -> None:
    """Texts that jsonb cannot hold come back from it as they were (EV-10)."""
    step = Step.of(role="assistant", content=1, calls=[Call("c\x00", "n\ud800\x1a")])
    payload, _, content = encode_step(step).split("\n", 2)
    assert decode_stored(json.loads(payload), content).calls == (Call("c\x00", "n\ud800\x1a", ""),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{}\n[]\n1",
        "x\n[]\n1",
        "[]\n[]\n1",
        '{"role":"user"}\n["{}"]\n1',
        '{"role":"a","calls":[{}]}\n[""]\n1',
    ],
)
def test_a_broken_wire_form_is_reported(text: str) -> None:
    """What is no saved step is reported as such, not as a stray error (CK-6)."""
    with pytest.raises(CorruptData, match="saved step cannot be read"):
        decode_step(text)


def test_a_broken_stored_payload_is_reported() -> None:
    """The same for a row of Postgres (EV-7)."""
    with pytest.raises(CorruptData, match="member 'role' is missing"):
        decode_stored({}, "1")
    with pytest.raises(CorruptData):
        decode_stored(["role"], "1")


def test_spoken_text_is_not_stored() -> None:
    """The plain text serves while the turn runs; it is neither stored nor compared."""
    step = Step.of(role="assistant", content="hi", text="hi")
    assert decode_step(encode_step(step)).text is None
    assert decode_step(encode_step(step)) == step


@given(steps)
def test_what_a_step_cost_is_known_without_its_content(step: Step) -> None:
    """The model and the tokens, as the whole step has them (OP-4)."""
    stated = stated_usage(encode_step(step))
    assert stated == (None if step.usage is None else (step.model, step.usage))


@pytest.mark.parametrize(
    "usage",
    [
        "null",
        "7",
        "{}7",
        '{"input_tokens": "9"}',
        '{"input_tokens": -1}',
        '{"input_tokens": true}',
        '{"output_tokens": 10000000000000}',
        '{"cached_tokens": 1.5}',
        '{"other": 1}',
    ],
)
def test_a_cost_that_cannot_be_counted_is_none(usage: str) -> None:
    """No figure for whoever watches may stop a commit (OP-4)."""
    assert stated_usage(f'{{"role": "assistant", "usage": {usage}}}\n[]\n{{}}') is None
