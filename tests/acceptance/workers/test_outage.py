"""Postgres is away for ten seconds while turns are completed and workers run."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from turnledger.checkpoint import Turn
from turnledger.workers.embedded import EmbeddedServers

AWAY_S = 10


def test_workers_wait_out_a_postgres_that_is_away(private_servers: EmbeddedServers, processes: Processes) -> None:
    """(QU-7)"""
    engine = Engine(private_servers.database_url, private_servers.redis_url)
    start_clock(processes, engine.environment())
    workers = [start_worker(processes, engine.environment(TURNLEDGER_TRANSIENT_WAIT_S="2")) for _ in range(2)]
    wait_until(lambda: _assert_registered(engine, 2))
    begun = [engine.start(f"jira:POC-{number % 10}") for number in range(200)]
    with ThreadPoolExecutor(1) as pool:
        completed = pool.submit(_complete_slowly, engine, begun)
        time.sleep(1)
        private_servers.postgres.stop()
        time.sleep(AWAY_S)
        private_servers.postgres.start()
        completed.result()
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
    assert all(worker.running for worker in workers)
    engine.close()


def _complete_slowly(engine: Engine, begun: list[Turn]) -> None:
    """Over the whole outage and a little longer."""
    for turn in begun:
        engine.complete(turn)
        time.sleep((AWAY_S + 2) / len(begun))


def _assert_registered(engine: Engine, number: int) -> None:
    assert engine.redis.scard("rq:workers") == number
