"""A Redis at its memory limit, with a worker, a clock and an engine node at it."""

import time
from collections.abc import Iterator

import pytest

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from tests.recovering import Recovery
from turnledger.checkpoint import CheckpointUnavailable
from turnledger.workers.embedded import EmbeddedServers

FULL_S = 3.0  # some looks of an idle worker, some ticks of the clock
ELSEWHERE = "elsewhere"  # a queue that no worker listens to: what is queued there is left to the clock


@pytest.fixture
def engine(private_servers: EmbeddedServers) -> Iterator[Engine]:
    """A node over a Redis that only this test fills."""
    node = Engine(private_servers.database_url, private_servers.redis_url, commit_queue=ELSEWHERE)
    yield node
    node.close()


def test_a_full_redis_is_drained_and_ends_no_process_that_waits(
    engine: Engine, processes: Processes, recovery: Recovery
) -> None:
    """The clock needs no memory, complete commits directly, a park is refused (FL-2, FL-3, FL-10, QU-7, QU-14)."""
    worker = start_worker(processes, engine.environment())
    wait_until(lambda: _assert_registered(engine))
    for number in range(10):
        engine.play(f"jira:POC-{number % 3}")
    unfinished, parked = engine.start("jira:POC-9"), engine.start("jira:POC-8")
    engine.redis.config_set("maxmemory", "1")
    full_at = time.monotonic()
    clock = start_clock(processes, engine.environment(TURNLEDGER_COMMIT_QUEUE=ELSEWHERE, TURNLEDGER_RECONCILE_S="0.1"))
    engine.complete(unfinished)
    with pytest.raises(CheckpointUnavailable):
        parked.park(reason="waits")
    with recovery.of("ten turns pending in a full Redis"):
        wait_until(lambda: _assert_all_committed(engine))
    time.sleep(max(0.0, full_at + FULL_S - time.monotonic()))
    assert worker.running, worker.output
    assert clock.running, clock.output
    engine.redis.config_set("maxmemory", "0")
    by_the_worker = Engine(engine.database_url, engine.redis_url)
    engine.told.append(by_the_worker.play("jira:POC-7"))
    engine.complete(parked)
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
    assert worker.running
    by_the_worker.close()


def _assert_all_committed(engine: Engine) -> None:
    """Not in a transaction of Redis: a full one takes none, whatever is in it."""
    assert {engine.state(turn.turn_id) for turn in engine.told} == {"committed"}


def _assert_registered(engine: Engine) -> None:
    assert engine.redis.scard("rq:workers") == 1
