"""The adapters for the message formats of OpenAI and Anthropic."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnledger.store.errors import InvalidInput
from turnledger.store.open_calls import OpenCalls
from turnledger.store.steps import Answer, Call, Step, Usage, decode_step, encode_step
from turnledger.store.vendor_steps import anthropic_step, openai_step

AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"


def openai_call(call_id: str, arguments: Any, *, name: str = "search") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_openai_assistant_message() -> None:
    """Calls come from tool_calls, with the arguments as the model wrote them and the kind by tool name (CK-4)."""
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [openai_call("c1", '{ "q":1.50}'), openai_call("c2", "{}", name="send")],
    }
    step = openai_step(message, backend="azure", model="gpt-5", tools_digest="ab", kinds={"search": "read"})
    assert step.role == "assistant"
    assert step.value == message
    assert step.calls == (Call("c1", "search", '{ "q":1.50}', "read"), Call("c2", "send", "{}"))
    assert (step.backend, step.model, step.tools_digest, step.text) == ("azure", "gpt-5", "ab", None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "{}"),
        (None, "{}"),
        ("{not json", '"{not json"'),
        ('{"a": NaN}', '"{\\"a\\": NaN}"'),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_openai_arguments_that_are_not_json(arguments: Any, expected: str) -> None:
    """Arguments that are no JSON are kept as a JSON string, absent ones are no arguments (CK-4)."""
    step = openai_step({"role": "assistant", "tool_calls": [openai_call("c1", arguments)]})
    assert step.calls[0].arguments == expected


def test_openai_custom_tool() -> None:
    """A custom tool's free text is its arguments (CK-4)."""
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    step = openai_step({"role": "assistant", "tool_calls": [call]})
    assert step.calls == (Call("c1", "sql", '"SELECT 1"'),)


def test_openai_tool_message_is_a_success_whatever_it_says() -> None:
    """Success is a recorded flag: an output that begins with "error:" can be a success (EN-4)."""
    message = {"role": "tool", "tool_call_id": "c1", "content": "error: none found"}
    assert openai_step(message).answers == (Answer("c1", "success"),)
    assert openai_step(message, error="timed out").answers == (Answer("c1", "error", "timed out"),)


def test_an_error_without_an_answer_is_refused() -> None:
    """A failure flag on a message that answers nothing would be lost, so it is refused (EN-4)."""
    with pytest.raises(InvalidInput, match="answers no call"):
        openai_step({"role": "assistant", "content": "x"}, error="timed out")


def test_openai_completion() -> None:
    """A whole completion gives its message, model and usage; cached tokens are part of the input (CK-4)."""
    completion = {
        "model": "gpt-5-2026",
        "choices": [{"message": {"role": "assistant", "content": "Done."}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}},
    }
    step = openai_step(completion)
    assert step.value == {"role": "assistant", "content": "Done."}
    assert (step.model, step.usage, step.text) == ("gpt-5-2026", Usage(100, 7, 60), "Done.")
    assert openai_step(completion, model="mine", usage=Usage(1, 2, 3)).usage == Usage(1, 2, 3)


def test_spoken_text() -> None:
    """The plain text of an assistant message is known, in either spelling of content; a user's is not."""
    parts = [{"type": "text", "text": "Hel"}, {"type": "image_url"}, {"type": "text", "text": "lo"}]
    assert openai_step({"role": "assistant", "content": parts}).text == "Hello"
    assert anthropic_step({"role": "assistant", "content": "Hello"}).text == "Hello"
    assert openai_step({"role": "assistant", "content": ""}).text is None
    assert openai_step({"role": "user", "content": "Hello"}).text is None


