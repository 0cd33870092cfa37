"""The queue as RQ's own tools see it: who may drain it, what may run on it, and what an operator may do to it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rq import Callback, Queue
from rq.job import Job, JobStatus

from tests.engine import Engine, rq_queue, start_worker
from tests.ledger_checks import check_at_rest, check_invariants, wait_until
from tests.processes import Process, Processes
from turnledger.checkpoint.keys import job_id

RQ = (
    f"import sys; sys.argv[0] = 'rq'; sys.path.insert(0, ''); from rq.cli import main; sys.exit(main())  # {sys.prefix}"
)
STOCK = {
    "TurnWorker": None,
    "rq worker": "worker --url {url} --serializer json --worker-ttl 60 --maintenance-interval 30 --burst commits",
    "rq worker-pool": "worker-pool --url {url} --serializer json --num-workers 2 --burst commits",
}
LEAVES_A_MARK = "import os, pathlib; pathlib.Path(os.environ['MARK']).touch()\ndef run(*_): return None\n"


@pytest.mark.parametrize("command", STOCK)
def test_stock_workers_drain_the_queue_with_the_same_result(engine: Engine, processes: Processes, command: str) -> None:
    """(QU-9)"""
    bad = engine.play("jira:POC-2")
    engine.redis.hset(engine.keys.record(bad.turn_id), "entry", "not json")
    for number in range(8):
        engine.play(f"jira:POC-{number % 4}")
    first = engine.start("jira:POC-1", work_key="same")
    second = engine.start_again(first)
    engine.complete(first)
    engine.complete(second)

    assert _drain(engine, processes, STOCK[command]).wait() == 0

    assert engine.redis.hget(engine.keys.record(second.turn_id), "first") == first.turn_id
    check_invariants(engine.database_url, engine.redis_url, told=engine.told, rejected=[bad.turn_id])


def _drain(engine: Engine, processes: Processes, command: str | None) -> Process:
    if command is None:
        return start_worker(processes, engine.environment(), burst=True)
    arguments = command.format(url=engine.redis_url).split()
    return processes.snippet(RQ, *arguments, environment=engine.environment())


@pytest.mark.parametrize("kind", ["another function", "a success callback", "a failure callback"])
def test_a_worker_neither_runs_nor_imports_what_is_not_ours(
    engine: Engine, processes: Processes, tmp_path: Path, kind: str
) -> None:
    """(QU-2)"""
    (tmp_path / "not_ours.py").write_text(LEAVES_A_MARK)
    environment = engine.environment(MARK=str(tmp_path / "mark"), PYTHONPATH=_with_path(tmp_path))
    turn = engine.play()
    with rq_queue(engine) as queue:
        ours = ("turnledger.workers.jobs.persist_turn", turn.turn_id)
        if kind == "another function":
            job = queue.enqueue("not_ours.run", "now")
        elif kind == "a success callback":
            job = queue.enqueue(*ours, on_success=Callback("not_ours.run"))
        else:
            job = queue.enqueue("not_ours.run", on_failure=Callback("not_ours.run"))
        assert start_worker(processes, environment, burst=True).wait() == 0
        assert queue.failed_job_registry.get_job_ids() == [job.id]
        result = job.latest_result()
        assert result is not None
        assert "ForbiddenFunction" in str(result.exc_string)
    assert not (tmp_path / "mark").exists()
    assert engine.state(turn.turn_id) == "committed"


def test_os_system_is_refused(engine: Engine, processes: Processes, tmp_path: Path) -> None:
    """(QU-2)"""
    with rq_queue(engine) as queue:
        job = queue.enqueue("os.system", f"touch {tmp_path / 'mark'}")
        start_worker(processes, engine.environment(), burst=True).wait()
        assert queue.failed_job_registry.get_job_ids() == [job.id]
    assert not (tmp_path / "mark").exists()


def test_a_webhook_of_a_job_is_not_called(engine: Engine, processes: Processes) -> None:
    """(QU-2)"""
    turn = engine.play()
    with rq_queue(engine) as queue:
        job = queue.fetch_job(job_id(turn.turn_id))
        assert job is not None
        webhook = '[{"url": "http://127.0.0.1:9/", "job_status": "finished", "headers": {}, "timeout": 5}]'
        engine.redis.hset(job.key, "webhooks", webhook)
    worker = start_worker(processes, engine.environment(), burst=True)
    assert worker.wait() == 0
    assert "webhook" not in worker.output.lower()


def _with_path(folder: Path) -> str:
    return ":".join([str(folder), *(path for path in sys.path if path)])


def _job(queue: Queue, engine: Engine, place: int) -> Job:
    job = queue.fetch_job(engine.queued()[place])
    assert job is not None
    return job


def _compact_with_a_lost_hash(queue: Queue, engine: Engine) -> None:
    engine.redis.delete(_job(queue, engine, 1).key)
    queue.compact()  # type: ignore[no-untyped-call]  # RQ's


def _fail_all(queue: Queue, engine: Engine) -> None:
    """As after a long outage: every job is in the failed registry, which the operator empties."""
    for name in engine.queued():
        job = queue.fetch_job(name)
        assert job is not None
        job.set_status(JobStatus.FAILED)
        queue.failed_job_registry.add(job)
        queue.remove(job)
        queue.failed_job_registry.remove(job, delete_job=True)


DAMAGE: dict[str, Callable[[Queue, Engine], object]] = {
    "one job is deleted": lambda queue, engine: _job(queue, engine, 1).delete(),
    "one job is cancelled": lambda queue, engine: _job(queue, engine, 1).cancel(),
    "one job is taken off the queue": lambda queue, engine: queue.remove(_job(queue, engine, 1)),
    "the hash of one job is gone": lambda queue, engine: engine.redis.delete(_job(queue, engine, 1).key),
    "the queue is emptied": lambda queue, engine: queue.empty(),  # type: ignore[no-untyped-call]  # RQ's
    "the queue is deleted": lambda queue, engine: queue.delete(delete_jobs=True),
    "the queue's list is deleted": lambda queue, engine: engine.redis.delete(queue.key),
    "the queue is compacted": _compact_with_a_lost_hash,
    "the failed registry is emptied": _fail_all,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_done_to_jobs_loses_no_turn(engine: Engine, processes: Processes, damage: str) -> None:
    """(QU-12)"""
    for number in range(4):
        engine.play(f"jira:POC-{number % 2}")
    with rq_queue(engine) as queue:
        DAMAGE[damage](queue, engine)
    assert engine.clock().tick() == 4
    assert start_worker(processes, engine.environment(), burst=True).wait() == 0
    engine.redis.delete("rq:queue:commits:intermediate")  # ids without a job, which maintenance takes off
    _expire_jobs_that_wait_to_expire(engine)
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _expire_jobs_that_wait_to_expire(engine: Engine) -> None:
    for key in engine.redis.scan_iter("rq:job:*"):
        if engine.redis.ttl(key) > 0:
            engine.redis.delete(key)


def test_a_job_that_is_deleted_while_it_runs_commits_its_turn(engine: Engine, processes: Processes) -> None:
    """(QU-12)"""
    ledger_is_held = "SELECT 1 FROM turnledger.ledger FOR UPDATE"
    turn = engine.play()
    with engine.connected() as connection, connection.transaction():
        connection.execute(ledger_is_held)
        worker = start_worker(processes, engine.environment())
        with rq_queue(engine) as queue:
            wait_until(lambda: _is_started(queue, turn.turn_id))
            job = queue.fetch_job(job_id(turn.turn_id))
            assert job is not None
            job.delete()
    wait_until(lambda: _is_committed(engine, turn.turn_id))
    wait_until(lambda: check_at_rest(engine.redis_url))
    assert worker.running


def _is_started(queue: Queue, turn_id: str) -> None:
    assert queue.started_job_registry.get_job_ids(cleanup=False) == [job_id(turn_id)]


def _is_committed(engine: Engine, turn_id: str) -> None:
    assert engine.state(turn_id) == "committed"


def test_a_group_leaves_nothing_of_the_jobs_that_it_carried(engine: Engine, processes: Processes) -> None:
    """(QU-10)"""
    for number in range(30):
        engine.play(f"jira:POC-{number % 5}")
    start_worker(processes, engine.environment(), burst=True).wait()
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)
    assert [key for key in engine.redis.scan_iter("rq:*") if engine.redis.ttl(key) < 0] == ["rq:queues"]
