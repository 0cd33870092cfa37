"""A turn that cannot be stored fails alone, whatever is wrong with it, and can be tried again."""

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest
from rq import Queue
from rq.job import Job

from tests.engine import Engine, rq_queue, start_worker
from tests.ledger_checks import Told, check_invariants
from tests.processes import Processes
from turnledger.checkpoint.keys import job_id
from turnledger.workers.errors import TurnRejected

LONG = "".join(map(chr, range(300, 9_000)))
Spoil = Callable[[Engine, Told], object]


def _set(field: str, value: str) -> Spoil:
    return lambda engine, turn: engine.redis.hset(engine.keys.record(turn.turn_id), field, value)


def _add_steps(*steps: str) -> Spoil:
    def spoil(engine: Engine, turn: Told) -> None:
        engine.redis.delete(engine.keys.steps(turn.turn_id))
        engine.redis.rpush(engine.keys.steps(turn.turn_id), *steps)

    return spoil


def _forbid_by_constraint(engine: Engine, turn: Told) -> None:
    with psycopg.connect(engine.database_url) as connection:
        connection.execute(
            f"ALTER TABLE turnledger.ledger_entry ADD CONSTRAINT not_this CHECK (turn_id <> '{turn.turn_id}')".encode()
        )


SPOILS: dict[str, tuple[Spoil, str]] = {
    "its entry is not JSON": (_set("entry", "not json"), "json"),
    "its entry holds a NUL": (_set("entry", '{"a": "\0"}'), "NUL"),
    "its entry id is no uuid": (_set("entry_id", "mine"), "uuid"),
    "a key of its is too long for an index": (
        _set("events", f'[["message", 1, "{LONG}", "{{}}", null, null, ""]]'),
        "54000",
    ),
    "it brings an event that nobody knows": (_set("events", '[["x", 1, "k", "{}", null, null, ""]]'), "not known here"),
    "its failure code is not known": (_set("failure", "provider said no"), "not known"),
    "its time is past all years": (_set("completed_at", "9" * 30), "cannot be read"),
    "a constraint forbids it": (_forbid_by_constraint, "not_this"),
    "its epoch is not a number": (_set("epoch", "first"), "cannot be read"),
    "its time is not a number": (_set("completed_at", "now"), "cannot be read"),
    "its events have no shape": (_set("events", "[1]"), "cannot be read"),
    "a step has no shape": (_add_steps("only one part"), "cannot be read"),
    "a step's payload is not JSON": (_add_steps("payload\n[]\n{}"), "json"),
    "its steps are gone": (lambda engine, turn: engine.redis.delete(engine.keys.steps(turn.turn_id)), "step"),
}


@pytest.mark.parametrize("what", SPOILS)
def test_a_turn_that_cannot_be_stored_fails_alone(engine: Engine, what: str) -> None:
    """(QU-6)"""
    spoil, reason = SPOILS[what]
    before, bad, after = (engine.play("jira:BAD-1") for _ in range(3))
    others = [engine.play(f"jira:GOOD-{number}") for number in range(2)]
    spoil(engine, bad)

    rejections = _run_every_job(engine)

    assert {turn.turn_id: engine.state(turn.turn_id) for turn in engine.told} == {
        **{turn.turn_id: "committed" for turn in (before, after, *others)},
        bad.turn_id: "rejected",
    }
    assert list(rejections) == [bad.turn_id]
    assert reason in rejections[bad.turn_id]
    assert engine.redis.hget(engine.keys.record(bad.turn_id), "refusal") in rejections[bad.turn_id]
    assert engine.redis.hget(engine.keys.record(after.turn_id), "ordinal") == "2"


def test_the_reason_of_a_refusal_can_be_read_in_the_failed_registry(engine: Engine, processes: Processes) -> None:
    """(QU-6)"""
    good, bad = engine.play(), engine.play()
    engine.redis.hset(engine.keys.record(bad.turn_id), "entry", "not json")
    assert start_worker(processes, engine.environment(), burst=True).wait() == 0
    with rq_queue(engine) as queue:
        assert queue.failed_job_registry.get_job_ids() == [job_id(bad.turn_id)]
        job = queue.fetch_job(job_id(bad.turn_id))
        assert job is not None
        assert "TurnRejected" in _reason(job)
        assert "invalid input syntax for type json" in _reason(job)
    check_invariants(engine.database_url, engine.redis_url, told=[good, bad], rejected=[bad.turn_id])