def test_anthropic_response() -> None:
    """Calls come from tool_use blocks, model and usage from the response; input counts cached tokens (CK-4)."""
    response = {
        "type": "message",
        "role": "assistant",
        "model": "claude-5",
        "content": [
            {"type": "text", "text": "I look it up."},
            {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "é"}},
            {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
        ],
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 85,
            "output_tokens": 7,
        },
    }
    step = anthropic_step(response, backend="anthropic", kinds={"search": "read"})
    assert step.value == response
    assert step.calls == (Call("t1", "search", '{"q":"é"}', "read"), Call("t2", "now", "{}"))
    assert (step.model, step.usage, step.text) == ("claude-5", Usage(100, 7, 85), "I look it up.")


def test_anthropic_results() -> None:
    """Results come in a user message; is_error is the recorded flag, its text the error (CK-4, EN-4)."""
    message = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "error: fine"},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no route"},
            {
                "type": "tool_result",
                "tool_use_id": "t3",
                "is_error": True,
                "content": [{"type": "text", "text": "bad"}],
            },
            {"type": "tool_result", "tool_use_id": "t4", "is_error": True},
            {"type": "text", "text": "and now?"},
        ],
    }
    assert anthropic_step(message).answers == (
        Answer("t1"),
        Answer("t2", "error", "no route"),
        Answer("t3", "error", "bad"),
        Answer("t4", "error", ""),
    )


def test_anthropic_server_tools() -> None:
    """A server tool is called and answered in one assistant message, errors by type (CK-4)."""
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    step = anthropic_step(
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": failed},
                {"type": "mcp_tool_use", "id": "m1", "name": "echo", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": []},
            ],
        }
    )
    assert [call.id for call in step.calls] == ["s1", "m1"]
    assert step.answers == (Answer("s1", "error", "max_uses_exceeded"), Answer("m1"))
    OpenCalls().check([step], allow_open=False)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"content": "x"}, r"steps\[1\]\.role"),
        ({"role": "tool", "content": "x"}, r"steps\[1\]\.tool_call_id"),
        ({"role": "assistant", "tool_calls": [{"id": "c1"}]}, r"steps\[1\]\.tool_calls\[0\]\.name"),
        ({"role": "assistant", "tool_calls": [openai_call("", "{}")]}, r"steps\[1\]\.tool_calls\[0\]\.id"),
        ({"role": "user", "content": float("nan")}, r"steps\[1\]\.content\.content"),
        ("hello", r"steps\[1\] must be a dict"),
    ],
)
def test_broken_openai_messages_are_refused(message: Any, place: str) -> None:
    """A message that lacks what a step needs is refused with its place (CK-4)."""
    with pytest.raises(InvalidInput, match=place):
        openai_step(message, where="steps[1]")


def test_broken_anthropic_messages_are_refused() -> None:
    """The same for Anthropic's format; the place counts every block (CK-4)."""
    blocks = [{"type": "text", "text": "x"}, {"type": "tool_use", "name": "n"}]
    with pytest.raises(InvalidInput, match=r"step\.content\[1\]\.id"):
        anthropic_step({"role": "assistant", "content": blocks})
    with pytest.raises(InvalidInput, match=r"step\.content\[0\]\.tool_use_id"):
        anthropic_step({"role": "user", "content": [{"type": "tool_result"}]})


@pytest.mark.skipif(not AIRLINE.exists(), reason="the sample of real conversations is not beside the project")
def test_real_conversations() -> None:
    """Every message of 200 real conversations becomes a step whose wire form gives it back (CK-4, CK-6)."""
    for line in AIRLINE.read_text().splitlines():
        messages = json.loads(line)["messages"]
        steps = [openai_step(message) for message in messages]
        assert [step.value for step in steps] == messages
        assert [decode_step(encode_step(step)) for step in steps] == steps
        for turn in _turns(steps):
            OpenCalls().check(turn, allow_open=False)


def _turns(steps: list[Step]) -> list[list[Step]]:
    turns: list[list[Step]] = []
    for step in steps:
        if step.role == "user":
            turns.append([])
        turns[-1].append(step)
    return turns
