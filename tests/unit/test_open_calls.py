"""Calls and answers over the saves of a turn."""

from dataclasses import replace

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


SOUND = Step.of(role="assistant", content="x")


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (replace(SOUND, role=5), "role"),
        (replace(SOUND, content={"a": 1}), "content"),
        (replace(SOUND, model=5), "model"),
        (replace(SOUND, backend=["x"]), "backend"),
        (replace(SOUND, tools_digest=b"x"), "tools_digest"),
        (replace(SOUND, usage={"input_tokens": 1}), "usage"),
        (replace(SOUND, usage=Usage(1.5)), "usage.input_tokens"),  # type: ignore[arg-type]  # what is refused
        (replace(SOUND, usage=Usage(output_tokens=True)), "usage.output_tokens"),
        (replace(SOUND, calls=("x",)), "calls[0]"),
        (replace(SOUND, calls=(Call(7, "n"),)), "calls[0].id"),  # type: ignore[arg-type]  # what is refused
        (replace(SOUND, calls=(Call("c", None),)), "calls[0].name"),  # type: ignore[arg-type]  # what is refused
        (replace(SOUND, calls=(Call("c", "n", {"a": 1}),)), "calls[0].arguments"),  # type: ignore[arg-type]  # likewise
        (replace(SOUND, calls=(Call("c", "n", "{}", "wrote"),)), "calls[0].kind"),  # type: ignore[arg-type]  # likewise
        (replace(SOUND, answers=("c",)), "answers[0]"),
        (replace(SOUND, answers=(Answer("c", "great"),)), "answers[0].outcome"),  # type: ignore[arg-type]  # likewise
        (replace(SOUND, answers=(Answer("c", "error", 5),)), "answers[0].error"),  # type: ignore[arg-type]  # likewise
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_that_could_not_be_completed_or_read_back_is_refused(step: Step, place: str) -> None:
    """By its place, before anything of it is saved (EV-7, CK-4)."""
    with pytest.raises(InvalidInput) as refused:
        OpenCalls().check([SOUND, step], allow_open=True)
    assert refused.value.where == f"steps[1].{place}"
