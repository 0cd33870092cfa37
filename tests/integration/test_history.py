"""Reading a ledger back: bounded, tolerant of what other releases wrote, and never silent about damage."""

import json
from typing import Any

import pytest

from tests.stores import LEAD, Stores, assistant, begin, contents, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import CorruptData, Replied, UnsupportedEvent
from turnledger.store.events import Event
from turnledger.store.history import events
from turnledger.store.ledger import read_head


def finished(stores: Stores, node: Turns, *texts: str) -> Turn:
    turn = begin(node)
    turn.complete(reply=Replied("Done"), steps=[assistant(text) for text in texts])
    stores.drain()
    return turn


def insert(stores: Stores, kind: str, *, version: int = 1, payload: str = "{}", content: str | None = None) -> None:
    """A row that another release, or damage, has left at the end of the log."""
    head = stores.head()
    stores.execute(
        "INSERT INTO ledger_event VALUES (%s, %s, %s, %s, %s, NULL, NULL, %s, %s, NULL, now(), now())",
        head.ledger_id,
        head.next_seq,
        head.history_version,
        kind,
        version,
        payload,
        content,
    )
    stores.execute("UPDATE ledger SET next_seq = next_seq + 1")


def read(stores: Stores, **bounds: int) -> list[Event]:
    with stores.database.transaction() as connection:
        head = read_head(connection, LEAD)
        assert head is not None
        return events(connection, head, **bounds)


def test_history_is_the_steps_in_order(stores: Stores, node: Turns) -> None:
    """Of every turn, committed or on its way, each byte for byte (ST-6, QU-8)."""
    finished(stores, node, "One", "Two")
    begin(node).complete(reply=Replied("Done"), steps=[user("Three"), assistant("Four")])
    texts = [step.value["content"] for step in begin(node).history()]
    assert texts == ["One", "Two", "Three", "Four"]


def test_a_message_never_enters_model_input(stores: Stores, node: Turns) -> None:
    """Nor does a step become transcript (EV-3)."""
    finished(stores, node, "A step")
    assert contents(begin(node).history()) == ['{"role":"assistant","content":"A step"}']
    assert stores.texts() == ["Done"]


def test_a_bounded_read_never_decodes_rows_past_its_bound(stores: Stores, node: Turns) -> None:
    """Damage further on is not met (EV-9)."""
    finished(stores, node, "One")
    last = stores.head().next_seq
    insert(stores, "turn_started", payload='{"nonsense": 1}')
    assert [event.seq for event in read(stores, most=last)] == list(range(last))
    assert [event.seq for event in read(stores, first_seq=1, most=2)] == [1, 2]
    assert read(stores, first_seq=last + 1) == []
    with pytest.raises(CorruptData, match=f"event {last} of type turn_started"):
        read(stores, most=last + 1)


@pytest.mark.parametrize(("kind", "version"), [("from_the_future", 1), ("agent_step", 2), ("compaction", 9)])
def test_an_event_of_another_release_reads_as_unknown_and_stops_the_replay(
    stores: Stores, node: Turns, kind: str, version: int
) -> None:
    """Seq and type are named; a start still gives the block and runs (EV-7)."""
    finished(stores, node, "One")
    seq = stores.head().next_seq
    insert(stores, kind, version=version, payload='{"a": ["\\u001a0000"]}', content="[1.0]")
    unknown = read(stores, first_seq=seq)[0]
    assert (unknown.type, unknown.stored_type, unknown.schema_version) == ("unknown", kind, version)
    assert (unknown.payload, unknown.content) == ({"a": ["\x00"]}, "[1.0]")
    turn = begin(node)
    assert turn.earlier.count("### ") == 1
    with pytest.raises(UnsupportedEvent, match=f"event {seq} of type {kind}") as refused:
        turn.history()
    assert (refused.value.seq, refused.value.type) == (seq, kind)
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def test_another_version_of_an_event_that_is_not_replayed_stops_the_replay_too(stores: Stores, node: Turns) -> None:
    """Nobody knows what it means to the model's history (EV-7)."""
    finished(stores, node, "One")
    insert(stores, "message", version=2)
    with pytest.raises(UnsupportedEvent, match="of type message, schema version 2"):
        begin(node).history()


def test_an_unknown_event_of_a_superseded_version_blocks_nothing(stores: Stores, node: Turns) -> None:
    """What a replacement left behind is not replayed (EV-7)."""
    finished(stores, node, "One")
    insert(stores, "from_the_future")
    through = stores.head().next_seq - 1
    stores.execute("UPDATE ledger SET history_version = 1")
    replacement = {"through_seq": through, "turn_id": "t", "covered_steps": 0, "model": "m", "step_count": 0}
    insert(stores, "compaction", payload=json.dumps(replacement), content="[]")
    assert begin(node).history() == []


@pytest.mark.parametrize(
    ("payload", "content"), [("{}", '"x"'), ('{"role": 5}', '"x"'), ('{"role": "user"}', None), ("[]", '"x"')]
)
def test_a_malformed_step_is_an_error(stores: Stores, node: Turns, payload: str, content: Any) -> None:
    """Never `unknown`, never passed over (EV-7)."""
    finished(stores, node, "One")
    insert(stores, "agent_step", payload=payload, content=content)
    with pytest.raises(CorruptData):
        begin(node).history()


def test_one_corrupt_entry_is_skipped_counted_and_logged(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    """The block says how many could not be read, and shows the others (BL-8)."""
    for text in ("One", "Two", "Three"):
        finished(stores, node, text)
    stores.execute("UPDATE ledger_entry SET entry = '{\"turn_id\": 5}' WHERE ordinal = 2")
    block = begin(node).earlier
    assert block.count("### ") == 2
    assert "(1 earlier turn is stored but could not be read.)" in block
    assert "entry_unreadable" in capsys.readouterr().err


def test_history_of_a_ledger_that_was_never_recorded_is_empty(stores: Stores, node: Turns) -> None:
    """Source `event` has none (ID-4)."""
    assert node.start(agent="lead", conversation="event:1", triggered_by="x").history() == []


def test_a_turn_is_not_in_its_own_history_until_it_is_committed(stores: Stores, node: Turns) -> None:
    """Also once it is completed: it is asked for what came before (BL-9)."""
    finished(stores, node, "One")
    turn = begin(node)
    turn.complete(reply=Replied("Done"), steps=[user("Two")])
    before = turn.history()
    stores.drain()
    assert len(turn.history()) == len(before) + 1
