"""The test vectors of the wire contract: an engine without the library makes the same, and the library reads them."""

import json
import zlib
from typing import Any

import pytest

from tests.wire import forms
from tests.wire.vectors import FILE
from turnledger.checkpoint.keys import decode_ledger
from turnledger.checkpoint.record import Cursor
from turnledger.store import LedgerName
from turnledger.store.block import Account, render_block
from turnledger.store.entry import decode_entry
from turnledger.store.events import EventRow, read_event
from turnledger.store.json_text import decode_json, decode_jsonb
from turnledger.store.steps import decode_step, encode_step
from turnledger.store.times import milliseconds, time_of

VECTORS: dict[str, list[Any]] = json.loads(FILE.read_text(encoding="ascii"))


def test_an_engine_without_the_library_makes_the_same_texts() -> None:
    for each in VECTORS["work_keys"]:
        assert forms.work_key(each["event_ids"]) == each["work_key"]
    for each in VECTORS["ledgers"]:
        assert forms.encoded_ledger(each["agent"], each["conversation"]) == each["in_key"]
    for each in VECTORS["times"]:
        assert forms.time_text(each["milliseconds"]) == each["text"]
    for each in VECTORS["jsonb"]:
        assert forms.jsonb_text(each["value"]) == each["text"]
    for each in VECTORS["steps"]:
        assert forms.step_text(each) == each["wire"]
    for each in VECTORS["names"]:
        assert forms.payload_name(each["repeated"] * each["times"]) == each["name"]
    for each in VECTORS["cursors"]:
        assert forms.json_text(each["members"]) == each["text"]
    for each in VECTORS["digests"]:
        assert forms.completion_digest(each["texts"]) == each["digest"]
    for each in VECTORS["jobs"]:
        assert zlib.decompress(forms.job_data(each["function"], each["turn_id"])).decode() == each["call"]


def test_an_engine_without_the_library_makes_the_same_events() -> None:
    message, handled, started = VECTORS["events"]
    assert forms.message_row(**message["message"]) == message["row"]
    assert forms.handled_row(**handled["handled"]) == handled["row"]
    assert forms.started_row(**started["started"]) == started["row"]


def test_the_library_reads_what_such_an_engine_wrote() -> None:
    for each in VECTORS["ledgers"]:
        made = forms.encoded_ledger(each["agent"], each["conversation"])
        assert decode_ledger(made) == LedgerName(each["agent"], each["conversation"])
    for each in VECTORS["times"]:
        assert milliseconds(time_of(forms.time_text(each["milliseconds"]))) == each["milliseconds"]
    for each in VECTORS["jsonb"]:
        assert decode_jsonb(decode_json(forms.jsonb_text(each["value"]))) == each["value"]
    for each in VECTORS["steps"]:
        assert encode_step(decode_step(forms.step_text(each))) == each["wire"]
    for each in VECTORS["cursors"]:
        assert Cursor.decode(forms.json_text(each["members"])).encode() == each["text"]


def test_the_library_reads_the_events_that_such_an_engine_wrote() -> None:
    text = VECTORS["events"][0]["message"]["text"]
    now = time_of("2026-11-30T16:20:16.123Z")
    for number, each in enumerate(VECTORS["events"]):
        row = EventRow(*each["row"])
        stored = {"seq": number, "history_version": 0, "turn_id": None, "occurred_at": now, "recorded_at": now}
        members = {"type": row.type, "schema_version": row.schema_version, "payload": json.loads(row.payload)}
        event = read_event({**stored, **members, "idempotency_key": row.key, "content": row.content})
        assert event.type == row.type
        assert event.text == (text if number == 0 else None)


@pytest.mark.parametrize("vector", VECTORS["blocks"], ids=lambda vector: f"{len(vector['block'])} characters")
def test_entries_that_are_read_from_a_vector_give_its_block(vector: dict[str, Any]) -> None:
    """(BL-8)"""
    entries = [decode_entry(json.dumps(each["entry"]), ordinal=each["ordinal"]) for each in vector["entries"]]
    account = vector["account"] and Account(frozenset(vector["account"]["entry_ids"]), vector["account"]["text"])
    block = render_block(
        entries,
        total=vector["total"],
        unreadable=vector["unreadable"],
        budget_bytes=vector["budget_bytes"],
        account=account,
    )
    assert block == vector["block"]


def test_the_vectors_hold_what_goes_wrong_most_easily() -> None:
    """A block past its budget with and without an account, an id order that JavaScript does not have, a NUL."""
    blocks = [each["block"] for each in VECTORS["blocks"]]
    assert any("condensed" in block for block in blocks)
    assert any("left out here" in block for block in blocks)
    assert any("no longer stored" in block for block in blocks)
    assert any("\U0001f600" in each["event_ids"] for each in VECTORS["work_keys"])
    assert any("u001a0000" in each["wire"] for each in VECTORS["steps"])
