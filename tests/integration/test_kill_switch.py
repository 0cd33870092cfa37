"""`enabled: false`: turns that start meanwhile run as if there were no ledger, and nothing else changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.configuring import write_config
from tests.proxy import Proxy
from tests.stores import LEAD, Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, Turn, Turns
from turnledger.checkpoint.errors import SliceLimit
from turnledger.checkpoint.preview import next_block
from turnledger.checkpoint.record import LedgerView
from turnledger.store import InvalidInput, Message, NoReplyOwed, Replied, user_message
from turnledger.store.activity import tool_started
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings


class Switch:
    """One file, and nodes that read it."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self._folder = folder
        self.path = write_config(folder)
        self.node = stores.node(store={"config": self.path})

    def turn(self, what: str) -> None:
        write_config(self._folder, enabled=what == "on")

    @contextmanager
    def off(self) -> Iterator[None]:
        self.turn("off")
        yield
        self.turn("on")


@pytest.fixture
def switch(stores: Stores, tmp_path: Path) -> Switch:
    return Switch(stores, tmp_path)


def in_postgres(stores: Stores) -> dict[str, int]:
    return {table: number for table, number in stores.written().items() if table != "redis"}


def finished(node: Turns, text: str, **given: Any) -> Turn:
    turn = begin(node, text, **given)
    turn.complete(reply=Replied(f"Answer to {text}"), steps=[user(text), assistant(f"Answer to {text}")])
    return turn


def test_a_turn_that_starts_while_it_is_off_is_shown_and_leaves_nothing(stores: Stores, switch: Switch) -> None:
    """No block, no history, no event, no entry; the prompt is byte for byte that of a new ledger (RT-2, EN-9)."""
    finished(switch.node, "One")
    stores.drain()
    before = in_postgres(stores)
    with switch.off():
        turn = begin(switch.node, "Two", messages=[Message("m2", "Two")], work_key="k2")
        assert (turn.earlier, turn.history(), turn.handled, turn.history_error) == ("", [], (), None)
        assert user_message(earlier=turn.earlier, task="Two\n") == "Two\n"
        assert next_block(stores.node(store={"config": switch.path})._database, ledger=LEAD, view=look(stores)) == ""
        assert turn.record(tool_started(turn.turn_id, call_id="c", name="look")) is None
        turn.save(steps=[user("Two")], bootstrap={"a": 1})
        answer = turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    assert (answer.turn_id, answer.entry_id) == (turn.turn_id, turn.entry_id)
    assert stores.state(turn.turn_id) == "committed"
    assert (in_postgres(stores), stores.pending()) == (before, [])
    after = begin(switch.node, "Three")
    assert (after.earlier.count("Answer to One"), "Two" in after.earlier) == (1, False)


def look(stores: Stores) -> LedgerView:
    return stores.records.look(LEAD, turn_id="none")


@pytest.mark.parametrize("end", ["complete", "deliver", "fail", "abandon"])
def test_a_turn_that_runs_when_it_is_switched_off_is_recorded(stores: Stores, switch: Switch, end: str) -> None:
    """Whether a turn is recorded was decided at its start (RT-2, RT-6)."""
    turn = begin(switch.node, "One")
    switch.turn("off")
    turn.save(steps=[user("One")])
    if end == "complete":
        turn.complete(reply=Replied("Done"))
    elif end == "deliver":
        turn.deliver(lambda: "receipt", reply="Done")
    elif end == "fail":
        turn.fail("agent_run_failed")
    else:
        turn.abandon()
    stores.drain(enabled=False)
    outcome = {"fail": "failed", "abandon": "abandoned"}.get(end, "completed")
    assert (stores.run(turn.turn_id), len(stores.entries())) == (outcome, 1 if outcome == "completed" else 0)


def test_what_is_pending_is_committed_while_it_is_off(stores: Stores, switch: Switch) -> None:
    """By workers that are told so as well (RT-6)."""
    turns = [finished(switch.node, f"Ask {number}") for number in range(3)]
    switch.turn("off")
    stores.drain(enabled=False)
    assert [stores.state(turn.turn_id) for turn in turns] == ["committed"] * 3
    assert len(stores.entries()) == 3


