"""Entries: what they hold, what is refused, and how they are stored."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.store.entry import (
    CallRecord,
    Entry,
    NoReplyOwed,
    Replied,
    Reply,
    Undelivered,
    calls_of,
    decode_entry,
    encode_entry,
)
from turnledger.store.errors import CorruptData, InvalidInput
from turnledger.store.steps import Answer, Call, Step

MINIMAL = Entry(turn_id="t1", entry_id="e1", reply=NoReplyOwed())
CALLING = (
    '{"turn_id":"t1","entry_id":"e1","reply":{"kind":"no_reply_owed"},'
    '"calls":[{"name":"n","outcome":"success","arguments":%s}]}'
)
FULL = Entry(
    turn_id="t1",
    entry_id="e1",
    completed_at="2026-11-30T16:20:16.123Z",
    ordinal=7,
    triggered_by="Please book it.",
    set_out_to="Book the flight.",
    calls=(
        CallRecord("search", {"q": "é", "limit": 3}, "success", kind="read", call_id="c1"),
        CallRecord("book", {"id": "F1"}, "error", "sold out", call_id="c2"),
    ),
    reply=Replied("Booked.", "1718.002"),
    reviewer="The booking landed.",
    outcome="blocked",
    blocked_on="payment",
    decision="done",
)

any_text = st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc", "Co"]) | st.sampled_from(["\ud800", "\x1a"]))
optional_text = st.none() | any_text
entries = st.builds(
    Entry,
    turn_id=st.just("t1"),
    entry_id=st.just("e1"),
    reply=st.builds(Replied, any_text, optional_text) | st.builds(Undelivered, any_text) | st.just(NoReplyOwed()),
    triggered_by=optional_text,
    set_out_to=optional_text,
    reviewer=optional_text,
    outcome=st.just("blocked"),
    blocked_on=optional_text,
    calls=st.lists(
        st.builds(
            CallRecord,
            name=any_text,
            arguments=st.dictionaries(any_text, st.integers() | any_text | st.booleans() | st.none(), max_size=3),
            outcome=st.just("error"),
            error=optional_text,
            kind=st.sampled_from(["read", "write", None]),
        ),
        max_size=2,
    ).map(tuple),
)


@given(entries)
def test_stored_form_round_trip(entry: Entry) -> None:
    """Every field comes back verbatim, NUL and lone surrogates included (EN-8, EV-10)."""
    text = encode_entry(entry)
    text.encode()
    assert decode_entry(text, ordinal=None) == entry


def test_stored_form() -> None:
    """The stored JSON holds every field that is there but the ordinal, which has its own column (EN-1)."""
    assert json.loads(encode_entry(FULL)) == {
        "turn_id": "t1",
        "entry_id": "e1",
        "completed_at": "2026-11-30T16:20:16.123Z",
        "triggered_by": "Please book it.",
        "set_out_to": "Book the flight.",
        "reviewer": "The booking landed.",
        "outcome": "blocked",
        "blocked_on": "payment",
        "calls": [
            {
                "name": "search",
                "arguments": {"q": "é", "limit": 3},
                "outcome": "success",
                "kind": "read",
                "call_id": "c1",
            },
            {"name": "book", "arguments": {"id": "F1"}, "outcome": "error", "error": "sold out", "call_id": "c2"},
        ],
        "reply": {"kind": "replied", "text": "Booked.", "receipt": "1718.002"},
        "decision": "done",
    }
    assert decode_entry(encode_entry(FULL), ordinal=7) == FULL


def test_absent_fields_are_absent() -> None:
    """A field without a value is not in the stored JSON (EN-1)."""
    assert json.loads(encode_entry(MINIMAL)) == {
        "turn_id": "t1",
        "entry_id": "e1",
        "reply": {"kind": "no_reply_owed"},
    }


@pytest.mark.parametrize(
    "reply", [Replied("", None), Replied("x", "r1"), Undelivered(""), Undelivered("x"), NoReplyOwed()]
)
def test_the_three_replies(reply: Reply) -> None:
    """Replied, undelivered (also without text) and no reply owed are told apart (EN-3)."""
    assert decode_entry(encode_entry(replace(MINIMAL, reply=reply)), ordinal=None).reply == reply


def test_reply_has_no_default() -> None:
    """The caller states what became of the reply (EN-3)."""
    with pytest.raises(TypeError, match="reply"):
        Entry(turn_id="t1", entry_id="e1")  # type: ignore[call-arg]  # the fault that is tested
    with pytest.raises(InvalidInput, match="reply must be"):
        replace(MINIMAL, reply="hello")  # type: ignore[arg-type]  # the fault that is tested


def test_no_field_holds_a_reviewers_notes() -> None:
    """Notes to the next round have no field and cannot be stored (EN-5)."""
    assert [name for name in Entry.__dataclass_fields__ if "note" in name or "correction" in name] == []


@pytest.mark.parametrize("decision", ["done", "failed"])
def test_evidence_is_kept_when_blocked(decision: str) -> None:
    """Evidence is kept with the outcome blocked, whatever the decision (EN-6)."""
    entry = replace(MINIMAL, outcome="blocked", blocked_on="payment", decision=decision)
    assert decode_entry(encode_entry(entry), ordinal=None).blocked_on == "payment"


@pytest.mark.parametrize("outcome", [None, "done", "Blocked"])
def test_evidence_with_another_outcome_is_refused(outcome: str | None) -> None:
    """Evidence that comes with another outcome is refused (EN-6)."""
    with pytest.raises(InvalidInput, match="blocked_on is given"):
        replace(MINIMAL, outcome=outcome, blocked_on="payment")


@pytest.mark.parametrize("decision", ["done", "self_iterate", "a", "a" * 32, "x9_"])
def test_decisions(decision: str) -> None:
    """A decision is one short word (EN-7)."""
    assert replace(MINIMAL, decision=decision).decision == decision


@pytest.mark.parametrize("decision", ["", "Done", "9a", "_a", "a" * 33, "a b", "a\n", 3])
def test_other_decisions_are_refused(decision: Any) -> None:
    """Anything else is refused (EN-7)."""
    with pytest.raises(InvalidInput, match="decision must be one word"):
        replace(MINIMAL, decision=decision)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("turn_id", "a b"),
        ("entry_id", None),
        ("completed_at", "yesterday"),
        ("triggered_by", b"x"),
        ("set_out_to", 1),
        ("reviewer", ["x"]),
    ],
)
def test_other_wrong_fields_are_refused_by_name(field: str, value: Any) -> None:
    """A value of the wrong type or form is refused with the field's name (EN-1)."""
    with pytest.raises(InvalidInput, match=field):
        replace(MINIMAL, **{field: value})


