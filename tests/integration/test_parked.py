"""Parked turns: what comes in for them, what the log follows, and how often they may be taken up."""

import time
from typing import Any

import pytest

from tests.proxy import DropReply, Proxy
from tests.reconciling import lapse
from tests.stores import Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import (
    AlreadyRunning,
    CheckpointUnavailable,
    OversizedPayload,
    StaleTurn,
    TurnEnded,
    Turns,
)
from turnledger.checkpoint.errors import SliceLimit
from turnledger.store import InvalidInput, Message, Replied, Step, Usage
from turnledger.store.activity import (
    authorization_completed,
    authorization_requested,
    message_updated,
    messages_summarized,
    tool_ended,
    tool_started,
)
from turnledger.store.events import EventRow

WAIT_S = 0.3
ROUNDED_MS = 3  # each holder's time is a whole number


def test_input_for_a_parked_turn_comes_once_with_its_resume(stores: Stores, node: Turns) -> None:
    """Also when the message arrives twice (CK-12)."""
    turn = begin(node, messages=[Message("m-1", "Hello")])
    turn.park(reason="waiting", steps=[user("Hello"), assistant("One moment")])
    for _ in range(2):
        node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=user("Hurry"))
    assert stores.texts() == ["Hello", "Hurry"]
    with pytest.raises(StaleTurn):
        turn.complete(reply=Replied("without the input"))
    resumed = stores.node().resume(turn.turn_id)
    assert [step.value["content"] for step in resumed.steps] == ["Hello", "One moment", "Hurry"]
    resumed.complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    assert [event.payload.message_id for event in stores.events() if event.type == "message_handled"] == ["m-1", "m-2"]


def test_input_for_a_turn_that_is_not_parked_is_refused(stores: Stores, node: Turns) -> None:
    """Its holder takes it; nothing is written (CK-12)."""
    turn = begin(node)
    with pytest.raises(AlreadyRunning):
        node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=user("Hurry"))
    turn.abandon()
    with pytest.raises(TurnEnded):
        node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=user("Hurry"))
    assert stores.texts() == []


def test_input_is_not_appended_behind_the_back_of_an_owner_that_may_return(stores: Stores, node: Turns) -> None:
    """Taken for lost, it is back: what it writes then is not refused for a message it never saw (CK-12, CK-2)."""
    turn = begin(node)
    turn.save(steps=[user("one")])
    stores.redis.hset(
        stores.keys.record(turn.turn_id), mapping={"state": "parked", "reason": "owner_lost", "lease_until": 0}
    )
    with pytest.raises(AlreadyRunning):
        node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=user("Hurry"))
    assert stores.texts() == []
    turn.save(steps=[user("two")])
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    assert [step.value["content"] for step in begin(node).history()] == ["one", "two", "Done"]


def test_a_node_that_has_parked_a_turn_is_not_sure_to_own_it(stores: Stores, node: Turns) -> None:
    """Others may have it from then on: it commits nothing of it past Redis (CK-2, FL-3)."""
    turn = begin(node)
    turn.save(steps=[user("one")])
    assert turn._session.owns_surely()
    turn.park(reason="waiting")
    assert not turn._session.owns_surely()


def test_a_turn_that_could_not_be_parked_goes_on(stores: Stores) -> None:
    """Redis had done it, but its answer was lost: from the next save on it runs, its lease kept (CK-2, CK-11)."""
    node = stores.node()
    turn = begin(node)
    with Proxy(stores.redis_url) as proxy:
        slow = stores.node(redis_url=proxy.url, redis_retries=0)
        reliable, turn._session._records = turn._session._records, slow._records
        proxy.arm(DropReply(b"waiting"))
        with pytest.raises(CheckpointUnavailable):
            turn.park(reason="waiting")
        turn._session._records = reliable
    node._services.leases.round()
    turn.save(steps=[user("one")])
    node._services.leases.round()
    assert stores.state(turn.turn_id) == "running"
    assert turn._session.owns_surely()
    with pytest.raises(AlreadyRunning):
        stores.node().resume(turn.turn_id)


def test_the_log_follows_a_wait_for_permission(stores: Stores, node: Turns) -> None:
    """Asked for at the park, over at the resume, each once (EV-12)."""
    turn = begin(node)
    turn.park(reason="authorization", steps=[user("q"), calling("c1")])
    stores.node().resume(turn.turn_id).complete(reply=Replied("done"))
    stores.drain()
    types = [name for name in stores.types(turn.turn_id) if name.startswith("authorization")]
    assert types == ["authorization_requested", "authorization_completed"]


