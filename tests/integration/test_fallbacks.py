"""Postgres away, Redis away, both away, Redis emptied: nothing completed is lost or doubled."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.reconciling import lapse
from tests.stores import Stores, assistant, begin, contents, user
from turnledger.checkpoint import AlreadyHandled, Completion, StaleTurn, Turn, TurnBlocked, TurnNotFound
from turnledger.checkpoint.errors import NotPersisted
from turnledger.store import Message, Replied
from turnledger.workers.embedded import EmbeddedServers
from turnledger.workers.reconciler import Reconciler

IMPATIENT: dict[str, Any] = {"redis_connect_timeout_s": 0.3, "redis_reply_timeout_s": 0.3, "redis_retries": 0}
QUICK_STORE = {"database_connect_timeout_s": 2, "lock_timeout_ms": 200}


@contextmanager
def own_stores(servers: EmbeddedServers) -> Iterator[Stores]:
    """Over servers that only this test stops."""
    stores = Stores(database_url=servers.database_url, redis_url=servers.redis_url)
    try:
        yield stores
    finally:
        stores.close()


def complete(turn: Turn, word: str) -> Completion:
    return turn.complete(reply=Replied(word), steps=[assistant(word)])


def only_once(stores: Stores, *turns: Turn) -> None:
    """Each of these turns is history once, in this order, with nothing left on its way."""
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()] == [turn.turn_id for turn in turns]
    for turn in turns:
        assert stores.types(turn.turn_id).count("turn_completed") == 1
        assert stores.run(turn.turn_id) == "completed"
    assert stores.pending() == []
    assert [event.seq for event in stores.events()] == list(range(len(stores.events())))


def test_a_start_without_a_write_still_has_the_history(stores: Stores) -> None:
    """A ledger that is locked: the block is there, the inbound events travel with the completion (FL-1)."""
    node = stores.node(store=QUICK_STORE)
    first = begin(node, "First")
    complete(first, "One")
    stores.drain()
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger FOR UPDATE")
        turn = begin(node, "Second", work_key="k", messages=[Message("m-1", "Hello")])
    assert (turn.history_error, turn.earlier.count("### ")) == (None, 1)
    assert stores.texts() == ["One"]
    complete(turn, "Two")
    only_once(stores, first, turn)
    assert stores.types(turn.turn_id) == [
        "message",
        "turn_started",
        "agent_step",
        "message",
        "message_handled",
        "turn_completed",
    ]


def test_a_start_without_postgres_runs_and_says_so(private_servers: EmbeddedServers) -> None:
    """The block is empty, the error is on the turn, and all of it is committed later (FL-1)."""
    with own_stores(private_servers) as stores:
        node = stores.node(store=QUICK_STORE)
        first = begin(node, "First")
        complete(first, "One")
        stores.drain()
        private_servers.postgres.stop()
        turn = begin(node, "Second", messages=[Message("m-1", "Hello")])
        assert turn.earlier == ""
        assert turn.history_error is not None
        complete(turn, "Two")
        private_servers.postgres.start()
        only_once(stores, first, turn)
        assert stores.texts() == ["One", "Hello", "Two"]


def test_a_ledger_without_turns_has_no_history_and_no_error(stores: Stores) -> None:
    """Empty is not unreadable (FL-1)."""
    turn = begin(stores.node())
    assert (turn.earlier, turn.history_error) == ("", None)


def test_a_turn_without_redis_from_start_to_end_is_committed_directly(private_servers: EmbeddedServers) -> None:
    """Unsaved and flagged, then whole in Postgres; nobody can resume or repeat it (FL-2, FL-3)."""
    with own_stores(private_servers) as stores:
        node = stores.node(**IMPATIENT)
        private_servers.redis.stop()
        turn = begin(node, "First", work_key="k")
        assert turn.checkpoint_error is not None
        turn.save(steps=[user("q")])
        answer = complete(turn, "One")
        assert answer == Completion(turn.turn_id, turn.entry_id)
        private_servers.redis.start()
        with pytest.raises(AlreadyHandled):
            begin(node, work_key="k")
        only_once(stores, turn)


def test_a_completion_that_both_stores_refuse_waits_on_disk(private_servers: EmbeddedServers, tmp_path: Path) -> None:
    """Complete returns once the file is there; recover commits it, any number of times, once (FL-4)."""
    with own_stores(private_servers) as stores:
        folder = tmp_path / "a spool"
        deployment = stores.deployment_id
        node = stores.node(store=QUICK_STORE, spool_folder=folder, **IMPATIENT)
        turn = begin(node, "First", work_key="k", messages=[Message("m-1", "Hello")])
        private_servers.redis.stop()
        private_servers.postgres.stop()
        complete(turn, "One")
        assert turn.spooled == folder / f"{turn.turn_id}.1.{deployment}.turn.json"
        assert turn.spooled.stat().st_mode & 0o077 == 0
        kept = turn.spooled.read_bytes()
        private_servers.redis.start()
        private_servers.postgres.start()
        assert node.recover() == 1
        turn.spooled.write_bytes(kept)
        stores.redis.flushall()
        assert node.recover() == 1
        assert list(folder.iterdir()) == []
        only_once(stores, turn)
        with pytest.raises(AlreadyHandled):
            begin(node, work_key="k")


def test_a_superseded_holder_does_not_write_over_the_completion_on_disk(
    private_servers: EmbeddedServers, tmp_path: Path
) -> None:
    """Both holders share a disk; the one that took the turn over counts (FL-4, CK-2)."""
    with own_stores(private_servers) as stores:
        node = stores.node(store=QUICK_STORE, spool_folder=tmp_path, **IMPATIENT)
        deployment = stores.deployment_id
        former = begin(node, "First")
        stores.redis.hset(stores.keys.record(former.turn_id), "lease_until", 0)
        current = node.resume(former.turn_id)
        private_servers.redis.stop()
        private_servers.postgres.stop()
        complete(current, "Current")
        complete(former, "Former")
        private_servers.redis.start()
        private_servers.postgres.start()
        assert node.recover() == 1
        only_once(stores, current)
        assert stores.texts() == ["Current"]
        name = f"{former.turn_id}.1.{deployment}.turn.json.refused"
        assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("way", ["completes", "is resumed first", "goes past redis"])
def test_a_turn_that_is_begun_anew_while_no_store_remembers_it_keeps_its_new_steps(
    private_servers: EmbeddedServers, tmp_path: Path, way: str
) -> None:
    """Steps of its former life that a compaction took are not taken for its first new ones (HV-8, FL-1, FL-6)."""
    with own_stores(private_servers) as stores:
        node = stores.node(store=QUICK_STORE, spool_folder=tmp_path, **IMPATIENT)
        former = begin(node, turn_id="t-1")
        former.save(steps=[user("one"), user("two")])
        former.compact(former.history_to_replace(), steps=[user("both")], model="m-1")
        stores.redis.flushall()
        private_servers.postgres.stop()
        turn = begin(node, turn_id="t-1")
        assert turn.history_error is not None
        turn.save(steps=[user("three"), user("four"), user("five")])
        private_servers.postgres.start()
        if way == "is resumed first":
            turn.park(reason="waits")
            turn = node.resume("t-1")
        if way == "goes past redis":
            private_servers.redis.stop()
        complete(turn, "Six")
        if way == "goes past redis":
            private_servers.redis.start()
        stores.drain()
        told = [step.value["content"] for step in begin(node).history()]
        assert told == ["both", "three", "four", "five", "Six"]


def test_the_next_start_of_the_node_replays_its_spool(stores: Stores) -> None:
    """Before it looks at the history (FL-4)."""
    node = stores.node()
    turn = begin(node)
    owned, turn._session._owned_until = turn._session._owned_until, 0.0
    stores.redis.delete(stores.keys.record(turn.turn_id))
    complete(turn, "One")
    assert turn.spooled is not None
    assert owned > 0
    assert begin(node).earlier.count("### ") == 1
    only_once(stores, turn)


def test_a_turn_that_no_store_and_no_disk_takes_says_so(stores: Stores, tmp_path: Path) -> None:
    """The one error of a completion, and a repeat is safe (FL-4)."""
    file = tmp_path / "no folder"
    file.write_text("")
    turn = begin(stores.node(spool_folder=file))
    turn._session._owned_until = 0.0
    stores.redis.delete(stores.keys.record(turn.turn_id))
    with pytest.raises(NotPersisted):
        complete(turn, "One")
    file.unlink()
    complete(turn, "One")
    assert turn.spooled is not None


def test_a_node_that_was_taken_over_commits_nothing_directly(stores: Stores) -> None:
    """Nor does its spool later: its epoch is behind, the new holder's completion stands (FL-3, FL-4, CK-2)."""
    old = begin(stores.node())
    stores.redis.hset(stores.keys.record(old.turn_id), "lease_until", 0)  # by its own clock it owns the turn
    new = stores.node().resume(old.turn_id)
    with Proxy(stores.redis_url) as proxy:
        cut_off = stores.node(redis_url=proxy.url, **IMPATIENT)
        old._session._records = cut_off._records
        proxy.cut()
        with pytest.raises(StaleTurn):
            complete(old, "stale")
        old._session._owned_until = 0.0
        complete(old, "stale")
    assert old.spooled is not None
    complete(new, "fresh")
    stores.node().recover()
    only_once(stores, new)
    assert stores.entries()[0]["reply"]["text"] == "fresh"
    assert not old.spooled.exists()
    assert old.spooled.with_name(old.spooled.name + ".refused").exists()


