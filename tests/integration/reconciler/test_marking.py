"""Marking the other open turns of a ledger whose history was replaced."""

from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turns
from turnledger.checkpoint.upkeep import Upkeep


def test_open_turns_on_an_older_history_are_marked_and_stay_their_owners(stores: Stores, node: Turns) -> None:
    """Bootstrap dropped, fence untouched; the turn that replaced the history is passed over (RC-2, HV-12)."""
    replacing, other = begin(node), begin(node)
    other.save(bootstrap={"cwd": "/tmp"})
    before = stores.redis.hgetall(stores.keys.record(other.turn_id))
    assert Upkeep(stores.records).mark_replaced(LEAD, version=1, by=replacing.turn_id) == 1
    after = stores.redis.hgetall(stores.keys.record(other.turn_id))
    assert after == {**before, "replaced_by": "1", "bootstrap": ""}
    assert not stores.redis.hget(stores.keys.record(replacing.turn_id), "replaced_by")
    other.save(steps=[user("still here")])


def test_marking_again_changes_nothing(stores: Stores, node: Turns) -> None:
    """(RC-16)"""
    begin(node)
    upkeep = Upkeep(stores.records)
    assert [upkeep.mark_replaced(LEAD, version=version, by="-") for version in (1, 1, 2, 1)] == [1, 0, 1, 0]


def test_turns_without_a_history_of_their_own_are_not_marked(stores: Stores, node: Turns) -> None:
    """A turn made while Postgres was unreadable is not stale; nor is one that has ended (CK-9)."""
    blind, ended = begin(node), begin(node)
    stores.redis.hset(stores.keys.record(blind.turn_id), "cursor", "[null,0,-1,null,[]]")
    ended.abandon()
    stores.redis.sadd(stores.keys.open(LEAD), ended.turn_id, "no-such-turn")
    assert Upkeep(stores.records).mark_replaced(LEAD, version=1, by="-") == 0