def test_activity_is_written_at_once_and_once(stores: Stores, node: Turns) -> None:
    """Keyed, without arguments, before the turn completes (EV-12, EV-5)."""
    turn = begin(node, messages=[Message("m-1", "Hello")])
    events = [
        tool_started(turn.turn_id, call_id="c1", name="look"),
        tool_ended(turn.turn_id, call_id="c1", name="look", outcome="success"),
        message_updated("m-1", state={"read": True}, update_id="u-1"),
    ]
    for _ in range(2):
        turn.record(*events)
    assert stores.types(turn.turn_id)[2:] == ["tool_execution_started", "tool_execution_ended", "message_updated"]
    conflicting = tool_ended(turn.turn_id, call_id="c1", name="look", outcome="error")
    recorded = turn.record(conflicting)
    assert recorded is not None
    assert recorded.conflicts == (f"tool-end:{turn.turn_id}:c1",)


def test_usage_time_and_calls_add_up_over_slices(stores: Stores) -> None:
    """The wait between two of them is not counted, and of a holder that died what it had saved is (CK-10)."""
    began = time.monotonic()
    first = begin(stores.node())
    first.park(reason="again", steps=[_asked("one", Usage(10, 4, 3)), _asked("two", Usage(1, 2, 0)), user("q")])
    parked, stopped = stores.records.read(first.turn_id)[0].ran_ms, first.ran_ms
    time.sleep(WAIT_S)
    second = stores.node().resume(first.turn_id)
    second.save(steps=[calling("c1"), result("c1"), _asked("three", Usage(100, 50, 25))])
    saved = stores.records.read(first.turn_id)[0].ran_ms
    lapse(stores, second)
    third = stores.node().resume(first.turn_id)
    assert third.usage == Usage(111, 56, 28)
    assert parked <= saved <= third.ran_ms
    assert first.ran_ms == stopped
    third.complete(reply=Replied("Done"))
    held, elapsed_ms = third.ran_ms, (time.monotonic() - began) * 1_000
    assert held + WAIT_S * 1_000 <= elapsed_ms + ROUNDED_MS
    stores.drain()
    (entry,) = stores.entries()
    assert [call["name"] for call in entry["calls"]] == ["look"]
    assert third.ran_ms == held


def _asked(text: str, usage: Usage) -> Step:
    return Step.of(role="assistant", content={"role": "assistant", "content": text}, model="m", usage=usage)


def test_a_turn_that_is_taken_up_too_often_is_ended(stores: Stores) -> None:
    """With an entry of what it did, and nobody was answered (CK-10, EN-13)."""
    node = stores.node(slices=2)
    turn = begin(node, work_key="k")
    turn.park(reason="again", steps=[user("q")])
    node.resume(turn.turn_id).park(reason="again", steps=[assistant("thinking")])
    with pytest.raises(SliceLimit):
        node.resume(turn.turn_id)
    stores.drain()
    (entry,) = stores.entries()
    assert (entry["decision"], entry["reply"]) == ("failed", {"kind": "undelivered", "text": ""})
    (terminal,) = [event for event in stores.events() if event.type == "turn_failed"]
    assert terminal.payload.code == "slice_limit"
    with pytest.raises(Exception, match=r"work is done|has ended"):
        node.resume(turn.turn_id)
    begin(node, work_key="k")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (calling("c9"), "no input"),
        (assistant("I know"), "no input"),
        (result("c7"), "never made"),
        (user("x" * 1_000), "at most 600"),
    ],
    ids=["a call", "an answer of the model", "a result of no call", "too much"],
)
def test_what_is_no_input_is_refused_before_anything_is_written(stores: Stores, step: Step, problem: str) -> None:
    """The turn could not go on with it, or Redis is spared it (CK-12, CK-4, CK-13)."""
    node = stores.node(save_bytes=600)
    turn = begin(node)
    turn.park(reason="waiting", steps=[user("Hello")])
    with pytest.raises((InvalidInput, OversizedPayload), match=problem):
        node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=step)
    assert stores.texts() == []
    assert contents(stores.node().resume(turn.turn_id).steps) == contents([user("Hello")])


def test_the_result_of_an_open_call_may_come_in_twice(stores: Stores, node: Turns) -> None:
    """It answers the call once (CK-12)."""
    turn = begin(node)
    turn.park(reason="authorization", steps=[user("Hello"), calling("c1")])
    for _ in range(2):
        node.append_input(turn.turn_id, message=Message("m-2", "Granted"), step=result("c1"))
    assert len(stores.node().resume(turn.turn_id).steps) == 3


