"""Orders of events that the state machine found: each was a loss, a repeat, or a refusal of somebody who might."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.proxy import Proxy
from tests.stores import Stores, assistant, begin, calling, result, user
from turnledger.checkpoint import StaleTurn, Turn, TurnEnded, Turns
from turnledger.store import Message, Replied, StoreUnavailable

T = TypeVar("T")


class ChatError(Exception):
    """The chat did not take the reply."""


def fail_to_deliver(turn: Turn) -> None:
    def send() -> str:
        raise ChatError

    with pytest.raises(ChatError):
        turn.deliver(send, reply="nobody got this", steps=[assistant("nobody got this")])


def test_a_failed_delivery_on_its_way_answers_nothing(stores: Stores, node: Turns) -> None:
    """Its work and its messages are free before it is committed as well (ST-4, ST-7, DL-1)."""
    message = Message("m-1", "Hello")
    fail_to_deliver(begin(node, work_key="k", messages=[message]))
    again = begin(node, work_key="k", messages=[message])
    assert (again.handled, again.earlier.count("did NOT reply")) == ((), 1)
    again.complete(reply=Replied("here"), steps=[assistant("here")])
    stores.drain()
    assert stores.run(again.turn_id) == "completed"


def test_a_failed_delivery_is_nobodys_first_run(stores: Stores, node: Turns) -> None:
    """Another open run of its work is no duplicate of it, and can be resumed (ST-5, DL-1)."""
    first = begin(node, work_key="k")
    stores.redis.delete(stores.keys.open(first.ledger))  # an index: without it two runs of one work may be open
    other = begin(node, work_key="k")
    other.park(reason="waiting", steps=[user("q")])
    fail_to_deliver(first)
    answer = stores.node().resume(other.turn_id).complete(reply=Replied("here"), steps=[assistant("here")])
    stores.drain()
    assert not answer.duplicate
    assert (stores.run(first.turn_id), stores.run(other.turn_id)) == ("failed", "completed")


def test_a_failed_delivery_is_not_work_that_is_done(stores: Stores, node: Turns) -> None:
    """Whoever starts or resumes that very run again is told that it failed, committed or not (ST-4, DL-1)."""
    turn = begin(node, work_key="k")
    fail_to_deliver(turn)
    for _ in range(2):
        with pytest.raises(TurnEnded, match="failed"):
            begin(node, work_key="k", turn_id=turn.turn_id)
        with pytest.raises(TurnEnded, match="failed"):
            node.resume(turn.turn_id)
        stores.drain()


@pytest.mark.parametrize("levels", [100, 101, 700, 940, 5_000])
def test_arguments_nested_by_a_model_gone_wrong_are_committed_and_shown(
    stores: Stores, node: Turns, levels: int
) -> None:
    """The commit refused the turn, and no block could read it, where Python was a little deeper then (EN-8, BL-9)."""
    nested = '{"a": ' + "[" * levels + "]" * levels + "}"
    turn = begin(node)
    turn.save(steps=[calling("c1", name="dig", arguments=nested), result("c1")])
    turn.complete(reply=Replied("done"))
    pending = _deeper(300, lambda: begin(node).earlier)
    _deeper(300, stores.drain)
    assert "not shown, digest" in pending
    assert _deeper(300, lambda: begin(node).earlier) == pending


def _deeper(frames: int, does: Callable[[], T]) -> T:
    return does() if frames == 0 else _deeper(frames - 1, does)


def begin_unheard(stores: Stores, node: Turns) -> Turn:
    """A turn whose start Postgres did not take: its ledger was held by somebody for too long."""
    begin(node).abandon()
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        return begin(node)


def test_a_turn_whose_start_was_not_recorded_can_replace_history(stores: Stores) -> None:
    """It was told for ever that it had been taken over (FL-1, HV-2, HV-8)."""
    node = stores.node(store={"lock_timeout_ms": 100})
    turn = begin_unheard(stores, node)
    turn.save(steps=[user("q"), assistant("thinking")])
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m-1")
    turn.complete(reply=Replied("done"), steps=[assistant("done")])
    stores.drain()
    assert [step.value["content"] for step in begin(node).history()] == ["summary", "done"]


def test_a_take_over_fences_a_turn_that_postgres_never_heard_of(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former holder, cut off from Redis, commits nothing over the one that goes on (CK-2, FL-1, FL-3)."""
    node = stores.node()

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr("turnledger.checkpoint.turns.begin", away)
        old = begin(node)
    assert stores.rows("SELECT 1 FROM ledger") == []
    stores.redis.hset(stores.keys.record(old.turn_id), "lease_until", 0)
    new = stores.node().resume(old.turn_id)
    with Proxy(stores.redis_url) as proxy:
        old._session._records = stores.node(redis_url=proxy.url, redis_retries=0)._records
        proxy.cut()
        with pytest.raises(StaleTurn):
            old.complete(reply=Replied("stale"), steps=[assistant("stale")])
    new.complete(reply=Replied("fresh"), steps=[assistant("fresh")])
    stores.drain()
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["fresh"]
