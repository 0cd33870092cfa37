"""A record that somebody filled with bytes that are no text harms its own turn, and no other."""

from collections.abc import Iterator

import pytest

from tests.reconciling import change
from tests.stores import LEAD, Stores, begin
from turnledger.checkpoint import Turn, Turns
from turnledger.checkpoint.records import Records
from turnledger.store import LedgerName, Replied
from turnledger.workers.committer import Committer
from turnledger.workers.errors import TurnRejected
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings

OTHER = LedgerName("lead", "jira:POC-8")
PLACES = ("entry", "events", "before", "started_at", "steps")


@pytest.fixture
def records(stores: Stores) -> Iterator[Records]:
    """Through a client as a worker has one."""
    made = Records.from_settings(stores.checkpoint_settings())
    yield made
    made.redis.close()


def broken(stores: Stores, node: Turns, place: str) -> Turn:
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    if place == "steps":
        stores.redis.rpush(stores.keys.steps(turn.turn_id), b"{}\n\xff\n\xfe")
        change(stores, turn, kept_steps=1)
    else:
        stores.redis.hset(stores.keys.record(turn.turn_id), place, b"\xff\xfe")
    return turn


@pytest.mark.parametrize("place", PLACES)
def test_a_completed_turn_of_such_bytes_is_rejected_alone(
    stores: Stores, node: Turns, records: Records, place: str
) -> None:
    """(QU-6)"""
    bad, good = broken(stores, node, place), begin(node, ledger=OTHER)
    good.complete(reply=Replied("Done"))
    quick = WorkerSettings(transient_wait_s=0.5, first_pause_s=0.01)
    committer = Committer(records=records, database=stores.database, settings=quick)
    with pytest.raises(TurnRejected):
        committer.persist(bad.turn_id)
    committer.persist(good.turn_id)
    assert (stores.state(bad.turn_id), stores.state(good.turn_id)) == ("rejected", "committed")


@pytest.mark.parametrize("place", PLACES)
def test_a_sweep_goes_on_past_it(stores: Stores, node: Turns, records: Records, place: str) -> None:
    """(RC-11)"""
    bad, good = broken(stores, node, place), begin(node, ledger=OTHER)
    good.complete(reply=Replied("Done"))
    change(stores, bad, completed_at=1)
    change(stores, good, completed_at=1)
    reconciler = Reconciler(records=records, database=stores.database, settings=WorkerSettings())
    reconciler.sweep()
    reconciler.close()
    assert stores.state(good.turn_id) == "committed"
    assert stores.state(bad.turn_id) == (None if place == "started_at" else "completed")


def test_the_next_turn_of_its_ledger_starts_all_the_same(stores: Stores, node: Turns) -> None:
    """The block says that one could not be read (BL-8)."""
    broken(stores, node, "entry")
    assert "could not be read" in begin(node, ledger=LEAD).earlier
