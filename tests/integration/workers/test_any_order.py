"""Completions and commits in any order, workers that die at any point: the promises hold after every step."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.engine import Engine
from tests.ledger_checks import check_invariants, check_ledgers
from tests.stepping import Killed, SteppedWorker, stepped_crash_points
from turnledger.checkpoint import AlreadyHandled, CompletionConflict, StaleTurn, Turn, TurnEnded
from turnledger.checkpoint.keys import job_id
from turnledger.store import StoreBusy
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.settings import WorkerSettings

WORKERS = 3
CONVERSATIONS = ("jira:A-1", "jira:B-1", "jira:C-1")
STEPS = 80
SEEDS = [
    range(15),
    *(pytest.param(range(first, first + 100), marks=pytest.mark.soak) for first in range(100, 600, 100)),
]
QUICK = WorkerSettings(
    transient_wait_s=0.02, first_pause_s=0.001, longest_pause_s=0.002, held_ledger_wait_ms=20, overdue_s=1e-9
)


class Rule(NamedTuple):
    """Something that may happen now, and how often it does."""

    weight: float
    possible: Callable[[], object]
    happen: Callable[[], object]


class AnyOrder:
    """One engine node, three workers, a queue, and somebody who breaks things; all by one random source."""

    def __init__(self, engine: Engine, *, seed: int) -> None:
        self.engine = engine
        self.chance = random.Random(seed)
        self.committer = Committer(records=engine.records, database=engine.database, settings=QUICK)
        self.workers = [SteppedWorker() for _ in range(WORKERS)]
        self.jobs: dict[SteppedWorker, str] = {}
        self.running: list[Turn] = []
        self.overtaken: list[Turn] = []
        self.parked: list[str] = []
        self.half_abandoned: list[Turn] = []
        self.lost_jobs: list[str] = []
        self.failed_jobs: list[str] = []
        self.spoilt: dict[str, str] = {}
        self.happened: list[str] = []

    def rules(self) -> list[Rule]:
        return [
            Rule(5, lambda: len(self.running) < 8, self.start),
            Rule(1, lambda: self.running, self.start_a_second_run),
            Rule(6, lambda: self.running, self.complete),
            Rule(0.5, lambda: self.running, self.park_and_resume),
            Rule(2, lambda: self.parked, self.resume_later),
            Rule(0.5, lambda: self.overtaken, self.write_as_a_former_holder),
            Rule(0.3, lambda: self.running, self.abandon),
            Rule(6, lambda: self.idle() and self.engine.queued(), self.take_a_job),
            Rule(18, lambda: self.jobs, self.go_on),
            Rule(2, lambda: self.jobs, self.kill),
            Rule(2, lambda: self.lost_jobs, self.find_an_abandoned_job),
            Rule(0.7, self.engine.queued, self.delete_a_job),
            Rule(0.7, self.engine.queued, self.push_a_job_twice),
            Rule(0.7, lambda: True, self.sweep),
            Rule(1.5, self.completed, self.spoil),
            Rule(0.4, lambda: self.spoilt, self.repair),
            Rule(1, lambda: self.failed_jobs, self.run_a_failed_job_again),
        ]

    def play(self, steps: int) -> None:
        """Let so many things happen, and check after each; then put everything right, and check that all is there."""
        for _ in range(steps):
            possible = [rule for rule in self.rules() if rule.possible()]
            rule = self.chance.choices(possible, [rule.weight for rule in possible])[0]
            self.happened.append(f"{rule.happen.__name__} {[worker.at for worker in self.workers]}")
            rule.happen()
            check_ledgers(self.engine.database_url, self.engine.redis_url, told=self.engine.told)
        self.settle()
        check_invariants(self.engine.database_url, self.engine.redis_url, told=self.engine.told)

    def start(self) -> None:
        conversation, key = self.chance.choice(CONVERSATIONS), f"work-{self.chance.getrandbits(64)}"
        self.running.append(self.engine.start(conversation, work_key=key))

    def start_a_second_run(self) -> None:
        with suppress(AlreadyHandled):
            self.running.append(self.engine.start_again(self.chance.choice(self.running)))

    def complete(self) -> None:
        self.engine.complete(self.take(self.running), steps=2)

    def park_and_resume(self) -> None:
        turn = self.take(self.running)
        turn.park(reason="later")
        self.overtaken.append(turn)
        self.resume(turn.turn_id)

    def resume(self, turn_id: str) -> None:
        try:
            self.running.append(self.engine.turns.resume(turn_id))
        except StoreBusy:  # a worker holds the ledger; the turn is parked again
            self.parked.append(turn_id)
        except AlreadyHandled:
            pass

    def resume_later(self) -> None:
        self.resume(self.take(self.parked))

    def write_as_a_former_holder(self) -> None:
        with pytest.raises((StaleTurn, TurnEnded, CompletionConflict)):
            self.engine.complete(self.chance.choice(self.overtaken))

    def abandon(self) -> None:
        turn = self.take(self.running)
        try:
            turn.abandon()
        except StoreBusy:  # over in Redis, and to be repeated for Postgres
            self.half_abandoned.append(turn)

    def take_a_job(self) -> None:
        worker = self.chance.choice(self.idle())
        job = self.engine.redis.lpop(self.engine.keys.queue)
        self.jobs[worker] = job
        worker.begin(lambda: self.committer.persist(job.removeprefix("turn-")))
        self.see_the_end(worker)

    def go_on(self) -> None:
        worker = self.chance.choice(list(self.jobs))
        worker.step()
        self.see_the_end(worker)

    def kill(self) -> None:
        worker = self.chance.choice(list(self.jobs))
        worker.kill()
        self.see_the_end(worker)

    def find_an_abandoned_job(self) -> None:
        self.engine.redis.rpush(self.engine.keys.queue, self.take(self.lost_jobs))

    def delete_a_job(self) -> None:
        job = self.chance.choice(self.engine.queued())
        self.engine.redis.lrem(self.engine.keys.queue, 1, job)
        self.engine.redis.delete(f"rq:job:{job}")

    def push_a_job_twice(self) -> None:
        self.engine.redis.rpush(self.engine.keys.queue, self.chance.choice(self.engine.queued()))

    def sweep(self) -> None:
        self.engine.clock(held_ledger_wait_ms=20).sweep()

    def spoil(self) -> None:
        turn_id = self.chance.choice(self.completed())
        record = self.engine.keys.record(turn_id)
        self.spoilt.setdefault(turn_id, self.engine.redis.hget(record, "entry"))
        self.engine.redis.hset(record, "entry", "not json")

    def repair(self) -> None:
        turn_id, entry = self.spoilt.popitem()
        self.engine.redis.hset(self.engine.keys.record(turn_id), "entry", entry)

    def run_a_failed_job_again(self) -> None:
        self.engine.redis.rpush(self.engine.keys.queue, self.take(self.failed_jobs))

    def settle(self) -> None:
        """Workers and clock as they should be, after a minute in which RQ found what it had lost."""
        for worker in list(self.jobs):
            worker.kill()
        while self.spoilt:
            self.repair()
        for turn_id in self.parked:
            self.resume(turn_id)
        for turn in (*self.running, *self.half_abandoned):
            turn.abandon()
        for told in self.engine.told:
            if self.engine.state(told.turn_id) == "rejected":
                self.engine.records.reinstate(told.turn_id, ledger=self.engine.ledger_of(told))
        self.engine.clock().sweep()
        self.engine.commit_all()
        for told in self.engine.told:
            self.engine.redis.delete(f"rq:job:{job_id(told.turn_id)}")

    def idle(self) -> list[SteppedWorker]:
        return [worker for worker in self.workers if worker not in self.jobs]

    def completed(self) -> list[str]:
        return [told.turn_id for told in self.engine.told if self.engine.state(told.turn_id) == "completed"]

    def take(self, things: list[Any]) -> Any:
        return things.pop(self.chance.randrange(len(things)))

    def see_the_end(self, worker: SteppedWorker) -> None:
        """What RQ does with a job that has ended."""
        if worker.busy:
            return
        job, error = self.jobs.pop(worker), worker.error
        if isinstance(error, Killed):
            self.lost_jobs.append(job)
        elif isinstance(error, CommitPostponed):
            self.engine.redis.rpush(self.engine.keys.queue, job)
        elif isinstance(error, TurnRejected):
            self.failed_jobs.append(job)
        elif error is not None:
            raise error
        else:
            self.engine.redis.delete(f"rq:job:{job}")


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_promises_hold_after_every_step(database_url: str, redis_url: str, seeds: range) -> None:
    """(QU-3, QU-4, QU-6)"""
    with stepped_crash_points():
        for seed in seeds:
            play(AnyOrder, seed=seed, database_url=database_url, redis_url=redis_url)


def play(kind: type[AnyOrder], *, seed: int, database_url: str, redis_url: str, **checkpoint: Any) -> None:
    """Over servers with nothing in them; starts do not wait for a ledger that a worker holds."""
    engine = Engine(database_url, redis_url, lock_timeout_ms=20, slices=1_000, **checkpoint)
    engine.redis.flushall()
    tables = ", ".join(f"turnledger.{table}" for table in ("ledger", "ledger_turn", "ledger_event", "ledger_entry"))
    with engine.connected() as connection:
        connection.execute("SET turnledger.maintenance = 'retention'")
        connection.execute(f"TRUNCATE {tables}".encode())
    story = kind(engine, seed=seed)
    try:
        story.play(STEPS)
    except BaseException as error:
        error.add_note(f"seed {seed} after {len(story.happened)} steps:\n" + "\n".join(story.happened))
        raise
    finally:
        engine.close()
