"""Events: strict when they are written, tolerant when they are read."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnledger.store import events
from turnledger.store.errors import CorruptData, InvalidInput
from turnledger.store.events import (
    FAILURE_CODES,
    MESSAGE_ID_CHARACTERS,
    SEARCH_BYTES,
    SEARCH_CHARACTERS,
    EventRow,
    EventType,
    Message,
    MessagePayload,
    TurnStartedPayload,
    completed_event,
    decode_rows,
    duplicate_event,
    encode_rows,
    failed_event,
    handled_event,
    handled_key,
    message_event,
    message_key,
    read_event,
    register,
    search_text,
    started_event,
)

NOW = "2026-11-30T16:20:16.123Z"
any_text = st.text(st.characters() | st.sampled_from(["\x00", "\ud800", "\udfff", "\x1a", "\u202e", "𝄞"]))
ROWS: list[tuple[EventRow, dict[str, Any]]] = [
    (message_event(Message("m1", "Hi", "ann"), now=NOW), {"message_id": "m1", "role": "user", "sender": "ann"}),
    (message_event(Message("m1", "Hi"), now=NOW), {"message_id": "m1", "role": "user"}),
    (handled_event("m1", now=NOW), {"message_id": "m1"}),
    (started_event("t1", work_key="k", now=NOW), {"work_key": "k"}),
    (
        completed_event("t1", entry_id="e1", ordinal=7, decision="done", now=NOW),
        {"entry_id": "e1", "ordinal": 7, "decision": "done"},
    ),
    (completed_event("t1", entry_id="e1", ordinal=7, decision=None, now=NOW), {"entry_id": "e1", "ordinal": 7}),
    (
        failed_event("t1", code="slice_limit", failure_id="f1", now=NOW),
        {"code": "slice_limit", "failure_id": "f1"},
    ),
    (duplicate_event("t1", duplicate_of="t0", now=NOW), {"duplicate_of": "t0"}),
]


def stored(row: EventRow, **changed: Any) -> dict[str, Any]:
    """The row as Postgres gives it back."""
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    return {
        "seq": 5,
        "history_version": 0,
        "type": row.type,
        "schema_version": row.schema_version,
        "turn_id": "t1",
        "idempotency_key": row.key,
        "payload": json.loads(row.payload),
        "content": row.content,
        "occurred_at": moment,
        "recorded_at": moment,
        **changed,
    }


@pytest.mark.parametrize(("row", "members"), ROWS, ids=lambda part: part.type if isinstance(part, EventRow) else "")
def test_what_is_absent_is_absent_from_the_payload(row: EventRow, members: dict[str, Any]) -> None:
    """The payload has the members that are stated and no others (EV-7)."""
    assert json.loads(row.payload) == members


@pytest.mark.parametrize("row", [row for row, _ in ROWS], ids=lambda row: row.type)
def test_a_row_reads_back_as_its_type(row: EventRow) -> None:
    """Every type that is written is read, its payload as a model (EV-1)."""
    event = read_event(stored(row))
    assert (event.type, event.stored_type, event.key, event.seq) == (row.type, row.type, row.key, 5)
    members = {name: value for name, value in event.payload if value is not None}
    assert members == json.loads(row.payload)


@given(any_text.filter(lambda text: 0 < len(text) < 100), any_text, any_text)
def test_any_text_survives_a_message(message_id: str, text: str, sender: str) -> None:
    """Ids, names and texts with NUL and lone surrogates come back exactly (EV-10)."""
    row = message_event(Message(message_id, text, sender), now=NOW)
    for column in (row.key, row.payload, row.content, row.search_text):
        assert column is not None
        column.encode()
    assert not any("\x00" in str(column) for column in row)
    assert "\\u0000" not in row.payload
    event = read_event(stored(row))
    assert (event.payload.message_id, event.payload.sender) == (message_id, sender)
    # Two surrogates side by side are the character they form, in JSON as everywhere.
    assert event.text == json.loads(json.dumps(text))


@given(any_text, any_text)
def test_no_two_messages_share_a_key(one: str, other: str) -> None:
    """Keys are escaped reversibly (EV-2, EV-10)."""
    assert (message_key(one) == message_key(other)) == (one == other)
    assert message_key(one) != handled_key(other)


def test_the_longest_message_id_fits_an_index_key() -> None:
    """A Postgres index key may have 2,704 bytes, whatever the characters (EV-2)."""
    for character in ("\x00", "\ud800", "𝄞", "a"):
        assert len(message_key(character * MESSAGE_ID_CHARACTERS).encode()) < 2_704 - 64


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Message("", "x"), "message id"),
        (lambda: Message("m" * 513, "x"), "513 characters"),
        (lambda: Message(5, "x"), "message_id"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", None), "text"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", b"x"), "text must be text, not bytes"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", "x", sender=5), "sender"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", "x", role=""), "role"),
        (lambda: Message("m", "x", role=None), "role"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", "x", sent_at="now"), "sent_at"),  # type: ignore[arg-type]  # what is tested
        (lambda: Message("m", "x", sent_at=datetime(2026, 1, 1)), "time zone"),  # noqa: DTZ001  # what is tested
    ],
)
def test_a_message_that_is_not_one_is_refused_when_it_is_made(make: Callable[[], Message], word: str) -> None:
    """Says what is wrong (EV-7)."""
    with pytest.raises(InvalidInput, match=word):
        make()


def test_a_message_keeps_its_own_time() -> None:
    """In UTC; one without a time happened when it was recorded (EV-2)."""
    sent_at = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=2)))
    assert message_event(Message("m", "x", sent_at=sent_at), now=NOW).occurred_at == "2026-01-01T01:00:00.000Z"
    assert message_event(Message("m", "x"), now=NOW).occurred_at == NOW


@pytest.mark.parametrize("code", ["", "oops", "AGENT_RUN_FAILED", None, ["slice_limit"]])
def test_a_failure_code_that_is_not_listed_is_refused(code: Any) -> None:
    """The message lists those that are (EV-6)."""
    with pytest.raises(InvalidInput, match=r"agent_run_failed, delivery_failed, .*slice_limit"):
        failed_event("t1", code=code, failure_id=None, now=NOW)


def test_a_turn_has_one_terminal_and_room_for_one_that_overrules_session_lost() -> None:
    """All final terminals share a key; the provisional one has another (EV-6)."""
    final = [failed_event("t1", code=code, failure_id=None, now=NOW).key for code in FAILURE_CODES - {"session_lost"}]
    final += [
        completed_event("t1", entry_id="e", ordinal=1, decision=None, now=NOW).key,
        duplicate_event("t1", duplicate_of="t0", now=NOW).key,
    ]
    assert len(set(final)) == 1
    assert failed_event("t1", code="session_lost", failure_id=None, now=NOW).key not in final


def test_an_unknown_member_is_refused_when_it_is_written() -> None:
    """Writes are strict (EV-7)."""
    with pytest.raises(ValidationError):
        MessagePayload(message_id="m", role="user", colour="red")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(ValidationError):
        MessagePayload(message_id=5, role="user")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("changed", [{"type": "from_the_future"}, {"schema_version": 2}, {"schema_version": 0}])
def test_a_type_or_version_of_another_release_reads_as_unknown(changed: dict[str, Any]) -> None:
    """Its payload intact (EV-7)."""
    row = started_event("t1", work_key="k", now=NOW)
    payload = {"a": ["\x1a0000", {"\x1ad800": 1.5}]}
    event = read_event(stored(row, **changed, payload=payload))
    assert event.type == "unknown"
    assert (event.stored_type, event.schema_version) == (
        changed.get("type", row.type),
        changed.get("schema_version", row.schema_version),
    )
    assert event.payload == {"a": ["\x00", {"\ud800": 1.5}]}


@pytest.mark.parametrize("payload", [{}, {"work_key": 5}, {"work_key": "k", "more": 1}, [], None, "work_key"])
def test_a_malformed_row_of_a_known_type_is_an_error(payload: Any) -> None:
    """Never `unknown`; seq and type are named (EV-7)."""
    with pytest.raises(CorruptData, match="event 5 of type turn_started"):
        read_event(stored(started_event("t1", work_key="k", now=NOW), payload=payload))


def test_a_type_that_is_registered_is_read_without_a_change_to_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is open (EV-1)."""
    monkeypatch.setattr(events, "_TYPES", dict(events._TYPES))
    row = started_event("t1", work_key="k", now=NOW)._replace(type="only_of_this_test")
    assert read_event(stored(row)).type == "unknown"
    register(EventType("only_of_this_test", TurnStartedPayload))
    assert read_event(stored(row)).payload.work_key == "k"