@pytest.mark.parametrize(("at_start", "later"), [("off", "on"), ("on", "off")])
def test_a_resume_across_the_switch_keeps_what_was_decided(
    stores: Stores, switch: Switch, at_start: str, later: str
) -> None:
    """Also on another node, block and all (RT-6, BL-6)."""
    finished(switch.node, "One")
    stores.drain()
    before = in_postgres(stores)
    switch.turn(at_start)
    turn = begin(switch.node, "Two")
    turn.park(reason="authorization", steps=[user("Two")])
    switch.turn(later)
    other = stores.node(store={"config": switch.path})
    other.append_input(turn.turn_id, message=Message("m", "More"), step=user("More"))
    again = other.resume(turn.turn_id)
    assert (again.earlier, contents(again.steps)) == (turn.earlier, contents([user("Two"), user("More")]))
    again.complete(reply=Replied("Two done"))
    stores.drain()
    assert (stores.entries()[-1]["triggered_by"] == "Two") is (at_start == "on")
    assert (in_postgres(stores) == before) is (at_start == "off")


def test_a_turn_without_history_replaces_its_own_steps_alone(stores: Stores, switch: Switch) -> None:
    """Also after a resume; the ledger is not touched, now or when the switch is on again (RT-2, HV-1, ID-4)."""
    finished(switch.node, "One")
    stores.drain()
    before = in_postgres(stores), stores.head()
    switch.turn("off")
    turn = begin(switch.node, "Two")
    turn.save(steps=[user("Two"), assistant("Well"), calling("c1"), result("c1")], bootstrap={"a": 1})
    assert turn.history_to_replace().steps == ()
    with pytest.raises(InvalidInput, match="c9"):
        turn.compact(turn.history_to_replace(), steps=[calling("c9")], model="m")
    turn.compact(turn.history_to_replace(), steps=[assistant("In short")], model="m", covers=2)
    assert (contents(turn.history()), turn.bootstrap) == (contents([assistant("In short")]), None)
    assert contents(turn.steps) == contents([calling("c1"), result("c1")])
    switch.turn("on")
    turn.park(reason="waiting")
    turn = stores.node().resume(turn.turn_id)
    assert (contents(turn.history()), len(turn.steps)) == (contents([assistant("In short")]), 2)
    assert turn.history_to_replace().steps == tuple(turn.history())
    turn.hand_off(turn.history_to_replace(), steps=[assistant("Shorter")], model="m", profile="p")
    assert (contents(turn.history()), turn.steps) == (contents([assistant("Shorter")]), ())
    child = turn.open_child("helper", steps=[user("Take over")], model="m")
    turn.end_child(child, outcome="done")
    turn.complete(reply=NoReplyOwed())
    stores.drain()
    assert (in_postgres(stores), stores.head()) == before
    child_turn = begin(switch.node, "Help", ledger=child)
    assert child_turn.history() == []


def test_the_same_start_again_gives_the_same_turn(stores: Stores, switch: Switch) -> None:
    """What was decided first stands, whatever the switch says now (ST-8, RT-6)."""
    finished(switch.node, "One")
    stores.drain()
    recorded = begin(switch.node, "Two", turn_id="t-on")
    with switch.off():
        unrecorded = begin(switch.node, "Two", turn_id="t-off")
        assert begin(switch.node, "Two", turn_id="t-on").earlier == recorded.earlier != ""
    assert begin(switch.node, "Two", turn_id="t-off").earlier == unrecorded.earlier == ""


def test_work_that_is_pending_or_in_progress_is_refused_while_it_is_off(stores: Stores, switch: Switch) -> None:
    """Redis knows it without Postgres (ST-3, ST-4)."""
    done = finished(switch.node, "One", work_key="k1")
    running = begin(switch.node, "Two", work_key="k2")
    before = in_postgres(stores)
    switch.turn("off")
    with pytest.raises(AlreadyHandled) as handled:
        begin(switch.node, "One", work_key="k1")
    with pytest.raises(AlreadyRunning) as refused:
        begin(switch.node, "Two", work_key="k2")
    assert (handled.value.turn_id, refused.value.turn_id) == (done.turn_id, running.turn_id)
    assert in_postgres(stores) == before


def test_a_run_that_was_forestalled_by_a_recorded_one_writes_no_terminal(stores: Stores, switch: Switch) -> None:
    """It has nothing in Postgres to end (ST-5, RT-6)."""
    with switch.off():
        turn = begin(switch.node, "One", work_key="k")
        turn.park(reason="waiting")
    opened = stores.redis.smembers(stores.keys.open(LEAD))
    stores.redis.delete(stores.keys.open(LEAD))  # the other run begins without seeing it
    other = begin(switch.node, "One", work_key="k")
    stores.redis.sadd(stores.keys.open(LEAD), *opened)
    other.complete(reply=Replied("Done"))
    stores.drain()
    before = in_postgres(stores)
    if switch.node.read(turn.turn_id).record.superseded_by:
        with pytest.raises(AlreadyHandled):
            switch.node.resume(turn.turn_id)
    else:
        switch.node.resume(turn.turn_id).complete(reply=Replied("Done too"))
    assert in_postgres(stores) == before


