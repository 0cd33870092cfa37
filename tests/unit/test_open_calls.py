"""Calls and answers over the saves of a turn."""

from dataclasses import replace
from typing import Any

import pytest

from turnledger.store.errors import InvalidInput
from turnledger.store.open_calls import OpenCalls
from turnledger.store.steps import Answer, Call, Step, Usage


def calling(*ids: str) -> Step:
    return Step.of(role="assistant", content="", calls=[Call(each, "tool") for each in ids])


def answering(*ids: str) -> Step:
    return Step.of(role="tool", content="", answers=[Answer(each) for each in ids])


def test_answered_calls_may_be_saved() -> None:
    """A save whose calls are all answered is accepted, several at once included (CK-4)."""
    calls = OpenCalls()
    calls.advance(calls.check([calling("a", "b"), answering("b"), answering("a")], allow_open=False))
    assert calls.made == {"a", "b"}
    assert calls.open == set()


def test_a_step_may_answer_its_own_call() -> None:
    """A server tool's call and result stand in one message (CK-4)."""
    step = Step.of(role="assistant", content="", calls=[Call("a", "search")], answers=[Answer("a")])
    assert OpenCalls().check([step], allow_open=False).opened == set()


def test_an_open_call_is_refused_by_name() -> None:
    """A save that leaves a call unanswered is refused naming the call (CK-4)."""
    with pytest.raises(InvalidInput, match="steps leave call 'b' unanswered"):
        OpenCalls().check([calling("a", "b"), answering("a")], allow_open=False)


def test_park_may_leave_calls_open_and_a_later_save_answers_them() -> None:
    """Calls left open are remembered until they are answered (CK-4)."""
    calls = OpenCalls()
    calls.advance(calls.check([calling("a", "b")], allow_open=True))
    assert calls.open == {"a", "b"}
    calls.advance(calls.check([answering("a")], allow_open=True))
    with pytest.raises(InvalidInput, match="leave call 'b' unanswered"):
        calls.check([], allow_open=False)
    calls.advance(calls.check([answering("b")], allow_open=False))
    assert calls.open == set()


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([answering("x")], r"steps\[0\] answers call 'x', which was never made"),
        ([answering("a"), calling("a")], r"steps\[0\] answers call 'a', which was never made"),
        ([calling("a"), answering("a"), answering("a")], r"steps\[2\] answers call 'a', which is answered"),
        ([calling("a", "a")], r"steps\[0\] makes call 'a', which still waits"),
        ([calling("a"), calling("b"), calling("a")], r"steps\[2\] makes call 'a', which still waits"),
    ],
)
def test_calls_and_answers_that_do_not_match_are_refused(steps: list[Step], problem: str) -> None:
    """An answer to no call, a second answer and a repeated open call are refused with their place (CK-4)."""
    with pytest.raises(InvalidInput, match=problem):
        OpenCalls().check(steps, allow_open=True)


def test_earlier_saves_count() -> None:
    """Calls of earlier saves, answered or not, are known to later ones (CK-4)."""
    calls = OpenCalls.of([calling("a"), answering("a"), calling("b")])
    with pytest.raises(InvalidInput, match="call 'b', which still waits"):
        calls.check([calling("b")], allow_open=True)
    with pytest.raises(InvalidInput, match="call 'a', which is answered already"):
        calls.check([answering("a")], allow_open=True)
    assert calls.check([answering("b")], allow_open=False).closed == {"b"}


@pytest.mark.parametrize("saved", [0, 1, 2, 3])
def test_an_answered_call_id_may_come_again(saved: int) -> None:
    """Vendors reuse call ids within a turn: after its answer an id names another call (CK-4)."""
    steps = [calling("a"), answering("a"), calling("a"), answering("a")]
    calls = OpenCalls()
    calls.advance(calls.check(steps[:saved], allow_open=True))
    assert calls.open == ({"a"} if saved % 2 else set())
    calls.advance(calls.check(steps[saved:], allow_open=False))
    assert calls.open == set()


def test_a_check_changes_nothing() -> None:
    """A save that fails after its check leaves the turn's calls as they were (CK-4)."""
    calls = OpenCalls.of([calling("a")])
    calls.check([answering("a"), calling("b")], allow_open=True)
    assert (calls.made, calls.open) == ({"a"}, {"a"})


# An engine's own code is not always typed: these are made of whatever comes.
any_call: Any = Call
any_answer: Any = Answer
any_usage: Any = Usage
SOUND = Step.of(role="assistant", content="x")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"role": 5}, "role"),
        ({"content": {"a": 1}}, "content"),
        ({"model": 5}, "model"),
        ({"backend": ["x"]}, "backend"),
        ({"tools_digest": b"x"}, "tools_digest"),
        ({"usage": {"input_tokens": 1}}, "usage"),
        ({"usage": any_usage(1.5)}, "usage.input_tokens"),
        ({"usage": Usage(output_tokens=True)}, "usage.output_tokens"),
        ({"calls": ("x",)}, "calls[0]"),
        ({"calls": (any_call(7, "n"),)}, "calls[0].id"),
        ({"calls": (any_call("c", None),)}, "calls[0].name"),
        ({"calls": (any_call("c", "n", {"a": 1}),)}, "calls[0].arguments"),
        ({"calls": (any_call("c", "n", "{}", "wrote"),)}, "calls[0].kind"),
        ({"answers": ("c",)}, "answers[0]"),
        ({"answers": (any_answer("c", "great"),)}, "answers[0].outcome"),
        ({"answers": (any_answer("c", "error", 5),)}, "answers[0].error"),
    ],
    ids=str,
)
def test_a_step_that_could_not_be_completed_or_read_back_is_refused(changes: dict[str, Any], place: str) -> None:
    """By its place, before anything of it is saved (EV-7, CK-4)."""
    with pytest.raises(InvalidInput) as refused:
        OpenCalls().check([SOUND, replace(SOUND, **changes)], allow_open=True)
    assert refused.value.where == f"steps[1].{place}"