@given(st.lists(st.sampled_from([row for row, _ in ROWS])), any_text)
def test_rows_travel_in_a_record_unchanged(rows: list[EventRow], text: str) -> None:
    """As one JSON text that UTF-8 can carry (FL-1)."""
    rows = [*rows, message_event(Message("m", text), now=NOW)]
    encoded = encode_rows(rows)
    encoded.encode()
    assert list(decode_rows(encoded)) == rows
    assert decode_rows("") == decode_rows(None) == ()


@given(any_text)
def test_what_search_sees_has_no_nul_and_is_valid_text(text: str) -> None:
    """A space stands for what Postgres refuses (PR-1)."""
    seen = search_text(text)
    assert "\x00" not in seen
    assert len(seen.encode()) <= SEARCH_BYTES
    assert len(seen) == len(text)


@pytest.mark.parametrize("character", ["a", "é", "漢", "𝄞"])
def test_what_search_sees_is_bounded_in_characters_and_bytes(character: str) -> None:
    """And is never cut inside a character (PR-1)."""
    seen = search_text(character * 300_000)
    assert seen == character * len(seen)
    assert len(seen) == min(SEARCH_CHARACTERS, SEARCH_BYTES // len(character.encode()))


def test_events_are_values() -> None:
    """Frozen: nothing that was checked can change (EV-7)."""
    message = Message("m", "x")
    with pytest.raises(AttributeError):
        message.text = "y"  # type: ignore[misc]  # what is tested
    assert replace(message, text="y").text == "y"
