"""Committers in this process over real servers: what a job carries, and that it always comes to an end."""

from tests.engine import Engine, within
from tests.ledger_checks import check_ledgers
from tests.proxy import Proxy
from turnledger.store import Database, StoreSettings
from turnledger.workers.committer import Committer
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
        with within(5):
            waiting.persist(turn.turn_id)
        database.close()
    check_ledgers(engine.database_url, engine.redis_url, told=[turn])


def test_a_turn_that_its_ledger_list_has_lost_is_committed_also_when_its_job_killed_workers(engine: Engine) -> None:
    """(QU-4)"""
    turn = engine.play()
    engine.redis.hset(engine.keys.record(turn.turn_id), "attempts", ENOUGH_TO_BE_ALONE)
    engine.redis.delete(engine.keys.pending(engine.ledger_of(turn)))
    with within(5):
        engine.committer().persist(turn.turn_id)
    assert engine.state(turn.turn_id) == "committed"
