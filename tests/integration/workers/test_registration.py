"""What Redis knows of a worker that was out of its reach."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from tests.engine import Engine
from tests.proxy import Proxy
from turnledger.checkpoint import CheckpointSettings
from turnledger.workers.cli.fleet import Fleet
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.worker import LOOK_S, TurnWorker, rq_connection


@pytest.fixture
def worker(engine: Engine) -> Iterator[TurnWorker]:
    """Of the commit queue, in this process; it does not work yet."""
    with closing(rq_connection(engine.settings)) as redis:
        made = TurnWorker(engine.settings.commit_queue, redis=redis, settings=WorkerSettings())
        made.register_birth()
        yield made


def test_a_worker_that_was_forgotten_is_known_again_after_its_next_look_around(
    engine: Engine, worker: TurnWorker
) -> None:
    """(OP-8, QU-9): Redis forgets who is cut off, or frozen, for two minutes, and comes back empty at times."""
    engine.redis.delete(worker.key)
    worker.run_maintenance_tasks()
    assert _alive(engine, worker) == 1
    engine.redis.delete(worker.key, "rq:workers", "rq:workers:commits")
    worker.heartbeat()  # makes a worker without a name
    assert _alive(engine, worker) == 0
    with capture_logs() as logs:
        worker.run_maintenance_tasks()
    assert [log["event"] for log in logs] == ["worker_registered_again"]
    assert _alive(engine, worker) == 1
    assert engine.redis.ttl(worker.key) > 0


def test_a_worker_that_is_known_stays_as_it_is(engine: Engine, worker: TurnWorker) -> None:
    before = engine.redis.hgetall(worker.key)
    worker.run_maintenance_tasks()
    assert engine.redis.hgetall(worker.key) == before


def test_a_worker_waits_for_a_reply_little_longer_than_it_looks_for_a_job(engine: Engine, worker: TurnWorker) -> None:
    """(FL-7): RQ itself would wait a minute for a Redis whose host is gone."""
    patience_s = worker.connection.connection_pool.connection_kwargs["socket_timeout"]
    assert patience_s == engine.settings.redis_reply_timeout_s + LOOK_S


def test_a_worker_whose_redis_goes_away_between_two_jobs_waits_for_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(QU-7): whatever it asks of Redis first; it does not end as one that had a job in hand."""
    with Proxy(engine.redis_url) as proxy:
        far = CheckpointSettings(redis_url=proxy.url, redis_retries=0)
        with closing(rq_connection(far)) as redis:
            worker = TurnWorker(far.commit_queue, redis=redis, settings=WorkerSettings())
            worker.register_birth()
            turn = engine.play()
            proxy.cut()
            monkeypatch.setattr("turnledger.workers.worker.time.sleep", lambda _: proxy.restore())
            with capture_logs() as logs:
                worker.check_for_suspension(False)  # noqa: FBT003  # RQ's signature
                found = worker.dequeue_job_and_maintain_ttl(1)
        assert found is not None
        assert found[0].id == f"turn-{turn.turn_id}"
        assert [log["event"] for log in logs].count("worker_without_redis") == 2


def _alive(engine: Engine, worker: TurnWorker) -> int:
    return Fleet(worker.connection, queue=engine.settings.commit_queue).alive(silent_for_s=60)
