"""What a holder that was taken over is told, on the ways past Redis that its fence does not guard."""

import pytest

from tests.stores import Stores
from turnledger.checkpoint import StaleTurn, Turn
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
