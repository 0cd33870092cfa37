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


FUNCTION_CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "search", "arguments": '{"q": 1.0}'}


@pytest.mark.parametrize(
    ("item", "calls", "answers"),
    [
        (FUNCTION_CALL, (Call("c1", "search", '{"q": 1.0}', "read"),), ()),
        ({"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "SELECT 1"},
         (Call("c2", "sql", '"SELECT 1"'),), ()),
        ({"type": "local_shell_call", "id": "l1", "call_id": "c3", "action": {"command": ["ls"]}},
         (Call("c3", "local_shell", '{"command":["ls"]}'),), ()),
        ({"type": "web_search_call", "id": "w1", "status": "completed", "action": {"query": "x"}},
         (Call("w1", "web_search", '{"query":"x"}'),), (Answer("w1"),)),
        ({"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}", "error": "no such page"},
         (Call("m1", "look"),), (Answer("m1", "error", "no such page"),)),
        ({"type": "file_search_call", "id": "f1", "status": "failed", "queries": ["x"]},
         (Call("f1", "file_search", '["x"]'),), (Answer("f1", "error", ""),)),
        ({"type": "reasoning", "id": "r1", "summary": []}, (), ()),
    ],
    ids=str,
)  # fmt: skip
def test_items_of_the_responses_format(
    item: dict[str, Any], calls: tuple[Call, ...], answers: tuple[Answer, ...]
) -> None:
    """A call with a call_id waits for its output; what the vendor ran is answered (CK-4)."""
    step = openai_step(item, kinds={"search": "read"})
    assert (step.role, step.value, step.calls, step.answers) == ("assistant", item, calls, answers)


def test_outputs_of_the_responses_format() -> None:
    """They answer, with the runner's word on success (CK-4, EN-4)."""
    for kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        item = {"type": kind, "call_id": "c1", "output": "error: none"}
        assert (openai_step(item).role, openai_step(item).answers) == ("tool", (Answer("c1"),))
        assert openai_step(item, error="broke").answers == (Answer("c1", "error", "broke"),)


def test_searches_for_tools_are_answered_by_whoever_ran_them() -> None:
    """An empty call_id says that the vendor did; a local shell names its call by the id of its output (CK-4)."""
    asked = {"type": "tool_search_call", "id": "ts1", "call_id": None, "arguments": {"goal": "mail"}}
    found: dict[str, Any] = {"type": "tool_search_output", "id": "ts2", "call_id": None, "tools": []}
    step = openai_step({"object": "response", "output": [asked, found]})
    assert ([call.id for call in step.calls], list(step.answers)) == (["ts1"], [Answer("ts1")])
    assert openai_step({**asked, "call_id": "c1"}).answers == ()
    assert openai_step({**found, "call_id": "c1"}).answers == (Answer("c1"),)
    assert openai_step({"type": "local_shell_call_output", "id": "c1", "output": "{}"}).answers == (Answer("c1"),)


def test_a_whole_response() -> None:
    """Its items are the content; several calls, the text, model and usage come from it (CK-4)."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm"}]}
    output = [{"type": "reasoning", "id": "r1", "summary": []}, said, FUNCTION_CALL, {**FUNCTION_CALL, "call_id": "c2"}]
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}}
    step = openai_step({"object": "response", "model": "gpt-5", "output": output, "usage": usage})
    assert step.value == output
    assert [call.id for call in step.calls] == ["c1", "c2"]
    assert (step.role, step.model, step.text, step.usage) == ("assistant", "gpt-5", "Hm", Usage(9, 4, 5))


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"choices": []}, "step.choices"),
        ({"choices": None}, "step.choices"),
        ({"choices": [{"message": None}]}, "step.choices[0].message"),
        ({"role": "assistant", "tool_calls": ["x"]}, "step.tool_calls[0]"),
        ({"role": "assistant", "tool_calls": {"id": "x"}}, "step.tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "c", "function": "f"}]}, "step.tool_calls[0].function"),
        ({"role": "assistant", "usage": 5}, "step.usage"),
        ({"role": "assistant", "usage": {"prompt_tokens": "5"}}, "step.usage.prompt_tokens"),
        ({"type": "function_call", "name": "f", "call_id": ""}, "step.call_id"),
        ({"object": "response", "output": ["x"]}, "step.output[0]"),
    ],
    ids=str,
)
def test_what_has_not_the_shape_of_its_format_is_refused_by_its_place(message: dict[str, Any], where: str) -> None:
    """Whatever a proxy of the vendor sends (CK-4)."""
    with pytest.raises(InvalidInput) as refused:
        openai_step(message)
    assert refused.value.where == where