def test_a_turn_that_goes_in_circles_is_ended_without_an_entry(stores: Stores, switch: Switch) -> None:
    """EN-13 is for turns that are recorded (EN-9)."""
    switch.turn("off")
    node = stores.node(store={"config": switch.path}, slices=1)
    turn = begin(node, "One")
    turn.park(reason="waiting")
    with pytest.raises(SliceLimit):
        stores.node(store={"config": switch.path}, slices=1).resume(turn.turn_id)
    assert in_postgres(stores) == dict.fromkeys(in_postgres(stores), 0)


def break_the_schema(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE alembic_version SET version_num = '0000'")


def take_the_ledger_away(connection: psycopg.Connection) -> None:
    connection.execute("ALTER TABLE ledger RENAME TO ledger_elsewhere")


@pytest.mark.parametrize("damage", [break_the_schema, take_the_ledger_away])
def test_it_switches_off_whatever_is_wrong_with_postgres(
    stores: Stores, switch: Switch, damage: Callable[[psycopg.Connection], None], database_url: str
) -> None:
    """A start asks nothing of it, so the engine runs on (RT-2)."""
    with psycopg.connect(database_url, options="-c search_path=turnledger") as connection:
        damage(connection)
    switch.turn("off")
    node = stores.node(store={"config": switch.path, "database_url": database_url})
    turn = begin(node, "One", messages=[Message("m", "One")])
    turn.save(steps=[user("One")])
    turn.park(reason="waiting")
    again = stores.node(store={"config": switch.path, "database_url": database_url}).resume(turn.turn_id)
    assert again.complete(reply=Replied("Done")).turn_id == turn.turn_id


def test_a_turn_on_this_nodes_disk_is_committed_while_it_is_off(stores: Stores, switch: Switch, tmp_path: Path) -> None:
    """It was completed before, and a disk is no place to stay (RT-6, FL-4)."""
    folder = tmp_path / "spool"
    with Proxy(stores.database_url) as proxy:
        proxy.cut()
        store = {"config": switch.path, "database_url": proxy.url}
        node = stores.node(store=store, spool_folder=folder, redis_url="redis://127.0.0.1:1/0", redis_retries=0)
        turn = begin(node, "One")
        turn.complete(reply=Replied("Done"))
        assert turn.spooled is not None
        switch.turn("off")
        proxy.restore()
        begin(stores.node(store=store, spool_folder=folder), "Two").abandon()
    assert (turn.spooled.exists(), stores.run(turn.turn_id)) == (False, "completed")


def test_a_start_asks_nothing_of_a_postgres_that_is_not_there(stores: Stores, switch: Switch) -> None:
    """Nor is that an error of its history: it has none (RT-2, FL-1)."""
    switch.turn("off")
    node = stores.node(store={"config": switch.path, "database_url": "postgresql://127.0.0.1:1/x"})
    turn = begin(node, "One")
    assert (turn.history_error, turn.earlier, turn.history()) == (None, "", [])
    turn.complete(reply=Replied("Done"))


def test_the_reconciler_leaves_nothing_of_them_behind(stores: Stores, switch: Switch) -> None:
    """Nor does it write anything for them (RC-7, RT-6)."""
    with switch.off():
        done = finished(switch.node, "One")
        open_turn = begin(switch.node, "Two")
    stores.redis.hset(stores.keys.record(open_turn.turn_id), "lease_until", 0)
    reconciler = Reconciler(records=stores.records, database=stores.database, settings=WorkerSettings())
    assert reconciler.sweep().done == {"park": 1}
    assert (stores.state(done.turn_id), stores.state(open_turn.turn_id)) == ("committed", "parked")
    assert in_postgres(stores) == dict.fromkeys(in_postgres(stores), 0)
    switch.node.resume(open_turn.turn_id).complete(reply=NoReplyOwed())
    assert in_postgres(stores) == dict.fromkeys(in_postgres(stores), 0)


def test_a_node_without_redis_runs_its_turn_unrecorded_too(stores: Stores, switch: Switch) -> None:
    """No direct commit, no file on its disk (RT-2, FL-2)."""
    switch.turn("off")
    node = stores.node(
        store={"config": switch.path}, redis_url="redis://127.0.0.1:1/0", redis_retries=0, redis_connect_timeout_s=0.2
    )
    turn = begin(node, "One")
    assert turn.checkpoint_error is not None
    turn.save(steps=[user("One")])
    turn.complete(reply=Replied("Done"))
    assert turn.spooled is None
    assert in_postgres(stores) == dict.fromkeys(in_postgres(stores), 0)
