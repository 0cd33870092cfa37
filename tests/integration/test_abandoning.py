"""Turns that nobody goes on with are ended, whatever keeps them from being resumed."""

import pytest

from tests.reconciling import lapse
from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, StaleTurn, Turn, TurnBlocked, TurnEnded, Turns
from turnledger.store import Replied, StoreBusy

_AS_MAINTENANCE = "SET LOCAL turnledger.maintenance = 'renumbering'; "
SET_BACK = f"{_AS_MAINTENANCE} DELETE FROM ledger_event; DELETE FROM ledger_turn; UPDATE ledger SET next_seq = 0"
OTHER_EVENTS = f"{_AS_MAINTENANCE} UPDATE ledger_event SET turn_id = 'other'"


def is_over(stores: Stores, turn: Turn) -> None:
    """Ended in both stores, with one terminal, and its work is free."""
    assert (stores.state(turn.turn_id), stores.run(turn.turn_id)) == ("abandoned", "abandoned")
    assert stores.types(turn.turn_id)[-1:] == ["turn_failed"]
    assert stores.redis.smembers(stores.keys.open(turn.ledger)) == set()
    begin(stores.node(), work_key=turn.work_key)


@pytest.mark.parametrize("damage", [SET_BACK, OTHER_EVENTS])
@pytest.mark.parametrize("state", ["parked", "lapsed"])
def test_a_turn_whose_history_is_lost_can_be_abandoned(stores: Stores, node: Turns, damage: str, state: str) -> None:
    """Nobody may resume it, and an operator has to get rid of it (ST-4, CK-9)."""
    turn = begin(node, work_key="k")
    if state == "parked":
        turn.park(reason="waiting", steps=[user("one")])
    lapse(stores, turn)
    stores.execute(damage)
    with pytest.raises(TurnBlocked):
        node.resume(turn.turn_id)
    node.abandon(turn.turn_id)
    is_over(stores, turn)
    with pytest.raises(TurnEnded):
        turn.complete(reply=Replied("late"))


@pytest.mark.parametrize("known", ["known", "not yet known"])
def test_a_turn_whose_delivery_is_unknown_can_be_abandoned(stores: Stores, node: Turns, known: str) -> None:
    """A person has looked whether the reply arrived; nothing is sent (ST-4, DL-5)."""
    turn = begin(node, work_key="k")
    turn._mark_delivering()
    lapse(stores, turn)
    if known == "known":
        with pytest.raises(TurnBlocked, match="delivery_unknown"):
            stores.node().resume(turn.turn_id)
    stores.node().abandon(turn.turn_id)
    is_over(stores, turn)


def test_a_turn_whose_ledger_is_gone_can_be_abandoned(stores: Stores, node: Turns) -> None:
    """Nothing is written for it where nothing is left (ST-4, CK-9)."""
    turn = begin(node)
    turn.park(reason="waiting")
    stores.execute(f"{_AS_MAINTENANCE} DELETE FROM ledger_event; DELETE FROM ledger_turn; DELETE FROM ledger")
    node.abandon(turn.turn_id)
    assert (stores.state(turn.turn_id), stores.written()["ledger_event"]) == ("abandoned", 0)


@pytest.mark.parametrize("blocked", ["", "delivery_unknown"])
def test_a_turn_whose_holder_is_alive_is_not_abandoned(stores: Stores, node: Turns, blocked: str) -> None:
    """Blocked for resume or not: its holder may still complete it (CK-2, CK-9)."""
    turn = begin(node)
    stores.redis.hset(stores.keys.record(turn.turn_id), "blocked", blocked)
    with pytest.raises(AlreadyRunning):
        stores.node().abandon(turn.turn_id)
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.texts() == ["Done"]


def test_whoever_held_an_abandoned_turn_makes_no_history_of_it(stores: Stores, node: Turns) -> None:
    """Not past Redis either, whatever its clock says (CK-2, FL-3)."""
    turn = begin(node)
    lapse(stores, turn)
    stores.node().abandon(turn.turn_id)
    node._services.leases.redis_is_crowded = True  # what goes directly asks Postgres alone
    with pytest.raises(StaleTurn):
        turn.complete(reply=Replied("late"), steps=[assistant("late")])
    assert stores.entries() == []


def test_a_turn_that_another_run_has_forestalled_says_so(stores: Stores, node: Turns) -> None:
    """Its work is done: it ends as a duplicate, as a resume would end it (ST-5, RC-5)."""
    first, turn = begin(node, work_key="k"), begin(node)
    turn.park(reason="waiting")
    stores.redis.hset(stores.keys.record(turn.turn_id), "work_key", "k")
    first.complete(reply=Replied("Done"))
    stores.drain()
    with pytest.raises(AlreadyHandled, match=first.turn_id):
        node.abandon(turn.turn_id)
    assert stores.run(turn.turn_id) == "duplicate"


def test_an_abandonment_that_postgres_does_not_take_changes_nothing(stores: Stores, node: Turns) -> None:
    """The turn stays as it was, blocked for the same reason, and another try succeeds (FL-3, DL-5)."""
    turn = begin(node)
    turn._mark_delivering()
    lapse(stores, turn)
    with pytest.raises(TurnBlocked):
        node.resume(turn.turn_id)
    impatient = stores.node(store={"lock_timeout_ms": 100})
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        with pytest.raises(StoreBusy):
            impatient.abandon(turn.turn_id)
    with pytest.raises(TurnBlocked, match="delivery_unknown"):
        node.resume(turn.turn_id)
    impatient.abandon(turn.turn_id)
    is_over(stores, turn)
