"""The transcript: what people see of a conversation."""

import pytest

from tests.stores import Stores, assistant, begin
from turnledger.checkpoint import Turn
from turnledger.store import CorruptData, Message, Replied
from turnledger.store.activity import MOST_SUMMARY_IDS, message_updated, messages_summarized
from turnledger.store.transcript import Transcript, transcript


def read(stores: Stores) -> Transcript:
    with stores.database.transaction() as connection:
        return transcript(connection, stores.head())


def talk(stores: Stores, *ids: str) -> Turn:
    turn = begin(stores.node(), messages=[Message(each, f"text of {each}") for each in ids])
    turn.complete(reply=Replied("Hello", "r-1"), steps=[assistant("Hello")])
    stores.drain()
    return turn


def test_messages_and_replies_in_order_with_what_became_of_them(stores: Stores) -> None:
    """Steps are no transcript; an update never edits the text (EV-2, EV-3, EV-8)."""
    turn = talk(stores, "m-1", "m-2")
    turn.record(message_updated("m-1", state={"read": True}, update_id="u-1"))
    turn.record(message_updated("m-1", state={"read": True, "by": "ann"}, update_id="u-2"))
    messages = read(stores).messages
    assert [(each.message_id, each.role, each.text) for each in messages] == [
        ("m-1", "user", "text of m-1"),
        ("m-2", "user", "text of m-2"),
        ("r-1", "assistant", "Hello"),
    ]
    assert messages[0].states == ({"read": True}, {"read": True, "by": "ann"})


def test_a_summary_shrinks_what_is_shown_and_no_model_history(stores: Stores) -> None:
    """From its boundary on; updates of what it covers are gone (EV-2, EV-8)."""
    turn = talk(stores, "m-1", "m-2")
    history = begin(stores.node()).history()
    turn.record(messages_summarized("They said hello.", message_ids=["m-1"], first_live_message_id="m-2"))
    turn.record(message_updated("m-1", state={"read": True}, update_id="u-1"))
    shown = read(stores)
    assert (shown.summary, shown.summarized) == ("They said hello.", 1)
    assert [each.message_id for each in shown.messages] == ["m-2", "r-1"]
    assert begin(stores.node()).history() == history


def test_the_newest_summary_counts(stores: Stores) -> None:
    """Without a first live message everything before it is covered (EV-8)."""
    turn = talk(stores, "m-1")
    turn.record(messages_summarized("First.", message_ids=["m-1"], first_live_message_id="r-1"))
    turn.record(messages_summarized("Second.", message_ids=["m-1", "r-1"], first_live_message_id=None))
    assert read(stores) == Transcript("Second.", 2, ())


def test_a_summary_names_five_hundred_messages_and_counts_all(stores: Stores) -> None:
    """At most 500 ids, the true count (EV-8)."""
    turn = talk(stores, "m-1")
    ids = [f"old-{number}" for number in range(MOST_SUMMARY_IDS + 1)]
    turn.record(messages_summarized("Long ago.", message_ids=ids, first_live_message_id="m-1"))
    (summary,) = [event for event in stores.events() if event.type == "messages_summarized"]
    assert (len(summary.payload.message_ids), summary.payload.message_count) == (500, 501)
    assert read(stores).summarized == 501


def test_an_update_without_its_message_is_an_error(stores: Stores) -> None:
    """It names event and message (EV-2)."""
    talk(stores, "m-1").record(message_updated("m-9", state={"read": True}, update_id="u-1"))
    with pytest.raises(CorruptData, match="'m-9'"):
        read(stores)


def test_a_message_that_stands_twice_is_an_error(stores: Stores) -> None:
    """No projection hides it (EV-2)."""
    talk(stores, "m-1")
    stores.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
    stores.execute(
        "UPDATE ledger_event SET payload = jsonb_set(payload, '{message_id}', '\"m-1\"') WHERE type = 'message'"
    )
    with pytest.raises(CorruptData, match="second time"):
        read(stores)


def test_the_block_holds_no_words_of_another_party_but_the_ask(stores: Stores) -> None:
    """What the engine says triggered the turn, and none of the chat records around it (BL-11)."""
    node = stores.node()
    turn = begin(node, "Please look", messages=[Message("m-1", "words of ann"), Message("m-2", "words of bob")])
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    for _ in range(2):
        earlier = begin(node).earlier
        assert "Triggered by: Please look" in earlier
        assert "words of" not in earlier
        stores.drain()
