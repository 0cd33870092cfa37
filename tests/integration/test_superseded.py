"""What a holder that was taken over is told, on the ways past Redis that its fence does not guard."""

from functools import partial
from typing import Any

import pytest

from tests.failover import fail_over, replica_of
from tests.proxy import Proxy
from tests.reconciling import lapse
from tests.stores import Stores, begin, contents
from turnledger.checkpoint import AlreadyRunning, StaleTurn, Turn, Turns
from turnledger.checkpoint.record import LedgerView
from turnledger.checkpoint.records import Claim
from turnledger.checkpoint.starting import StartRequest, unwritten_fields
from turnledger.checkpoint.taking_over import take_over
from turnledger.checkpoint.turns import _Begun
from turnledger.store import Replied, Step, StoreBusy, StoreUnavailable
from turnledger.workers.errors import TurnRejected


def a_step(text: str) -> Step:
    return Step.of(role="assistant", content=text)


def overtake(node: Turns, *, by: Turns, **request: Any) -> list[Turn]:
    """From now on a start of this node has looked when the other one starts; what that has started, later."""
    look, started = node._records.look, list[Turn]()

    def look_and_be_overtaken(*args: Any, **given: Any) -> LedgerView:
        view = look(*args, **given)
        started.append(by.start(**request))
        return view

    node._records.look = look_and_be_overtaken  # type: ignore[method-assign]  # what happens between its steps
    return started


def begun_without_postgres(node: Turns, request: StartRequest, view: LedgerView) -> Any:
    return _Begun(unwritten_fields(request, view, None, block=""))


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


def test_a_holder_that_was_taken_over_does_not_end_the_new_ones_run(stores: Stores) -> None:
    """Cut off from Redis it knows nothing of the other, and Postgres does: nobody is told of a failure (CK-2, DL-3)."""
    notified: list[str] = []
    with Proxy(stores.redis_url) as proxy:
        old = begin(stores.node(redis_url=proxy.url, redis_retries=0))
        lapse(stores, old)
        new = stores.node().resume(old.turn_id)
        proxy.cut()
        assert old._session.owns_surely()  # by its own clock
        with pytest.raises(StaleTurn):
            old.fail("agent_run_failed", notify=lambda: notified.append("sorry"))
    assert (notified, stores.run(old.turn_id)) == ([], None)
    new.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.texts() == ["Done"]


def test_of_two_starts_of_one_turn_the_later_one_has_it_in_both_stores(stores: Stores) -> None:
    """Whatever Redis forgets: what the former goes on to do is never mixed with that (CK-2, ST-8, FL-3)."""
    former = begin(stores.node(), turn_id="t-1")
    later = begin(stores.node(), turn_id="t-1")
    later.save(steps=[a_step("later")])
    later.compact(later.history_to_replace(), steps=[a_step("in short")], model="m")
    stores.redis.flushall()
    with pytest.raises(StaleTurn):
        former.complete(reply=Replied("Former"), steps=[a_step("former"), a_step("Former")])
    later.complete(reply=Replied("Later"), steps=[a_step("Later")])
    assert stores.texts() == ["Later"]
    assert contents(begin(stores.node()).history()) == contents([a_step("in short"), a_step("Later")])


def test_a_turn_may_be_begun_again_as_often_as_answers_are_lost(stores: Stores) -> None:
    """Also one whose start began it anew after Redis had lost it; once it has saved, it runs (ST-8, CK-2)."""
    handles = [begin(stores.node(), turn_id="t-1") for _ in range(3)]
    stores.redis.flushall()
    handles += [begin(stores.node(), turn_id="t-1") for _ in range(3)]
    for former in handles[:-1]:
        with pytest.raises(StaleTurn):
            former.save(steps=[a_step("former")])
    handles[-1].save(steps=[a_step("last")])
    with pytest.raises(AlreadyRunning):
        begin(stores.node(), turn_id="t-1")


@pytest.mark.parametrize("redis", ["remembers it", "has lost it"])
def test_a_repeated_start_that_postgres_was_too_busy_for_may_be_repeated_again(stores: Stores, redis: str) -> None:
    """It leaves the record as it found it (ST-8, FL-8)."""
    former = begin(stores.node(), turn_id="t-1")
    if redis == "has lost it":
        stores.redis.flushall()
    impatient = stores.node(store={"lock_timeout_ms": 100})
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        with pytest.raises(StoreBusy):
            begin(impatient, turn_id="t-1")
    later = begin(impatient, turn_id="t-1")
    with pytest.raises(StaleTurn):
        former.save(steps=[a_step("former")])
    later.complete(reply=Replied("Later"))
    stores.drain()
    assert stores.texts() == ["Later"]