def test_a_completion_whose_record_redis_forgot_is_pending_once_when_it_is_begun_again(stores: Stores) -> None:
    """And in the block of others once, although the list still named it (ST-1, ST-8, FL-8)."""
    node = stores.node()
    complete(begin(node, turn_id="t-1"), "One")
    stores.redis.delete(stores.keys.record("t-1"), stores.keys.steps("t-1"))
    again = begin(stores.node(), turn_id="t-1")
    assert stores.pending() == []
    complete(again, "One")
    assert stores.pending() == ["t-1"]
    assert begin(node).earlier.count("(turn t-1)") == 1


def test_a_completion_that_redis_forgot_is_submitted_again(stores: Stores) -> None:
    """While its process lives (FL-6, FL-8)."""
    node = stores.node()
    turn = begin(node)
    complete(turn, "One")
    stores.redis.flushall()
    node._services.leases.round()
    only_once(stores, turn)
    node._services.leases.round()
    assert node._services.leases._completed == {}


@pytest.mark.parametrize("way", ["completes", "delivers"])
def test_a_turn_goes_on_when_redis_comes_back_empty(stores: Stores, way: str) -> None:
    """Unsaved and flagged from there, and whole at its end; a park is refused (FL-2, FL-3, FL-6)."""
    turn = begin(stores.node())
    turn.save(steps=[user("zero")])
    stores.redis.flushall()
    turn.save(steps=[user("one")])
    assert isinstance(turn.checkpoint_error, TurnNotFound)
    with pytest.raises(TurnNotFound):
        turn.park(reason="waits")
    if way == "completes":
        complete(turn, "Done")
    else:
        turn.deliver(lambda: "receipt", reply="Done", steps=[assistant("Done")])
    only_once(stores, turn)
    assert [step.value["content"] for step in begin(stores.node()).history()] == ["zero", "one", "Done"]


