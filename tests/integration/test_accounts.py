"""The account that stands for older entries where a block has no room for them."""

import psycopg
import pytest

from tests.stores import Stores, begin
from turnledger.checkpoint import Turns
from turnledger.store import Replied
from turnledger.store.accounts import find_account, save_account
from turnledger.store.block import Account

LONG = "A long answer. " * 550  # 8,250 bytes: two of them and the others are left out


def long_conversation(stores: Stores, node: Turns, *, turns: int = 4) -> list[str]:
    """Its entry ids, oldest first."""
    for number in range(turns):
        begin(node, f"Ask {number}").complete(reply=Replied(LONG))
    stores.drain()
    return [entry["entry_id"] for entry in stores.entries()]


def keep(stores: Stores, text: str, *entry_ids: str) -> None:
    with stores.database.transaction() as connection:
        save_account(connection, Account(frozenset(entry_ids), text), ledger_id=stores.head().ledger_id)


def test_a_start_shows_the_account_of_the_entries_it_has_no_room_for(stores: Stores, node: Turns) -> None:
    """(BL-5, BL-8)"""
    ids = long_conversation(stores, node)
    keep(stores, "They asked\ntwice.", *ids[:2])
    block = begin(node).earlier
    assert (
        "### 2 earlier turns, condensed: what follows is a rewrite by a model\nIn short:\n> They asked\n> twice."
        in block
    )
    assert "left out" not in block


def test_without_an_account_they_are_counted(stores: Stores, node: Turns) -> None:
    """(BL-5)"""
    long_conversation(stores, node)
    assert "(2 earlier turns are left out here for want of room.)" in begin(node).earlier


def test_a_pending_turn_moves_one_more_out_and_the_account_still_serves(stores: Stores, node: Turns) -> None:
    """(BL-5, BL-9)"""
    ids = long_conversation(stores, node)
    keep(stores, "They asked.", *ids[:2])
    begin(node, "Ask 4").complete(reply=Replied(LONG))
    block = begin(node).earlier
    assert "### 2 earlier turns, condensed" in block
    assert "(1 earlier turn is left out here for want of room.)" in block


def test_a_block_that_has_an_account_is_frozen_like_any_other(stores: Stores, node: Turns) -> None:
    """Whatever is written later, the turn sees the same bytes, also on another node (BL-6)."""
    ids = long_conversation(stores, node)
    keep(stores, "They asked.", *ids[:2])
    turn = begin(node)
    turn.park(reason="waits")
    keep(stores, "Something else.", *ids[:2])
    assert stores.node().resume(turn.turn_id).earlier == turn.earlier


def test_a_block_within_its_budget_asks_for_no_account(stores: Stores, node: Turns) -> None:
    """(BL-8)"""
    begin(node, "Ask").complete(reply=Replied("Short"))
    stores.drain()
    keep(stores, "Never shown.", stores.entries()[0]["entry_id"])
    assert "Never shown" not in begin(node).earlier


def test_a_new_account_takes_the_place_of_the_former_one(stores: Stores, node: Turns) -> None:
    ids = long_conversation(stores, node, turns=1)
    keep(stores, "First \ud800 \x00", *ids)
    ledger_id = stores.head().ledger_id
    with stores.database.transaction() as connection:
        assert find_account(connection, ledger_id) == Account(frozenset(ids), "First \ud800 \x00")
    keep(stores, "Second", *ids)
    with stores.database.transaction() as connection:
        assert find_account(connection, ledger_id) == Account(frozenset(ids), "Second")
        assert find_account(connection, ledger_id + 1) is None


def test_an_account_of_an_entry_that_is_gone_is_not_kept(stores: Stores, node: Turns) -> None:
    """As when it was swept while the model wrote (RT-4)."""
    ids = long_conversation(stores, node)
    stores.execute("DELETE FROM ledger_entry WHERE ordinal = 1")
    with stores.database.transaction() as connection:
        ledger_id = stores.head().ledger_id
        assert not save_account(connection, Account(frozenset(ids[:2]), "They asked."), ledger_id=ledger_id)
        assert find_account(connection, ledger_id) is None


def test_an_account_that_cannot_be_read_leaves_the_count(stores: Stores, node: Turns) -> None:
    """The start is not held up by it (BL-5, FL-1)."""
    ids = long_conversation(stores, node)
    keep(stores, "They asked.", *ids[:2])
    with psycopg.connect(stores.database_url) as holder:
        holder.execute("LOCK TABLE turnledger.ledger_account")
        block = begin(node).earlier
    assert "(2 earlier turns are left out here for want of room.)" in block


@pytest.mark.parametrize("damaged", ["5", "null", '["They asked."]', "1" * 5_000])
def test_an_account_that_is_no_text_leaves_the_count(stores: Stores, node: Turns, damaged: str) -> None:
    """One corrupt row stops no start, and the next account takes its place (BL-8)."""
    ids = long_conversation(stores, node)
    keep(stores, "They asked.", *ids[:2])
    stores.execute("UPDATE ledger_account SET account = CAST(%s AS json)", damaged)
    assert "(2 earlier turns are left out here for want of room.)" in begin(node).earlier
    keep(stores, "They asked again.", *ids[:2])
    assert "They asked again." in begin(node).earlier