def test_calls_in_order_of_issue() -> None:
    """One line a call in order of issue, each with the outcome that was recorded for it (EN-4)."""
    steps = [
        Step.of(role="assistant", content=1, calls=[Call("c1", "search", '{"q": 1.5}', "read"), Call("c2", "book")]),
        Step.of(role="tool", content="error: none", answers=[Answer("c2", "error", "sold out")]),
        Step.of(role="tool", content="error: none", answers=[Answer("c1", "success")]),
        Step.of(role="assistant", content=1, calls=[Call("c3", "wait")]),
        Step.of(role="assistant", content=1, calls=[Call("c3", "wait")]),
    ]
    assert calls_of(steps) == (
        CallRecord("search", {"q": 1.5}, "success", kind="read", call_id="c1"),
        CallRecord("book", {}, "error", "sold out", call_id="c2"),
        CallRecord("wait", {}, "unknown", call_id="c3"),
    )


def test_a_call_id_that_comes_again_after_its_answer_is_another_call() -> None:
    """Vendors reuse call ids within a turn; a write that took effect is listed all the same (EN-4)."""
    steps = [
        Step.of(role="assistant", content=1, calls=[Call("c1", "search")]),
        Step.of(role="tool", content=1, answers=[Answer("c1")]),
        Step.of(role="assistant", content=1, calls=[Call("c1", "book")]),
        Step.of(role="tool", content=1, answers=[Answer("c1", "error", "sold out")]),
    ]
    assert [(call.name, call.outcome) for call in calls_of(steps)] == [("search", "success"), ("book", "error")]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"n":1,"f":1.5,"t":true,"z":null}', {"n": 1, "f": 1.5, "t": True, "z": None}),
        ("[1, 2]", [1, 2]),
        ('"not json"', "not json"),
        ("", {}),
        ('{"n":1e999}', '{"n":1e999}'),
        ("9" * 5000, "9" * 5000),
        ('{"to":"ann","to":"bob"}', '{"to":"ann","to":"bob"}'),
        ('{"in":[{"a":1,"a":1}]}', '{"in":[{"a":1,"a":1}]}'),
        ('{"n":12345678901234567890.5}', '{"n":12345678901234567890.5}'),
        ('{"n":0.1000000000000000055511151231257827}', '{"n":0.1000000000000000055511151231257827}'),
        ('{"a":19.90,"b":1E2,"c":0.30000000000000004,"d":-0.0}', {"a": 19.9, "b": 100.0, "c": 0.1 + 0.2, "d": -0.0}),
        ('{"n":1e-999}', '{"n":1e-999}'),
    ],
)
def test_argument_values_keep_their_types(arguments: str, value: object) -> None:
    """Arguments are JSON values; what no value can hold stays the text that the model wrote (EN-4, EN-8)."""
    (call,) = calls_of([Step.of(role="assistant", content=1, calls=[Call("c1", "n", arguments)])])
    entry = replace(MINIMAL, calls=(call,))
    assert call.arguments == value
    assert decode_entry(encode_entry(entry), ordinal=None).calls[0].arguments == value


