"""A node that Redis could not be reached from when its turn began, and what others did meanwhile."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.proxy import Proxy
from tests.stores import Stores, assistant, begin, contents, user
from turnledger.checkpoint import AlreadyHandled, CheckpointUnavailable, Completion, StaleTurn, Turns
from turnledger.checkpoint.taking_over import take_over as really_take_over
from turnledger.store import Replied


@pytest.fixture
def proxy(stores: Stores) -> Iterator[Proxy]:
    with Proxy(stores.redis_url) as standing:
        yield standing


@pytest.fixture
def cut_off(stores: Stores, proxy: Proxy) -> Turns:
    """A node that reaches Redis only once the proxy is restored."""
    node = stores.node(redis_url=proxy.url, redis_retries=0)
    proxy.cut()
    return node


@pytest.mark.parametrize("first", ["cut off", "other"])
def test_two_runs_of_one_work_that_did_not_see_each_other_both_complete(
    stores: Stores, proxy: Proxy, cut_off: Turns, first: str
) -> None:
    """The first stands, the other names it; no completion is refused for the other's sake (ST-5, FL-2)."""
    lonely = begin(cut_off, work_key="k")
    lonely.save(steps=[user("one")])
    other = begin(stores.node(), work_key="k")
    proxy.restore()
    lonely.save(steps=[user("two")])
    assert lonely.checkpoint_error is None
    early, late = (lonely, other) if first == "cut off" else (other, lonely)
    early.complete(reply=Replied("Early"), steps=[assistant("Early")])
    assert late.complete(reply=Replied("Late")) == Completion(early.turn_id, early.entry_id, duplicate=True)
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()] == [early.turn_id]
    assert stores.types(late.turn_id) == ["turn_started", "turn_duplicate"]
    assert contents(begin(stores.node()).history())[-1] == '{"role":"assistant","content":"Early"}'


def test_a_turn_that_was_started_again_elsewhere_is_no_longer_its_first_holders(
    stores: Stores, proxy: Proxy, cut_off: Turns
) -> None:
    """Under one turn_id the later start has it (CK-2, ST-8)."""
    lonely = begin(cut_off, turn_id="t-1")
    current = begin(stores.node(), turn_id="t-1")
    proxy.restore()
    for _ in range(2):
        with pytest.raises(StaleTurn):
            lonely.save(steps=[user("one")])
        with pytest.raises(StaleTurn):
            lonely.complete(reply=Replied("Lonely"))
    current.complete(reply=Replied("Current"))
    stores.drain()
    assert stores.texts() == ["Current"]


def test_a_turn_that_was_committed_past_redis_is_not_begun_again(stores: Stores, proxy: Proxy) -> None:
    """Its record looks untouched; an engine that asks again would reply a second time (ST-3, ST-8, FL-3)."""
    node = stores.node(redis_url=proxy.url, redis_retries=0)
    turn = begin(node, turn_id="t-1")
    proxy.cut()
    turn.complete(reply=Replied("Once"))
    proxy.restore()
    with pytest.raises(AlreadyHandled, match="t-1"):
        begin(node, turn_id="t-1")
    assert stores.texts() == ["Once"]


@pytest.mark.parametrize("taken", ["taken over", "left alone"])
def test_a_node_that_is_cut_off_for_long_asks_postgres_before_it_sends(
    stores: Stores, proxy: Proxy, taken: str
) -> None:
    """Whoever took its turn over may have replied; where nobody did, the reply goes out (DL-2, FL-2)."""
    node = stores.node(redis_url=proxy.url, redis_retries=0)
    turn = begin(node)
    proxy.cut()
    turn._session._owned_until = 0.0  # its lease has lapsed by its own clock
    if taken == "taken over":
        stores.redis.hset(stores.keys.record(turn.turn_id), "lease_until", 0)
        stores.node().resume(turn.turn_id)
    sent: list[str] = []

    def send() -> str:
        sent.append("a reply")
        return "receipt"

    with pytest.raises(StaleTurn) if taken == "taken over" else nullcontext():
        turn.deliver(send, reply="a reply")
    assert sent == ([] if taken == "taken over" else ["a reply"])


def test_a_turn_that_is_begun_again_without_redis_keeps_the_steps_that_are_history(
    stores: Stores, proxy: Proxy, cut_off: Turns
) -> None:
    """A compaction has put them into the log; the commit counts on them, and must not take new ones for them (HV-8)."""
    turn = begin(stores.node(), turn_id="t-1")
    turn.save(steps=[user("one"), user("two")])
    turn.compact(turn.history_to_replace(), steps=[user("both")], model="m")
    again = begin(cut_off, turn_id="t-1")
    assert contents(again.steps) == []
    again.complete(reply=Replied("Three"), steps=[assistant("Three")])
    assert contents(begin(stores.node()).history()) == contents([user("both"), assistant("Three")])


def test_a_start_that_redis_forgets_at_once_says_that_it_may_be_repeated(
    stores: Stores, proxy: Proxy, cut_off: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failover does it, just when the first start of the turn is being fenced off (ST-8, FL-8)."""
    begin(cut_off, turn_id="t-1")
    node = stores.node()

    def forget(*arguments: object, **named: object) -> object:
        stores.redis.flushall()
        return really_take_over(*arguments, **named)  # type: ignore[arg-type]  # passed on as they came

    with monkeypatch.context() as patched:
        patched.setattr("turnledger.checkpoint.turns.take_over", forget)
        with pytest.raises(CheckpointUnavailable, match="start it again"):
            begin(node, turn_id="t-1")
    assert begin(node, turn_id="t-1").turn_id == "t-1"


def test_steps_that_could_not_be_saved_come_with_the_next_save(stores: Stores, proxy: Proxy, cut_off: Turns) -> None:
    """All of them, in order, however many calls they were meant for (FL-2)."""
    turn = begin(cut_off)
    for number in range(5):
        turn.save(steps=[user(str(number))])
    proxy.restore()
    turn.save(steps=[user("5")])
    assert [step.value["content"] for step in cut_off.read(turn.turn_id).steps] == list("012345")


@pytest.mark.parametrize("state", ["pending", "committed"])
def test_a_completion_that_comes_into_sight_late_names_the_first(
    stores: Stores, proxy: Proxy, cut_off: Turns, state: str
) -> None:
    """The second's complete returns the first's ids (ST-5)."""
    lonely = begin(cut_off, work_key="k")
    other = begin(stores.node(), work_key="k")
    other.complete(reply=Replied("Early"))
    if state == "committed":
        stores.drain()
    proxy.restore()
    assert lonely.complete(reply=Replied("Late")) == Completion(other.turn_id, other.entry_id, duplicate=True)