def test_inputs_that_two_nodes_bring_at_once_are_both_handled(stores: Stores, node: Turns) -> None:
    """Neither forgets the other's, however they came between each other (CK-12, ST-7)."""
    turn = begin(node, messages=[Message("m-1", "Hello")])
    turn.park(reason="waiting")
    other = stores.node()
    bring = node._records.append_input

    def between(turn_id: str, **given: Any) -> None:
        other.append_input(turn.turn_id, message=Message('m-"3"', "Faster"), step=user("Faster"))
        bring(turn_id, **given)

    node._records.append_input = between  # type: ignore[method-assign]  # the moment between its look and its write
    node.append_input(turn.turn_id, message=Message("m-2", "Hurry"), step=user("Hurry"))
    stores.node().resume(turn.turn_id).complete(reply=Replied("Done"))
    stores.drain()
    handled = [event.payload.message_id for event in stores.events() if event.type == "message_handled"]
    assert handled == ["m-1", 'm-"3"', "m-2"]


def test_every_input_is_handled_once_whatever_its_id_looks_like_in_a_list(stores: Stores, node: Turns) -> None:
    """Also one that the start has brought already (CK-12, ST-7)."""
    turn = begin(node, messages=[Message('q"a', "Hello")])
    turn.park(reason="waiting")
    for message_id in ("a", 'q"a', "q", ",", "]"):
        node.append_input(turn.turn_id, message=Message(message_id, "Hurry"), step=user(message_id))
    node.resume(turn.turn_id).complete(reply=Replied("Done"))
    stores.drain()
    handled = [event.payload.message_id for event in stores.events() if event.type == "message_handled"]
    assert handled == ['q"a', "a", "q", ",", "]"]


def _row(event_type: str, payload: str, *, key: str | None = "k", version: int = 1) -> EventRow:
    return EventRow(event_type, version, key, payload, None, None, "")


@pytest.mark.parametrize(
    "row",
    [
        _row("rollback", '{"to_seq":0}'),
        _row("turn_completed", '{"entry_id":"e","ordinal":7}'),
        _row("turn_failed", '{"code":"agent_run_failed"}'),
        _row("agent_step", '{"role":"user"}'),
        _row("compaction", "{}"),
        _row("no_such_type", "{}"),
        _row("message_handled", '{"message_id":"m"}', version=2),
        _row("message_handled", '{"message_id":"m","more":1}'),
        _row("message_handled", "{"),
        _row("message_handled", '{"message_id":"m"}', key=None),
    ],
    ids=str,
)
def test_what_a_turn_may_not_record_is_refused(stores: Stores, node: Turns, row: EventRow) -> None:
    """Writes are strict, and terminals and replacements are written by those who decide them (EV-1, EV-6, EV-7)."""
    turn = begin(node)
    with pytest.raises(InvalidInput):
        turn.record(tool_started(turn.turn_id, call_id="c1", name="look"), row)
    assert stores.types(turn.turn_id) == ["turn_started"]


def test_a_holder_that_was_taken_over_records_nothing(stores: Stores, node: Turns) -> None:
    """Nor does a park that another node was quicker than lose its place in the log (CK-2, EV-12)."""
    turn = begin(node)
    turn.park(reason="waiting")
    stores.node().resume(turn.turn_id)
    with pytest.raises(StaleTurn):
        turn.record(tool_started(turn.turn_id, call_id="c1", name="look"))
    turn.note_authorization("requested")
    assert stores.types(turn.turn_id) == ["turn_started", "authorization_requested"]


def test_ids_of_any_characters_make_keys(stores: Stores, node: Turns) -> None:
    """NUL and lone surrogates, which Postgres cannot hold, too (EV-10, EV-12)."""
    turn, odd = begin(node, messages=[Message("m\x00\ud800", "Hello")]), "\x00 \ud800 \\u0000"
    rows = [
        message_updated("m\x00\ud800", state={odd: odd}, update_id=odd),
        tool_started(turn.turn_id, call_id=odd, name=odd),
        tool_ended(turn.turn_id, call_id=odd, name=odd, outcome=odd),
        authorization_requested(odd),
        authorization_completed(odd),
        messages_summarized(odd, message_ids=["m\x00\ud800"], first_live_message_id=None),
    ]
    for _ in range(2):
        recorded = turn.record(*rows)
        assert recorded is not None
        assert recorded.conflicts == ()
    assert stores.types(turn.turn_id)[2:] == [row.type for row in rows]
    assert stores.events()[2].payload.state == {odd: odd}