def test_arguments_that_not_every_reader_could_read_stay_text() -> None:
    """How deep Python can read hangs on how deep it is itself: what one process stores, the next may refuse (EN-8)."""
    kept, text = "[" * 100 + "]" * 100, "[" * 101 + "]" * 101
    steps = [Step.of(role="assistant", content=1, calls=[Call("c1", "n", kept), Call("c2", "n", text)])]
    assert [isinstance(call.arguments, list) for call in calls_of(steps)] == [True, False]
    assert calls_of(steps)[1].arguments == text
    with pytest.raises(InvalidInput, match=r"calls\[1\].arguments is nested more than 100 levels deep"):
        replace(MINIMAL, calls=(CallRecord("n", json.loads(kept)), CallRecord("n", json.loads(text))))


def test_unstated_kind_is_a_write() -> None:
    """Only a call that is stated to be a read counts as one (EN-4)."""
    assert [CallRecord("n", kind=kind).is_read for kind in ("read", "write", None)] == [True, False, False]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"name": 1}, "call.name"),
        ({"outcome": "maybe"}, "call.outcome"),
        ({"kind": "delete"}, "call.kind"),
        ({"error": b"x", "outcome": "error"}, "call.error"),
        ({"error": "x", "outcome": "success"}, "call.error"),
    ],
)
def test_wrong_calls_are_refused(members: dict[str, Any], problem: str) -> None:
    """A call with a wrong field, or an error beside another outcome, is refused (EN-4)."""
    with pytest.raises(InvalidInput, match=problem):
        CallRecord(**{"name": "n", **members})


def test_arguments_that_json_cannot_hold_are_refused_by_path() -> None:
    """NaN in a call's arguments is refused with its path (EN-8)."""
    with pytest.raises(InvalidInput, match=r"entry\.calls\[0\]\.arguments\.amount is nan"):
        encode_entry(replace(MINIMAL, calls=(CallRecord("pay", {"amount": float("nan")}),)))


def test_members_of_a_later_version_are_ignored() -> None:
    """A reader of an older version takes what it knows (EV-7)."""
    text = encode_entry(MINIMAL)[:-1] + ',"mood":"good"}'
    assert decode_entry(text, ordinal=3) == replace(MINIMAL, ordinal=3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "shape"),
        ("null", "shape"),
        ("{}", "'turn_id' is missing"),
        ('{"turn_id":"t1","entry_id":"e1"}', "'reply' is missing"),
        ('{"turn_id":"t1","entry_id":"e1","reply":{"kind":"sent"}}', "reply.kind is not known"),
        ('{"turn_id":"t1","entry_id":"e1","reply":"x"}', "shape"),
        ('{"turn_id":"t1","entry_id":"e1","reply":{"kind":"replied","text":3}}', "reply.text"),
        ('{"turn_id":"t1","entry_id":"e1","reply":{"kind":"no_reply_owed"},"calls":[1]}', "shape"),
        ('{"turn_id":"t1","entry_id":"e1","reply":{"kind":"no_reply_owed"},"calls":[{"name":"x"}]}', "'arguments'"),
        ('{"turn_id":"t1","entry_id":"e1","reply":{"kind":"no_reply_owed"},"triggered_by":7}', "triggered_by"),
        (CALLING % "1e999", "out of range"),
        (CALLING % '{"a":-1e999}', "out of range"),
        (CALLING % ("[" * 101 + "]" * 101), "nested more than 100 levels deep"),
    ],
)
def test_a_broken_entry_is_reported_clearly(text: str, problem: str) -> None:
    """A row that is no entry gives one kind of error that names the member (BL-8)."""
    with pytest.raises(CorruptData, match=problem):
        decode_entry(text, ordinal=1)
