"""Budgets of tokens, over fakeredis."""

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.budgets import Balance, Budgets
from turnledger.checkpoint.records import Records
from turnledger.store import InvalidInput


@pytest.fixture
def redis() -> Iterator["Redis"]:
    with fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True) as client:
        yield client


def budgets_of(redis: "Redis", **given: Any) -> Budgets:
    return Budgets(Records(redis, CheckpointSettings(redis_url="redis://unused", **given)))


@pytest.fixture
def budgets(redis: "Redis") -> Budgets:
    return budgets_of(redis)


def test_what_is_not_set_is_unlimited(budgets: Budgets) -> None:
    """(RW-4)"""
    budgets.spend(agent="lead", tokens=10**9)
    assert budgets.has_room("lead")
    assert budgets.balances().agents == {"lead": Balance(None, 10**9)}


def test_an_agents_budget_is_its_own(budgets: Budgets) -> None:
    """And a spent one leaves the others room (RW-4)."""
    budgets.set_limit(100, agent="lead")
    budgets.set_limit(100, agent="ceo")
    budgets.spend(agent="lead", tokens=99)
    assert budgets.has_room("lead")
    budgets.spend(agent="lead", tokens=1)
    assert (budgets.has_room("lead"), budgets.has_room("ceo")) == (False, True)


def test_the_deployments_budget_is_everybodys(budgets: Budgets) -> None:
    """(RW-4)"""
    budgets.set_limit(100)
    budgets.spend(agent="lead", tokens=60)
    budgets.spend(agent="ceo", tokens=60)
    assert not budgets.has_room("lead")
    assert not budgets.has_room("a third")
    budgets.set_limit(None)
    assert budgets.has_room("lead")


def test_spend_is_recorded_whole_also_past_the_ceiling(budgets: Budgets) -> None:
    """(RW-4)"""
    budgets.set_limit(100, agent="lead")
    budgets.spend(agent="lead", tokens=5_000)
    found = budgets.balances()
    assert found.agents["lead"] == Balance(100, 5_000)
    assert (found.agents["lead"].left, found.deployment) == (0, Balance(None, 5_000))


def test_a_budget_of_nothing_asks_nobody(budgets: Budgets) -> None:
    """(RW-4)"""
    budgets.set_limit(0)
    assert not budgets.has_room("lead")


def test_an_operation_counts_once(budgets: Budgets) -> None:
    """However often its reply is lost (RW-4)."""
    assert budgets.spend(agent="lead", tokens=5, operation="o1")
    assert not budgets.spend(agent="lead", tokens=5, operation="o1")
    assert budgets.spend(agent="lead", tokens=5, operation="o2")
    assert budgets.spend(agent="lead", tokens=5)
    assert budgets.balances().deployment.spent == 15


def test_a_window_begins_anew(redis: "Redis") -> None:
    """Budgets stay, spending does not, and is gone from Redis a window later (RW-4)."""
    one, other = budgets_of(redis), budgets_of(redis, budget_window_s=10**9)
    one.set_limit(5, agent="lead")
    one.spend(agent="lead", tokens=5)
    assert not one.has_room("lead")
    assert other.has_room("lead")
    windows = [key for key in redis.scan_iter() if ":spend:" in key and "operation" not in key]
    assert [0 < redis.ttl(key) <= 2 * 86_400 for key in windows] == [True]
    assert one.balances().until.isoformat().endswith("T00:00:00+00:00")


@pytest.mark.parametrize("damage", ["away", "another type", "no number"])
def test_a_budget_that_cannot_be_read_has_room(
    redis: "Redis", budgets: Budgets, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """(RW-4)"""
    budgets.set_limit(0, agent="lead")
    if damage == "away":

        def gone(*_: object, **__: object) -> None:
            raise RedisConnectionError("gone")

        monkeypatch.setattr(redis, "evalsha", gone)
    elif damage == "another type":
        redis.delete("{turnledger}:budgets")
        redis.lpush("{turnledger}:budgets", "x")
    else:
        redis.hset("{turnledger}:budgets", "agent:lead", "much")
    assert budgets.has_room("lead")


@pytest.mark.parametrize("tokens", [-1, 10**13])
def test_figures_that_make_no_sense_are_refused(budgets: Budgets, tokens: int) -> None:
    """Nothing is counted or set (RW-4)."""
    with pytest.raises(InvalidInput):
        budgets.spend(agent="lead", tokens=tokens)
    with pytest.raises(InvalidInput):
        budgets.set_limit(tokens)
    with pytest.raises(InvalidInput):
        budgets.set_limit(5, agent="")
    assert budgets.balances().agents == {}
