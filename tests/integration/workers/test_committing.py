"""Committers in this process over real servers: what a job carries, and that it always comes to an end."""

import pytest

from tests.engine import Engine, within
from tests.ledger_checks import Told, check_ledgers
from tests.proxy import Proxy
from tests.stepping import SteppedWorker, stepped_crash_points
from turnledger.store import Database, StoreSettings
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.settings import WorkerSettings

ENOUGH_TO_BE_ALONE = 7  # attempts after which a job takes its ledger apart turn by turn


def test_one_job_commits_the_turns_that_queue_behind_it(engine: Engine) -> None:
    """(QU-4)"""
    played = [engine.play(f"jira:POC-{number % 3}") for number in range(9)]
    engine.committer().persist(played[0].turn_id)
    assert [engine.state(turn.turn_id) for turn in played] == ["committed"] * 9
    check_ledgers(engine.database_url, engine.redis_url, told=played)


def test_a_job_whose_turn_another_worker_commits_while_it_waits_comes_to_an_end(engine: Engine) -> None:
    """(QU-7)"""
    turn = engine.play()
    with Proxy(engine.database_url) as proxy:
        proxy.cut()
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 4:
                proxy.restore()
                engine.committer().persist(turn.turn_id)

        database = Database(StoreSettings(database_url=proxy.url))
        waiting = Committer(records=engine.records, database=database, settings=WorkerSettings(), sleep=sleep)
        with within():
            waiting.persist(turn.turn_id)
        database.close()
    check_ledgers(engine.database_url, engine.redis_url, told=[turn])


def test_a_turn_that_its_ledger_list_has_lost_is_committed_also_when_its_job_killed_workers(engine: Engine) -> None:
    """(QU-4)"""
    turn = engine.play()
    engine.redis.hset(engine.keys.record(turn.turn_id), "attempts", ENOUGH_TO_BE_ALONE)
    engine.redis.delete(engine.keys.pending(engine.ledger_of(turn)))
    with within():
        engine.committer().persist(turn.turn_id)
    assert engine.state(turn.turn_id) == "committed"


def test_a_group_passes_over_the_ledgers_that_another_worker_holds(engine: Engine) -> None:
    """(QU-13)"""
    mine, theirs = engine.play("jira:MINE-1"), engine.play("jira:THEIRS-1")
    also_theirs = engine.play("jira:THEIRS-1")
    with stepped_crash_points():
        other = SteppedWorker()
        engine.redis.lpop(engine.keys.queue)  # its job alone is out of sight of the other worker
        other.begin(lambda: engine.committer().persist(also_theirs.turn_id))
        while other.at != "commit.written":
            other.step()
        engine.committer().persist(mine.turn_id)
        assert [engine.state(turn.turn_id) for turn in (mine, theirs, also_theirs)] == [
            "committed",
            "completed",
            "completed",
        ]
        other.finish()
    assert engine.state(also_theirs.turn_id) == "committed"
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_a_job_waits_for_the_ledger_that_another_worker_holds_and_goes_back(engine: Engine) -> None:
    """(QU-3)"""
    first, second = engine.play(), engine.play()
    with stepped_crash_points():
        other = SteppedWorker()
        other.begin(lambda: engine.committer().persist(first.turn_id))
        while other.at != "commit.written":
            other.step()
        with within(), pytest.raises(CommitPostponed):
            engine.committer().persist(second.turn_id)
        other.finish()
    engine.committer().persist(second.turn_id)
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_what_was_committed_while_a_job_waited_for_the_lock_is_not_committed_again(engine: Engine) -> None:
    """(QU-4)"""
    turn = engine.play()
    with stepped_crash_points():
        other, waiting = SteppedWorker(), SteppedWorker()
        other.begin(lambda: engine.committer().persist(turn.turn_id))
        waiting.begin(lambda: engine.committer().persist(turn.turn_id))
        while other.at != "commit.committed":
            other.step()
        waiting.finish()
        other.finish()
    assert waiting.error is None
    assert other.error is None
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_the_same_job_twice_and_a_repeated_commit_change_nothing(engine: Engine) -> None:
    """(QU-4)"""
    turn = engine.play()
    for _ in range(3):
        engine.committer().persist(turn.turn_id)
        assert engine.committer().commit_ledger(engine.ledger_of(turn)) == frozenset()
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_a_group_is_bounded(engine: Engine) -> None:
    """(QU-13)"""
    small = Engine(engine.database_url, engine.redis_url, group_turns=5)
    turns = [small.play(f"jira:POC-{number % 3}") for number in range(12)]
    _commit_first_group(small, turns[0])
    assert [small.state(turn.turn_id) for turn in turns].count("committed") == 5
    small.close()


def test_a_group_is_bounded_by_its_bytes_but_a_large_turn_is_committed_alone(engine: Engine) -> None:
    """(QU-13)"""
    small = Engine(engine.database_url, engine.redis_url, group_bytes=1_000)
    turns = [small.play(f"jira:POC-{number}", steps=30) for number in range(3)]
    _commit_first_group(small, turns[0])
    assert [small.state(turn.turn_id) for turn in turns] == ["committed", "completed", "completed"]
    small.close()


def _commit_first_group(engine: Engine, turn: Told) -> None:
    """A job goes on with the groups behind its own; here it dies before it does."""
    with stepped_crash_points():
        worker = SteppedWorker()
        worker.begin(lambda: engine.committer().persist(turn.turn_id))
        while worker.at != "commit.finished":
            worker.step()
        worker.kill()


def test_another_clash_than_one_of_the_work_key_is_no_duplicate(engine: Engine) -> None:
    """(QU-11)"""
    first, second = engine.play(), engine.play()
    entry_id = engine.redis.hget(engine.keys.record(first.turn_id), "entry_id")
    engine.redis.hset(engine.keys.record(second.turn_id), "entry_id", entry_id)
    with pytest.raises(TurnRejected, match="ledger_entry_id"):
        engine.committer().persist(second.turn_id)
    assert engine.state(first.turn_id) == "committed"
    assert engine.state(second.turn_id) == "rejected"
