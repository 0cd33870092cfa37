"""What a holder that was taken over is told, on the ways past Redis that its fence does not guard."""

import pytest

from tests.stores import Stores
from turnledger.checkpoint import StaleTurn, Turn
from turnledger.checkpoint.records import Claim
from turnledger.checkpoint.taking_over import take_over
from turnledger.store import Replied, Step


def lapse(stores: Stores, turn: Turn) -> None:
    stores.redis.hset(stores.keys.record(turn.turn_id), "lease_until", 1)


def a_step(text: str) -> Step:
    return Step.of(role="assistant", content=text)


def test_a_direct_commit_of_a_turn_that_another_node_has_completed_is_refused(stores: Stores) -> None:
    """That the run is committed does not make this content history: the holder must not take it for its own (CK-2)."""
    slow, quick = stores.node(), stores.node()
    turn = slow.start(agent="lead", conversation="jira:POC-7", triggered_by="work")
    lapse(stores, turn)
    quick.resume(turn.turn_id).complete(reply=Replied("by the new holder"), steps=[a_step("new")])
    stores.drain()
    slow._services.leases.redis_is_crowded = True
    with pytest.raises(StaleTurn):
        turn.complete(reply=Replied("by the old holder"), steps=[a_step("old")])
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["by the new holder"]


def test_a_take_over_that_comes_late_to_postgres_does_not_fence_off_the_one_after_it(stores: Stores) -> None:
    """Epochs follow the order of the claims: the newest holder's completion becomes history (CK-2, CK-11)."""
    turn = stores.node().start(agent="lead", conversation="jira:POC-7", triggered_by="work")
    lapse(stores, turn)
    record, _ = stores.records.claim(turn.turn_id, owner="slow")
    slow = Claim(turn.turn_id, "slow", record.revision)
    lapse(stores, turn)
    newest = stores.node().resume(turn.turn_id)
    with pytest.raises(StaleTurn):
        take_over(stores.database, record, still_held=lambda: all(stores.records.renew([slow])))
    newest.complete(reply=Replied("done"), steps=[a_step("new")])
    stores.drain()
    assert stores.state(turn.turn_id) == "committed"
