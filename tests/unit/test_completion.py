"""What a completion writes: entry, events, how many steps become history, and what tells two completions apart."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.checkpoint.completion import Account, Draft, draft_completion, kept_steps, usable_receipt
from turnledger.store import CallRecord, InvalidInput, NoReplyOwed, Replied, Step, Undelivered, openai_step
from turnledger.store.entry import Reply, decode_entry
from turnledger.store.events import decode_rows

CALLING = openai_step(
    {
        "role": "assistant",
        "content": "I will look",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}],
    }
)
ANSWER = openai_step({"role": "tool", "tool_call_id": "c1", "content": "fine"})
WORDS = openai_step({"role": "assistant", "content": "Done"})
RAW_WORDS = Step.raw(role="assistant", content='{"content": ["D\\u006fne", "Done"]}')
ASK = openai_step({"role": "user", "content": "Please"})


def draft(
    reply: Reply | None = None,
    *,
    steps: Sequence[Step] = (),
    message_ids: Sequence[str] = (),
    rewriting: Any = "off",
    **account: Any,
) -> Draft:
    return draft_completion(
        Account(reply=NoReplyOwed() if reply is None else reply, **account),
        turn_id="t1",
        entry_id="e1",
        triggered_by="Please",
        message_ids=message_ids,
        steps=steps,
        rewriting=rewriting,
    )


def events(found: Draft) -> list[tuple[str, str | None, str | None]]:
    rows = decode_rows(str(found.fields["events"]))
    assert {row.occurred_at for row in rows} <= {""}
    return [(row.type, row.key, row.content) for row in rows]


def test_the_entry_is_what_was_stated_with_the_calls_of_the_steps() -> None:
    """Complete, and read back as it was (EN-1, EN-4)."""
    found = draft(Replied("Done", "r1"), steps=[CALLING, ANSWER, WORDS], decision="done", reviewer="ok")
    entry = decode_entry(str(found.fields["entry"]), ordinal=None)
    assert (entry.turn_id, entry.entry_id, entry.triggered_by, entry.decision) == ("t1", "e1", "Please", "done")
    assert (entry.reply, entry.reviewer) == (Replied("Done", "r1"), "ok")
    assert entry.calls == (CallRecord("look", {"q": 1}, "success", call_id="c1"),)
    assert found.fields["entry_bytes"] == len(str(found.fields["entry"]).encode())
    assert (found.fields["decision"], found.fields["fitting"]) == ("done", "none")


def test_stated_calls_replace_those_of_the_steps() -> None:
    """Also when there are none (EN-4)."""
    for calls in ((), (CallRecord("send"),)):
        found = draft(steps=[CALLING, ANSWER], calls=calls)
        assert decode_entry(str(found.fields["entry"]), ordinal=None).calls == calls


@pytest.mark.parametrize(
    ("rewriting", "wanted", "fitting"),
    [("off", "rewrite", "names"), ("off", "names", "names"), ("on", "rewrite", "rewrite"), ("on", "names", "names")],
)
def test_a_turn_waits_for_a_rewriter_where_there_is_one_and_the_engine_does_not_object(
    rewriting: Any, wanted: Any, fitting: str
) -> None:
    """A budget that ended the turn is such an objection; nothing over-long waits for nobody (RW-4, RW-5)."""
    long = draft(calls=(CallRecord("send", {"text": "x" * 201}),), fitting=wanted, rewriting=rewriting)
    assert long.fields["fitting"] == fitting
    assert draft(fitting=wanted, rewriting=rewriting).fields["fitting"] == "none"


def test_a_fitting_that_is_not_known_is_refused() -> None:
    """Or the entry would be stored as it is (RW-1)."""
    with pytest.raises(InvalidInput, match="rewrite or names"):
        draft(fitting="name")


@pytest.mark.parametrize(("length", "fitting"), [(200, "none"), (201, "names")])
def test_an_over_long_argument_asks_for_fitting(length: int, fitting: str) -> None:
    """Judged in characters (RW-1)."""
    assert draft(calls=(CallRecord("send", {"text": "é" * length}),)).fields["fitting"] == fitting
    assert draft(calls=(CallRecord("send", {}, "error", "é" * length),)).fields["fitting"] == fitting


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Replied("Done\x00", "r1"), ("message", "message:r1", '"Done\\u0000"')),
        (Replied("Done"), ("message", "message:reply:t1", '"Done"')),
        (Replied("Done", ""), ("message", "message:reply:t1", '"Done"')),
        (Undelivered("Done"), None),
        (NoReplyOwed(), None),
    ],
)
def test_only_a_delivered_reply_is_a_message(reply: Reply, message: tuple[str, str, str] | None) -> None:
    """With its vendor id, or one made of the turn's (EV-11, EN-12)."""
    handled = ("message_handled", "handled:m1", None)
    assert events(draft(reply, message_ids=["m1"])) == ([] if message is None else [message]) + [handled]


def test_calls_given_by_an_engine_may_be_nested_as_deeply_as_a_model_likes() -> None:
    """What no reader may be able to read is told as text, as it is of steps (EN-4, EN-8)."""
    deep: Any = {"a": 1}
    for _ in range(150):
        deep = [deep]
    given = (CallRecord("n", deep), CallRecord("n", {"a": [1]}))
    calls = decode_entry(str(draft(NoReplyOwed(), calls=given).fields["entry"]), ordinal=None).calls
    assert [call.arguments for call in calls] == ["[" * 150 + '{"a":1}' + "]" * 150, {"a": [1]}]


