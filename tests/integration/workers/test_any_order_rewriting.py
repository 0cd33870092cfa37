"""Completions, rewritings and commits in any order, workers that die anywhere: the promises hold after every step."""

import random
from contextlib import suppress

import pytest

from tests.engine import Engine
from tests.integration.workers.test_any_order import SEEDS, AnyOrder, Rule, play
from tests.rewriting import LONG, answering
from tests.stepping import stepped_crash_points
from turnledger.checkpoint import StaleTurn, TurnEnded
from turnledger.checkpoint.fittings import Fittings
from turnledger.store import CallRecord, StoreBusy, StoreRefused
from turnledger.store.errors import CorruptData
from turnledger.store.rewriting import Rewriting
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.rewriting import Fitter
from turnledger.workers.settings import WorkerSettings

TROUBLE = (StoreBusy, StoreRefused, CorruptData)


class AnyOrderRewriting(AnyOrder):
    """The same, with turns that have something over-long in them, and workers of the other queue."""

    def __init__(self, engine: Engine, *, seed: int) -> None:
        super().__init__(engine, seed=seed)
        moods = random.Random(seed)
        self.fitter = Fitter(
            records=engine.records,
            rewriter=answering(lambda: Rewriting(moods.choice([None, "short", "x" * 500]), 3)),
            within_s=60,
            settings=WorkerSettings(transient_wait_s=0.02, first_pause_s=0.001),
            stopped=lambda: False,
        )
        self.reconciler = Reconciler(
            records=engine.records, database=engine.database, settings=WorkerSettings(overdue_s=1e-9)
        )
        self.long: list[str] = []

    def rules(self) -> list[Rule]:
        return [
            *super().rules(),
            Rule(5, lambda: self.running, self.complete_long),
            Rule(5, lambda: self.idle() and self.rewrites(), self.take_a_rewriting),
            Rule(0.7, self.rewrites, self.delete_a_rewriting),
            Rule(0.7, self.rewrites, self.push_a_rewriting_twice),
            Rule(0.5, lambda: self.long, self.let_its_time_pass),
            Rule(0.5, lambda: self.running, self.replace_history),
            Rule(0.5, lambda: not self.jobs, self.reconcile),
        ]

    def rewrites(self) -> list[str]:
        return list(self.engine.redis.lrange(self.engine.keys.rewrites, 0, -1))

    def complete_long(self) -> None:
        turn = self.take(self.running)
        self.engine.complete(turn, calls=[CallRecord("send", {"text": LONG}, "success")])
        self.long.append(turn.turn_id)

    def take_a_rewriting(self) -> None:
        worker = self.chance.choice(self.idle())
        job = self.engine.redis.lpop(self.engine.keys.rewrites)
        self.jobs[worker] = job
        worker.begin(lambda: self.fitter.fit(job.removeprefix("fit-")))
        self.see_the_end(worker)

    def find_an_abandoned_job(self) -> None:
        job = self.take(self.lost_jobs)
        keys = self.engine.keys
        self.engine.redis.rpush(keys.rewrites if job.startswith("fit-") else keys.queue, job)

    def delete_a_rewriting(self) -> None:
        job = self.chance.choice(self.rewrites())
        self.engine.redis.lrem(self.engine.keys.rewrites, 1, job)
        self.engine.redis.delete(f"rq:job:{job}")

    def push_a_rewriting_twice(self) -> None:
        self.engine.redis.rpush(self.engine.keys.rewrites, self.chance.choice(self.rewrites()))

    def let_its_time_pass(self) -> None:
        record = self.engine.keys.record(self.chance.choice(self.long))
        if self.engine.redis.hget(record, "fitting") == "rewrite":
            self.engine.redis.hset(record, "fit_until", "1")

    def replace_history(self) -> None:
        """An engine node brings along all that is pending, with names."""
        turn = self.chance.choice(self.running)
        with suppress(*TROUBLE, StaleTurn, TurnEnded):
            turn.history_to_replace()

    def reconcile(self) -> None:
        self.reconciler.sweep()

    def settle(self) -> None:
        for worker in list(self.jobs):
            worker.kill()
        for job in self.rewrites():
            self.fitter.fit(job.removeprefix("fit-"))
        self.engine.redis.delete(self.engine.keys.rewrites)
        Fittings(self.engine.records).give_up(self.long)
        super().settle()
        for turn_id in self.long:
            self.engine.redis.delete(self.engine.keys.fit_job(turn_id))
        self.reconciler.close()


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_promises_hold_with_rewritings_too(database_url: str, redis_url: str, seeds: range) -> None:
    """(RW-5, QU-3, QU-4, QU-12, RC-14)"""
    with stepped_crash_points():
        for seed in seeds:
            play(AnyOrderRewriting, seed=seed, database_url=database_url, redis_url=redis_url, rewriting="on")
