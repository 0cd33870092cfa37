"""A record as values, and what is no record."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.checkpoint import CheckpointMisconfigured
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor, LedgerView, PendingTurn, decode_record
from turnledger.store import LedgerName
from turnledger.store.json_text import encode_json

LEAD = LedgerName("lead", "jira:POC-7")
FIELDS = {
    "format": RECORD_FORMAT,
    "state": "parked",
    "owner": "o1",
    "revision": "7",
    "epoch": "3",
    "slice": "2",
    "ledger": encode_ledger(LEAD),
    "work_key": "",
    "recorded": "1",
    "entry_id": "e1",
    "started_at": "2026-11-30T16:20:16.123Z",
    "triggered_by": '"\\u0000\\ud800"',
    "earlier": "## Earlier",
    "handled": '["m1"]',
    "message_ids": '["m1","m2"]',
    "cursor": '[1,2,3,"t0",["t1"]]',
}
texts = st.text(st.characters() | st.sampled_from(["\x00", "\ud800"]), max_size=10)
cursors = st.builds(
    Cursor,
    ledger_id=st.none() | st.integers(1, 2**62),
    history_version=st.integers(0, 99),
    seq=st.integers(-1, 2**62),
    seq_turn_id=st.none() | st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    pending=st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)).map(tuple),
)


@given(cursors)
def test_a_cursor_is_one_field_of_the_record(cursor: Cursor) -> None:
    """And comes back as it was, its numbers whole (CK-9)."""
    assert Cursor.decode(cursor.encode()) == cursor


def test_a_record_is_read_from_its_fields() -> None:
    """What is not there has its neutral value (CK-8)."""
    record = decode_record("t1", FIELDS)
    assert (record.turn_id, record.state, record.owner, record.revision) == ("t1", "parked", "o1", 7)
    assert (record.epoch, record.slice, record.ledger, record.recorded) == (3, 2, LEAD, True)
    assert (record.triggered_by, record.handled, record.message_ids) == ("\x00\ud800", ("m1",), ("m1", "m2"))
    assert record.cursor == Cursor(1, 2, 3, "t0", ("t1",))
    assert (record.bootstrap, record.reason, record.superseded_by, record.blocked) == (None, "", "", "")


@pytest.mark.parametrize("bootstrap", [{}, [], "", 0, False, {"\x00": ["\ud800"]}])
def test_a_bootstrap_is_any_value(bootstrap: Any) -> None:
    """An empty one is not none (CK-6)."""
    assert decode_record("t1", {**FIELDS, "bootstrap": encode_json(bootstrap)}).bootstrap == bootstrap
    assert decode_record("t1", {**FIELDS, "bootstrap": ""}).bootstrap is None


@pytest.mark.parametrize("found", ["", "0", "2", "one"])
def test_another_format_is_refused_before_anything_else_is_read(found: str) -> None:
    """Naming both (CK-15)."""
    with pytest.raises(CheckpointMisconfigured, match=f"t1 has format '{found}'.*'{RECORD_FORMAT}'"):
        decode_record("t1", {"format": found})


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_uncommitted_turns_stand_in_the_order_of_their_completion(order: list[int], rejected: set[int]) -> None:
    """Rejected ones among them, whatever list they are in (ST-1, BL-1)."""
    turns = [pending(number, state="rejected" if number in rejected else "completed") for number in order]
    view = LedgerView(
        now_ms=9,
        completions=6,
        own_state=None,
        pending=tuple(sorted((t for t in turns if t.state == "completed"), key=lambda t: t.completed_at_ms)),
        rejected=tuple(t for t in turns if t.state == "rejected"),
        open=(),
    )
    assert [turn.turn_id for turn in view.uncommitted] == [f"t{number}" for number in range(6)]


def pending(number: int, *, state: Any) -> PendingTurn:
    known: dict[str, Any] = {"turn_id": f"t{number}", "state": state, "completed_at_ms": 1_000 + number}
    return PendingTurn(**{**dict.fromkeys(PendingTurn._fields, ""), **known})
