"""A file of chats, taken apart into turns, or refused with the number of the line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from turnledger.store import InvalidInput
from turnledger.workers.replay.conversations import Conversation, read_conversations


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*call_ids: str, text: str | None = None) -> dict[str, Any]:
    made = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in call_ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "fine"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chats.jsonl"


def _read(file: Path, *messages: dict[str, Any]) -> Conversation:
    file.write_text(json.dumps({"id": "a", "messages": messages}))
    (conversation,) = read_conversations(file)
    return conversation


def _refusal(file: Path, *lines: object) -> str:
    file.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InvalidInput) as refused:
        list(read_conversations(file))
    return str(refused.value)


def test_a_user_message_starts_a_turn_and_is_its_first_step(file: Path) -> None:
    conversation = _read(file, user("1"), calls("c"), result("c"), says("one"), user("2"), says("two"))
    assert [[step.role for step in turn.steps] for turn in conversation.turns] == [
        ["user", "assistant", "tool", "assistant"],
        ["user", "assistant"],
    ]
    assert [turn.ask for turn in conversation.turns] == ["1", "2"]
    assert [turn.place for turn in conversation.turns] == [0, 4]


def test_the_last_text_of_the_assistant_is_the_reply(file: Path) -> None:
    conversation = _read(file, user("1"), calls("c", text="I look"), result("c"), user("2"), calls("d"), result("d"))
    assert [turn.reply for turn in conversation.turns] == ["I look", None]


def test_a_round_is_saved_with_the_answers_to_its_calls(file: Path) -> None:
    """CK-4"""
    conversation = _read(file, user("1"), calls("a", "b"), result("b"), result("a"), calls("c"), result("c"), says("!"))
    assert [[step.role for step in steps] for steps in conversation.turns[0].rounds] == [
        ["user", "assistant", "tool", "tool"],
        ["assistant", "tool"],
        ["assistant"],
    ]


def test_a_call_that_is_never_answered_stays_with_the_steps_after_it(file: Path) -> None:
    """CK-4: a save may not leave a call open, a completion may."""
    conversation = _read(file, user("1"), calls("a"), result("a"), calls("b"), says("never mind"), says("bye"))
    assert [len(steps) for steps in conversation.turns[0].rounds] == [3, 3]


def test_what_stands_before_the_first_user_message_is_counted_and_not_played(file: Path) -> None:
    conversation = _read(file, {"role": "system", "content": "be nice"}, says("hello"), user("hi"))
    assert (len(conversation.turns), conversation.before) == (1, 2)


def test_a_chat_without_a_user_message_has_no_turn(file: Path) -> None:
    assert _read(file).turns == ()


def test_the_words_of_a_message_in_parts_are_its_text_parts(file: Path) -> None:
    parts = [
        {"type": "text", "text": "look at "},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "this"},
    ]
    assert _read(file, user(parts)).turns[0].ask == "look at this"


def test_keys_differ_between_runs_and_hold_any_id(file: Path) -> None:
    file.write_text('{"id": "a b/ü:\\ud800", "messages": []}\n{"id": 7, "messages": []}\n')
    first, second = read_conversations(file)
    assert first.key("r1") == "replay:r1:a%20b%2F%C3%BC%3A%ED%A0%80"
    assert second.key("r2") == "replay:r2:7"


def test_work_keys_differ_between_runs_conversations_and_turns(file: Path) -> None:
    conversation = _read(file, user("1"), user("2"))
    keys = {conversation.work_key(run, turn) for run in ("r1", "r2") for turn in conversation.turns}
    assert len(keys) == 4


def test_blank_lines_and_a_byte_order_mark_do_no_harm(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf{"id": "a", "messages": []}\n\n  \n{"id": "b", "messages": []}')
    assert [conversation.line for conversation in read_conversations(file)] == [1, 4]


GOOD = {"id": "good", "messages": []}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "a", "messages": [\n', "line 2 is not JSON: Expecting value: column 26"),
        ('{"id": "a", "messages": [NaN]}\n', "line 2 is not JSON: NaN is not allowed"),
        ([1], "line 2 must be an object with id and messages, not list"),
        ({"messages": []}, "line 2: id is missing or empty"),
        ({"id": "", "messages": []}, "line 2: id is missing or empty"),
        ({"id": True, "messages": []}, "line 2: id is missing or empty"),
        ({"id": "x" * 600, "messages": []}, "line 2: the id has 600 characters"),
        ({"id": "a"}, "line 2: messages is missing"),
        ({"id": "a", "messages": {}}, "line 2: messages is missing"),
        ({"id": "a", "messages": ["hi"]}, r"line 2: messages\[0\] must be a dict, not str"),
        ({"id": "a", "messages": [{"content": "hi"}]}, r"line 2: messages\[0\].role is missing or empty"),
        ({"id": "a", "messages": [user("1"), {"role": "tool"}]}, r"line 2: messages\[1\].tool_call_id is missing"),
        ({"id": "a", "messages": [user("1"), result("z")]}, r"line 2: .*steps\[1\] answers call 'z', which was never"),
        ({"id": "good", "messages": []}, "line 2: the id 'good' is that of line 1"),
    ],
)  # fmt: skip
def test_a_line_is_refused_by_its_number(file: Path, line: object, problem: str) -> None:
    message = _refusal(file, GOOD, line)
    assert re.search(problem, message), message
    assert str(file) in message


def test_bytes_that_are_not_utf_8_are_refused_by_their_place(file: Path) -> None:
    file.write_bytes(b'{"id": "a", "messages": []}\n{"id": "\xff"}\n')
    with pytest.raises(InvalidInput, match="line 2 is not UTF-8: invalid start byte at byte 8"):
        list(read_conversations(file))


def test_an_empty_file_a_folder_and_a_missing_file_are_refused(file: Path, tmp_path: Path) -> None:
    assert "holds no conversation" in _refusal(file, "\n")
    with pytest.raises(InvalidInput, match="there is no file"):
        list(read_conversations(tmp_path / "nothing"))
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        list(read_conversations(tmp_path))
