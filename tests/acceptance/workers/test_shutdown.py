"""SIGTERM in the middle of the work."""

import random
import signal
import threading
import time

from tests.engine import Engine, start_worker
from tests.ledger_checks import check_invariants, wait_until
from tests.processes import Process, Processes
from tests.proxy import Proxy

ROUNDS = 3
GRACE_S = 30


def test_a_worker_that_is_told_to_stop_under_load_leaves_nothing_behind(engine: Engine, processes: Processes) -> None:
    """(OP-6)"""
    chance = random.Random(1)
    ended = threading.Event()
    player = threading.Thread(target=_play_until, args=[engine, ended])
    player.start()
    try:
        for _ in range(ROUNDS):
            worker = _running_worker(engine, processes)
            time.sleep(chance.uniform(0.1, 0.4))
            worker.signal(signal.SIGTERM)
            assert worker.wait(seconds=GRACE_S) == 0, worker.output
            _assert_nothing_is_held(engine)
    finally:
        ended.set()
        player.join()
    assert start_worker(processes, engine.environment(), burst=True).wait() == 0
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


def test_a_job_that_is_taken_in_the_moment_of_the_signal_is_done(engine: Engine, processes: Processes) -> None:
    """(OP-6)"""
    worker = _running_worker(engine, processes)
    time.sleep(0.2)  # now it waits for a job
    worker.signal(signal.SIGSTOP)
    turn = engine.play()
    wait_until(lambda: _assert_taken(engine, turn.turn_id), seconds=5)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGCONT)
    assert worker.wait(seconds=GRACE_S) == 0
    assert engine.state(turn.turn_id) == "committed"
    _assert_nothing_is_held(engine)


def test_an_idle_worker_stops_soon(engine: Engine, processes: Processes) -> None:
    """(OP-6)"""
    worker = _running_worker(engine, processes)
    time.sleep(0.2)
    worker.signal(signal.SIGTERM)
    assert worker.wait(seconds=5) == 0


def test_an_idle_worker_that_is_cut_off_from_redis_stops_well(engine: Engine, processes: Processes) -> None:
    """(OP-6): it has nothing in hand, so there is nothing to put back."""
    impatient = {"TURNLEDGER_REDIS_REPLY_TIMEOUT_S": "0.2", "TURNLEDGER_REDIS_RETRIES": "0"}
    with Proxy(engine.redis_url) as proxy:
        worker = start_worker(processes, engine.environment(TURNLEDGER_REDIS_URL=proxy.url, **impatient))
        wait_until(lambda: _assert_idle(engine), seconds=20)
        proxy.pause()
        worker.signal(signal.SIGTERM)
        assert worker.wait(seconds=GRACE_S) == 0, worker.output
    assert "worker_not_signed_off" in worker.output


def _running_worker(engine: Engine, processes: Processes) -> Process:
    worker = start_worker(processes, engine.environment())
    wait_until(lambda: _assert_registered(engine), seconds=20)
    return worker


def _assert_idle(engine: Engine) -> None:
    assert [engine.redis.hget(worker, "state") for worker in engine.redis.smembers("rq:workers")] == ["idle"]


def _play_until(engine: Engine, ended: threading.Event) -> None:
    while not ended.is_set():
        engine.play(f"jira:POC-{len(engine.told) % 7}")


def _assert_registered(engine: Engine, *, number: int = 1) -> None:
    assert engine.redis.scard("rq:workers") == number


def _assert_taken(engine: Engine, turn_id: str) -> None:
    assert engine.redis.lrange(engine.keys.taken_jobs, 0, -1) == [f"turn-{turn_id}"]


def _assert_nothing_is_held(engine: Engine) -> None:
    """No job is taken, begun or registered by a worker that is gone."""
    patterns = ("rq:wip:*", "rq:*:intermediate", "rq:execution*")
    assert [key for pattern in patterns for key in engine.redis.scan_iter(pattern)] == []
    assert engine.redis.scard("rq:workers") == 0