def test_a_record_that_went_back_is_submitted_again(stores: Stores) -> None:
    """A failover that lost the last second: running again in Redis, completed for its process (FL-8)."""
    node = stores.node()
    turn = begin(node)
    fields: Any = stores.redis.hgetall(stores.keys.record(turn.turn_id))
    complete(turn, "One")
    stores.redis.flushall()
    stores.redis.hset(stores.keys.record(turn.turn_id), mapping=fields)
    node._services.leases.round()
    only_once(stores, turn)
    assert stores.state(turn.turn_id) == "committed"


@pytest.mark.parametrize("then", ["saves", "completes", "ends"])
def test_a_holder_goes_on_when_redis_forgets_its_last_saves(stores: Stores, then: str) -> None:
    """Nobody has taken the turn over: the next call brings what a failover lost, each step once (FL-8, CK-2)."""
    node = stores.node()
    turn = begin(node)
    turn.save(steps=[user("zero")])
    record, steps = stores.keys.record(turn.turn_id), stores.keys.steps(turn.turn_id)
    kept: Any = [stores.redis.dump(key) for key in (record, steps)]
    turn.save(steps=[user("one")])
    turn.save(steps=[user("two")])
    for key, value in zip((record, steps), kept, strict=True):
        stores.redis.restore(key, 0, value, replace=True)
    if then == "ends":
        turn.abandon()
        assert stores.state(turn.turn_id) == "abandoned"
        return
    if then == "saves":
        turn.save(steps=[user("three")])
        assert [step.value["content"] for step in node.read(turn.turn_id).steps] == ["zero", "one", "two", "three"]
    complete(turn, "Done")
    only_once(stores, turn)
    told = [step.value["content"] for step in begin(node).history()]
    assert told == ["zero", "one", "two", *(["three"] if then == "saves" else []), "Done"]


def test_a_holder_is_refused_when_redis_forgets_that_the_turn_was_taken_over(stores: Stores) -> None:
    """The record is its own again, at an older revision; Postgres remembers the take-over (FL-8, CK-2)."""
    node = stores.node()
    old = begin(node)
    record, steps = stores.keys.record(old.turn_id), stores.keys.steps(old.turn_id)
    kept: Any = stores.redis.dump(record)
    old.save(steps=[user("one")])
    stores.redis.hset(record, "lease_until", 0)
    stores.node().resume(old.turn_id)
    stores.redis.restore(record, 0, kept, replace=True)
    stores.redis.delete(steps)
    with pytest.raises(StaleTurn, match="taken over"):
        complete(old, "stale")
    assert stores.pending() == []


def test_a_completion_that_redis_forgot_with_the_save_before_it_is_submitted_again(stores: Stores) -> None:
    """Running again in Redis at an older revision, with fewer steps: it is committed whole (FL-8)."""
    node = stores.node()
    turn = begin(node)
    kept: Any = stores.redis.dump(stores.keys.record(turn.turn_id))
    turn.save(steps=[user("zero")])
    complete(turn, "One")
    stores.redis.flushall()
    stores.redis.restore(stores.keys.record(turn.turn_id), 0, kept)
    node._services.leases.round()
    only_once(stores, turn)
    assert [step.value["content"] for step in begin(node).history()] == ["zero", "One"]