@pytest.mark.parametrize("way", ["RQ", "records"])
def test_a_rejected_turn_commits_at_the_next_ordinal_once_its_cause_is_gone(
    engine: Engine, processes: Processes, way: str
) -> None:
    """(QU-6)"""
    bad = engine.play()
    record = engine.keys.record(bad.turn_id)
    entry = engine.redis.hget(record, "entry")
    engine.redis.hset(record, "entry", "not json")
    engine.play()
    start_worker(processes, engine.environment(), burst=True).wait()
    assert engine.state(bad.turn_id) == "rejected"

    engine.redis.hset(record, "entry", entry)
    with rq_queue(engine) as queue:
        _requeue(engine, bad, queue=queue, way=way)
    start_worker(processes, engine.environment(), burst=True).wait()

    assert engine.redis.hget(record, "ordinal") == "2"
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _requeue(engine: Engine, bad: Told, *, queue: Queue, way: str) -> None:
    if way == "RQ":
        queue.failed_job_registry.requeue(job_id(bad.turn_id))
        return
    queue.failed_job_registry.remove(job_id(bad.turn_id), delete_job=True)  # as when it has expired
    ledger = engine.ledger_of(bad)
    engine.records.reinstate(bad.turn_id, ledger=ledger)
    engine.records.restore(bad.turn_id, ledger=ledger, job="make")


def test_a_rejected_turn_that_is_run_again_too_early_is_refused_again(engine: Engine, processes: Processes) -> None:
    """(QU-6)"""
    bad = engine.play()
    engine.redis.hset(engine.keys.record(bad.turn_id), "entry", "not json")
    start_worker(processes, engine.environment(), burst=True).wait()
    with rq_queue(engine) as queue:
        queue.failed_job_registry.requeue(job_id(bad.turn_id))
        start_worker(processes, engine.environment(), burst=True).wait()
        assert queue.failed_job_registry.get_job_ids() == [job_id(bad.turn_id)]
        job = queue.fetch_job(job_id(bad.turn_id))
        assert job is not None
        assert "invalid input syntax for type json" in _reason(job)
    check_invariants(engine.database_url, engine.redis_url, told=[bad], rejected=[bad.turn_id])


def test_a_bad_turn_whose_job_was_cancelled_gets_another_one_and_does_not_block_its_ledger(
    engine: Engine, processes: Processes
) -> None:
    """(QU-12)"""
    bad = engine.play()
    engine.redis.hset(engine.keys.record(bad.turn_id), "entry", "not json")
    with rq_queue(engine) as queue:
        job = queue.fetch_job(job_id(bad.turn_id))
        assert job is not None
        job.cancel()
    engine.clock(overdue_s=0.001).tick()
    start_worker(processes, engine.environment(), burst=True).wait()
    assert engine.state(bad.turn_id) == "rejected"
    check_invariants(engine.database_url, engine.redis_url, told=[bad], rejected=[bad.turn_id])


def test_the_good_turns_get_past_a_bad_one_in_groups(engine: Engine) -> None:
    """(QU-13)"""
    turns = [engine.play(f"jira:POC-{number % 10}") for number in range(120)]
    engine.redis.hset(engine.keys.record(turns[60].turn_id), "entry", "not json")
    committer, jobs = engine.committer(), 0
    while job := engine.redis.lpop(engine.keys.queue):
        jobs += 1
        with suppress(TurnRejected):
            committer.persist(job.removeprefix("turn-"))
    assert [turn.turn_id for turn in turns if engine.state(turn.turn_id) != "committed"] == [turns[60].turn_id]
    assert jobs < 25


def _reason(job: Job) -> str:
    """What rq-dashboard shows of a failed job."""
    result = job.latest_result()
    assert result is not None
    return result.exc_string or ""


def _run_every_job(engine: Engine) -> dict[str, str]:
    """As one worker would, job by job; the refusals that the jobs report."""
    refused = {}
    committer = engine.committer()
    while job := engine.redis.lpop(engine.keys.queue):
        turn_id = job.removeprefix("turn-")
        try:
            committer.persist(turn_id)
        except TurnRejected as error:
            refused[turn_id] = str(error)
    return refused