def test_a_failure_that_files_an_entry_handles_nothing() -> None:
    """Its work may be tried again (DL-1)."""
    found = draft(Undelivered("Done"), message_ids=["m1"], failure="delivery_failed")
    assert (events(found), found.fields["failure"]) == ([], "delivery_failed")


@pytest.mark.parametrize(
    ("reply", "steps", "kept"),
    [
        (Replied("Done"), [ASK, WORDS], 2),
        (NoReplyOwed(), [ASK, WORDS], 2),
        (Undelivered("Done"), [ASK, WORDS], 1),
        (Undelivered(""), [WORDS], 0),
        (Undelivered("Done"), [CALLING, ANSWER], 2),
        (Undelivered("Done"), [CALLING], 1),
        (Undelivered("Done"), [WORDS, ASK], 0),
        (Undelivered("Done"), [ASK, WORDS, ASK, WORDS, ASK], 1),
        (Undelivered("Done"), [ASK, CALLING, ANSWER, WORDS, ASK], 3),
        (Undelivered("Done"), [ASK, RAW_WORDS, ASK], 1),
        (Undelivered("Do"), [ASK, WORDS, ASK], 3),
        (Undelivered("assistant"), [ASK, WORDS, ASK], 3),
        (Undelivered("assistant"), [ASK, RAW_WORDS, ASK], 3),
        (Undelivered(""), [ASK, WORDS, ASK], 3),
        (Replied("Done"), [ASK, WORDS, ASK], 3),
        (Undelivered("Done"), [], 0),
    ],
)
def test_the_words_of_an_undelivered_reply_are_no_history(reply: Reply, steps: list[Step], kept: int) -> None:
    """Left out are the last assistant step, unless it makes calls, and earlier drafts with the same words (EN-12)."""
    assert kept_steps(steps, reply) == draft(reply, steps=steps).fields["kept_steps"] == kept


accounts = st.fixed_dictionaries(
    {
        "reply": st.sampled_from([Replied("a"), Replied("a", "r"), Undelivered("a"), Undelivered(""), NoReplyOwed()]),
        "set_out_to": st.sampled_from([None, "", "x"]),
        "reviewer": st.sampled_from([None, "x"]),
        "decision": st.sampled_from([None, "done", "failed"]),
        "steps": st.lists(st.sampled_from([ASK, WORDS]), max_size=3),
    }
)


@given(accounts, accounts)
def test_two_completions_have_one_digest_exactly_when_they_are_the_same(one: Any, other: Any) -> None:
    """By what they say and by the content of their steps (CK-5)."""
    assert (draft(**one).digest == draft(**other).digest) == (one == other)


def test_where_one_step_ends_and_the_next_begins_is_in_the_digest() -> None:
    """Two steps are not one (CK-5)."""
    one = [Step.raw(role="user", content="[1]"), Step.raw(role="user", content="[2]")]
    other = [Step.raw(role="user", content="[1]\n"), Step.raw(role="user", content="[2]")]
    assert draft(steps=one).digest != draft(steps=other).digest
    assert draft(steps=one[:1]).digest != draft(steps=one).digest


@pytest.mark.parametrize(
    "account",
    [
        {"reply": "Done"},
        {"set_out_to": 5},
        {"outcome": 5},
        {"outcome": "done", "blocked_on": "x"},
        {"decision": "Done!"},
        {"calls": ("x",)},
        {"calls": (CallRecord("send", {"a": float("inf")}),)},
        {"reply": Replied("Done", "r" * 513)},
    ],
    ids=str,
)
def test_what_is_refused_is_refused_before_anything_is_sent(account: dict[str, Any]) -> None:
    """Naming the field (EN-3, EN-6, EN-7)."""
    with pytest.raises(InvalidInput):
        draft(**account)


def test_all_fields_are_texts_that_utf8_can_carry() -> None:
    """Whatever was in them (EV-10)."""
    torture = "\x00 \ud800 𝄞 \u202e \\u0000 \x1a"
    found = draft(Replied(torture, torture), reviewer=torture, set_out_to=torture, message_ids=[torture])
    for value in found.fields.values():
        str(value).encode()
    assert json.loads(str(found.fields["entry"]))["reviewer"] == torture
    assert [row.key for row in decode_rows(str(found.fields["events"]))][1] is not None


@pytest.mark.parametrize("receipt", [None, "r1", "r" * 512])
def test_a_receipt_names_the_message(receipt: str | None) -> None:
    """As the vendor gave it (EV-11)."""
    assert usable_receipt(receipt) == receipt


def test_a_receipt_that_is_a_number_is_kept_as_text() -> None:
    """Many vendors number their messages (EV-11, DL-4)."""
    assert usable_receipt(5) == "5"


@pytest.mark.parametrize("receipt", ["", True, 1.5, b"r1", {"id": "r1"}, "r" * 513])
def test_a_receipt_that_can_name_no_message_is_none(receipt: object) -> None:
    """The reply was delivered all the same (DL-2)."""
    assert usable_receipt(receipt) is None