@pytest.mark.parametrize("crowded", ["queue", "memory"])
def test_a_crowded_redis_gets_no_more_turns(stores: Stores, crowded: str) -> None:
    """They are committed directly, after the pending ones they were built on (QU-14, QU-3)."""
    node = stores.node(pending_turns=1 if crowded == "queue" else 1_000)
    first = begin(node, "First")
    complete(first, "One")
    turn = begin(node, "Second")
    node._services.leases.redis_is_crowded = crowded == "memory"
    complete(turn, "Two")
    assert stores.run(turn.turn_id) == "completed"
    assert stores.state(turn.turn_id) == "committed"
    only_once(stores, first, turn)


def test_how_full_redis_is_is_seen_by_the_node(stores: Stores) -> None:
    """By the share of its limit that is used (QU-14)."""
    node = stores.node()
    node._services.leases.round()
    assert not node._services.leases.redis_is_crowded
    used = int(stores.redis.info("memory")["used_memory"])
    stores.redis.config_set("maxmemory", str(used + 10_000))
    try:
        node._services.leases.round()
        assert node._services.leases.redis_is_crowded
    finally:
        stores.redis.config_set("maxmemory", "0")


@pytest.mark.parametrize("is_said", [True, False], ids=["whose it is", "nobody's"])
def test_a_start_goes_on_whatever_is_in_the_spool(stores: Stores, tmp_path: Path, *, is_said: bool) -> None:
    """What cannot be opened, or does not say whose it is, is told in the log (FL-4)."""
    home = f".{stores.deployment_id}" if is_said else ""
    (tmp_path / f"t1.1{home}.turn.json").mkdir()
    turn = begin(stores.node(spool_folder=tmp_path))
    assert (turn.checkpoint_error, turn.history_error) == (None, None)


def test_an_entry_that_is_too_large_for_redis_goes_by_the_disk(stores: Stores, reconciler: Reconciler) -> None:
    """Here of more than 2,000 bytes instead of 64 MiB; the next start commits it, once (CK-13, EN-8, FL-4).

    Until then nobody takes it up, and who was taken over is refused as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnledger.checkpoint.submission.MAX_ENTRY_BYTES", 2_000)
        node = stores.node()
        turn = begin(node, work_key="k")
        turn.complete(reply=Replied("x" * 1_000))
        assert turn.spooled is None
        large = begin(node, work_key="large")
        large.complete(reply=Replied("é" * 1_000), steps=[assistant("é")])
        assert large.spooled is not None
        assert large.spooled.exists()
        lapse(stores, large)
        with pytest.raises(TurnBlocked, match="spooled"):
            stores.node().resume(large.turn_id)
        begin(node)
        stale = begin(node)
        lapse(stores, stale)
        stores.node().resume(stale.turn_id).park(reason="waiting")
        with pytest.raises(StaleTurn):
            stale.complete(reply=Replied("é" * 1_000))
        assert stale.spooled is None
    reconciler.sweep()
    assert stores.state(large.turn_id) == "committed"
    only_once(stores, turn, large)
    assert not large.spooled.exists()
    assert stores.entries()[1]["reply"]["text"] == "é" * 1_000


def test_what_joins_a_turn_with_a_completion_that_fails_is_not_kept(stores: Stores, tmp_path: Path) -> None:
    """Another completion takes its place, with steps of its own (CK-13, FL-4)."""
    (tmp_path / "no folder").touch()
    node = stores.node(spool_folder=tmp_path / "no folder")
    turn = begin(node)
    turn.save(steps=[user("ask")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnledger.checkpoint.submission.MAX_ENTRY_BYTES", 2_000)
        with pytest.raises(NotPersisted):
            turn.complete(reply=Replied("é" * 1_000), steps=[assistant("large")])
        turn.complete(reply=Replied("small"), steps=[assistant("small")])
    stores.drain()
    assert contents(begin(stores.node()).history()) == contents([user("ask"), assistant("small")])


def test_a_turn_on_the_disk_is_not_taken_up_by_others_where_redis_is_there(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis was crowded, and Postgres away: it waits for its node (FL-4, QU-14)."""
    node = stores.node(store={"database_url": "postgresql://nobody@127.0.0.1:1/none", "database_connect_timeout_s": 2})
    turn = begin(node)
    monkeypatch.setattr(node._services.leases, "redis_is_crowded", True)
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    assert turn.spooled is not None
    lapse(stores, turn)
    with pytest.raises(TurnBlocked, match="spooled"):
        stores.node().resume(turn.turn_id)