def test_a_turn_is_begun_again_while_postgres_is_away(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis alone decides then; whoever takes the turn over later is ahead of both (ST-8, CK-2, FL-2)."""
    former = begin(stores.node(), turn_id="t-1")

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr("turnledger.checkpoint.turns.refuse_done", away)
        later = begin(stores.node(), turn_id="t-1")
    with pytest.raises(StaleTurn):
        former.save(steps=[a_step("former")])
    lapse(stores, later)
    last = stores.node().resume("t-1")
    stores.redis.flushall()
    for handle in (former, later):
        with pytest.raises(StaleTurn):
            handle.complete(reply=Replied("Former"))
    last.complete(reply=Replied("Last"))
    assert stores.texts() == ["Last"]


def test_a_start_that_comes_again_and_too_late_does_not_end_the_run_of_the_first(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is still at it, cut off from Redis; only a run that began just now is withdrawn (ST-4, ST-8)."""
    with Proxy(stores.redis_url) as proxy:
        cut_off = stores.node(redis_url=proxy.url, redis_retries=0)
        proxy.cut()
        first = begin(cut_off, turn_id="t-1", work_key="k")
        other = stores.node()

        def forestall(point: str) -> None:
            if point == "start.recorded":
                monkeypatch.undo()
                begin(other, turn_id="t-2", work_key="k")

        monkeypatch.setattr("turnledger.checkpoint.turns.crash_point", forestall)
        with pytest.raises(AlreadyRunning, match="t-2"):
            begin(stores.node(), turn_id="t-1", work_key="k")
        assert stores.run("t-1") is None
        first.complete(reply=Replied("Done"))
    assert stores.texts() == ["Done"]


def test_a_take_over_that_comes_late_to_postgres_does_not_fence_off_the_one_after_it(stores: Stores) -> None:
    """Epochs follow the order of the claims: the newest holder's completion becomes history (CK-2, CK-11)."""
    turn = stores.node().start(agent="lead", conversation="jira:POC-7", triggered_by="work")
    lapse(stores, turn)
    record, _ = stores.records.claim(turn.turn_id, owner="slow")
    slow = Claim(turn.turn_id, "slow", record.revision)
    lapse(stores, turn)
    newest = stores.node().resume(turn.turn_id)
    with pytest.raises(StaleTurn):
        take_over(stores.database, record, saved_steps=0, still_held=lambda: all(stores.records.renew([slow])))
    newest.complete(reply=Replied("done"), steps=[a_step("new")])
    stores.drain()
    assert stores.state(turn.turn_id) == "committed"


def test_a_repeated_start_that_finds_the_turn_open_fences_nobody_off(stores: Stores) -> None:
    """Two calls of one start overlap: whichever made the record has the turn, and what it completes stands (ST-8)."""
    first, second = stores.node(), stores.node()
    request: dict[str, Any] = {"agent": "lead", "conversation": "jira:POC-7", "triggered_by": "work", "turn_id": "t-1"}
    started = overtake(second, by=first, **request)
    with pytest.raises(AlreadyRunning):
        second.start(**request)
    started[0].complete(reply=Replied("done"), steps=[a_step("new")])
    stores.drain()
    assert stores.state("t-1") == "committed"


def test_a_start_that_is_begun_again_fences_off_its_first_try(stores: Stores) -> None:
    """Its record was lost: the try that lost it can no longer write past Redis, and a third start gives the turn."""
    request: dict[str, Any] = {"agent": "lead", "conversation": "jira:POC-7", "triggered_by": "work", "turn_id": "t-1"}
    lost = stores.node()
    turn = lost.start(**request)
    stores.redis.flushall()
    stores.node().start(**request)
    again = stores.node().start(**request)
    lost._services.leases.redis_is_crowded = True
    with pytest.raises(StaleTurn):
        turn.complete(reply=Replied("by the first try"))
    again.complete(reply=Replied("by the second"))
    stores.drain()
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["by the second"]


def test_steps_that_redis_lost_after_a_replacement_had_written_them_come_back_from_the_log(stores: Stores) -> None:
    """The commit leaves out as many of a turn's first steps as are in the log: no new one may stand there (HV-8)."""
    turn = stores.node().start(agent="lead", conversation="jira:POC-7", triggered_by="work")
    before = replica_of(stores.redis_url)
    turn.save(steps=[a_step("covered")])
    turn.compact(turn.history_to_replace(), steps=[a_step("summary")], model="m")
    fail_over(stores.redis_url, to=before)
    lapse(stores, turn)
    again = stores.node().resume(turn.turn_id)
    assert again.steps == ()
    again.complete(reply=Replied("done"), steps=[a_step("new")])
    stores.drain()
    reader = stores.node().start(agent="lead", conversation="jira:POC-7", triggered_by="more")
    assert [step.value for step in reader.history()] == ["summary", "new"]


def test_a_completion_by_a_former_holder_does_not_hide_that_the_current_one_was_lost(stores: Stores) -> None:
    """After a failover Redis may have another completion of the turn than the one its holder was told of (FL-8)."""
    turn = stores.node().start(agent="lead", conversation="jira:POC-7", triggered_by="work")
    lapse(stores, turn)
    before = replica_of(stores.redis_url)
    holder = stores.node()
    holder.resume(turn.turn_id).complete(reply=Replied("by the new holder"))
    fail_over(stores.redis_url, to=before)
    turn.complete(reply=Replied("by the old holder"))
    with pytest.raises(TurnRejected):
        stores.drain()
    holder._services.leases.round()
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["by the new holder"]


def test_a_start_that_another_forestalled_is_told_so_although_postgres_never_heard_of_it(stores: Stores) -> None:
    """There is nothing to take back where nothing could be written (ST-4, FL-1)."""
    request: dict[str, Any] = {"agent": "lead", "conversation": "jira:POC-7", "triggered_by": "work", "work_key": "k"}
    first, second = stores.node(), stores.node()
    for node in (first, second):
        node._begin = partial(begun_without_postgres, node)  # type: ignore[method-assign]  # as while Postgres is away
    started = overtake(second, by=first, **request)
    with pytest.raises(AlreadyRunning) as refused:
        second.start(**request)
    assert refused.value.turn_id == started[0].turn_id
