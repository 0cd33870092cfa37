"""The clock commits what the queue left lying, one replica at a time, whatever else is broken."""

import threading
import time

from tests.engine import Engine, within
from tests.ledger_checks import check_ledgers
from tests.proxy import Proxy
from turnledger.store import Database, StoreSettings
from turnledger.workers.clock import Clock
from turnledger.workers.settings import WorkerSettings

OLD_MS = 1_000
HELD_UP_S = 15.0  # a sweep that waits for each ledger that is held takes longer


def test_only_turns_that_are_overdue_are_committed(engine: Engine) -> None:
    """(FL-7)"""
    turn = engine.play()
    assert engine.clock(overdue_s=60).tick() == 0
    assert engine.state(turn.turn_id) == "completed"
    time.sleep(0.1)
    assert engine.clock(overdue_s=0.05).tick() == 1
    assert engine.state(turn.turn_id) == "committed"


def test_a_sweep_commits_a_ledger_in_order_of_completion(engine: Engine) -> None:
    """(QU-3)"""
    for number in range(12):
        engine.play(f"jira:POC-{number % 3}")
    assert engine.clock().tick() == 12
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_a_sweep_with_nothing_to_do_changes_nothing(engine: Engine) -> None:
    """(RC-18)"""
    engine.play()
    clock = engine.clock()
    clock.tick()
    before = _everything(engine)
    assert clock.tick() == 0
    assert _everything(engine) == before


def test_a_turn_that_its_ledger_list_has_lost_is_committed(engine: Engine) -> None:
    """(QU-12)"""
    turn = engine.play()
    engine.redis.delete(engine.keys.pending(engine.ledger_of(turn)), engine.keys.queue, engine.keys.job(turn.turn_id))
    clock = engine.clock()
    clock.tick()
    clock.tick()
    assert engine.state(turn.turn_id) == "committed"


def test_a_broken_record_does_not_end_the_sweep(engine: Engine) -> None:
    """(RC-14)"""
    first, second = engine.play("jira:A-1"), engine.play("jira:B-1")
    engine.redis.hset(engine.keys.record(first.turn_id), "ledger", "nonsense")
    engine.clock().tick()
    assert engine.state(second.turn_id) == "committed"
    assert engine.state(first.turn_id) == "completed"


def test_a_bad_turn_does_not_hold_up_the_sweep(engine: Engine) -> None:
    """(QU-13)"""
    bad, good = engine.play("jira:A-1"), engine.play("jira:B-1")
    engine.redis.hset(engine.keys.record(bad.turn_id), "entry", "not json")
    engine.clock().tick()
    assert engine.state(good.turn_id) == "committed"
    assert engine.state(bad.turn_id) == "completed", "a worker takes it apart, not the clock"


def test_held_ledgers_do_not_hold_up_the_sweep(engine: Engine) -> None:
    """(QU-13)"""
    held = [engine.play(f"jira:HELD-{number}") for number in range(4)]
    free = engine.play("jira:FREE-1")
    with engine.connected() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM turnledger.ledger WHERE conversation_key LIKE 'jira:HELD-%' FOR UPDATE")
        with within(HELD_UP_S):
            assert engine.clock().tick() == 1
    assert engine.state(free.turn_id) == "committed"
    assert engine.clock().tick() == len(held)


def test_a_request_to_stop_ends_a_sweep_between_two_ledgers(engine: Engine) -> None:
    """(OP-6)"""
    for number in range(20):
        engine.play(f"jira:HELD-{number}")
    clock = engine.clock()
    with engine.connected() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM turnledger.ledger FOR UPDATE")
        running = threading.Thread(target=clock.run)
        running.start()
        time.sleep(0.3)
        clock.stop()
        running.join(HELD_UP_S)
        assert not running.is_alive()


def test_turns_without_a_record_are_taken_off_the_indexes(engine: Engine) -> None:
    """(RC-14)"""
    for index in (engine.keys.turns, engine.keys.backlog):
        engine.redis.zadd(index, {"gone": OLD_MS})
    engine.clock().tick()
    assert engine.redis.exists(engine.keys.turns, engine.keys.backlog) == 0


def test_one_replica_ticks_and_another_takes_over(engine: Engine) -> None:
    """(RC-18)"""
    first, second = engine.clock(), engine.clock()
    assert first.holds_lock()
    assert not second.holds_lock()
    assert first.holds_lock()
    first.stop()
    first.run()
    assert second.holds_lock()
    assert not first.holds_lock()
    second.stop()
    second.run()


def test_a_clock_that_loses_postgres_asks_for_the_lock_again(engine: Engine) -> None:
    """(QU-7, RC-18)"""
    turn = engine.play()
    with Proxy(engine.database_url) as proxy:
        database = Database(StoreSettings(database_url=proxy.url))
        quick = WorkerSettings(overdue_s=0.001, sweep_s=0.05, clock_retry_s=0.05)
        clock = Clock(records=engine.records, database=database, committer=engine.committer(), settings=quick)
        assert clock.holds_lock()
        proxy.cut()
        assert not clock.holds_lock()
        running = threading.Thread(target=clock.run)
        running.start()
        time.sleep(0.2)
        assert engine.state(turn.turn_id) == "completed"
        proxy.restore()
        _wait_until_committed(engine, turn.turn_id)
        clock.stop()
        running.join()
        database.close()


def _wait_until_committed(engine: Engine, turn_id: str) -> None:
    with within():
        while engine.state(turn_id) != "committed":
            time.sleep(0.02)


def _everything(engine: Engine) -> dict[str, object]:
    """Every key of ours, and what the records hold."""
    keys = sorted(engine.redis.scan_iter("{turnledger}:*"))
    return {key: engine.redis.hgetall(key) if engine.redis.type(key) == "hash" else None for key in keys}
