"""SIGTERM in the middle of the work."""

import random
import signal
import threading
import time

from tests.engine import Engine, start_worker
from tests.ledger_checks import Told, check_committed, check_invariants, wait_until
from tests.processes import Process, Processes
from tests.proxy import Proxy

ROUNDS = 3
GRACE_S = 30
LOOKS = 20  # of a second each, in which the test has to stop the worker and complete a turn
SOON_S = 15  # well before the grace is over, on a busy machine too


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
    worker = _waiting_worker(engine, processes)
    turn = _given_while_stopped(engine, worker)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGCONT)
    assert worker.wait(seconds=GRACE_S) == 0
    assert engine.state(turn.turn_id) == "committed"
    _assert_nothing_is_held(engine)


def test_an_idle_worker_stops_soon(engine: Engine, processes: Processes) -> None:
    """(OP-6)"""
    worker = _waiting_worker(engine, processes)
    worker.signal(signal.SIGTERM)
    assert worker.wait(seconds=SOON_S) == 0


def test_an_idle_worker_that_is_cut_off_from_redis_stops_well(engine: Engine, processes: Processes) -> None:
    """(OP-6): it has nothing in hand, so there is nothing to put back."""
    impatient = {"TURNLEDGER_REDIS_REPLY_TIMEOUT_S": "0.2", "TURNLEDGER_REDIS_RETRIES": "0"}
    with Proxy(engine.redis_url) as proxy:
        worker = start_worker(processes, engine.environment(TURNLEDGER_REDIS_URL=proxy.url, **impatient))
        wait_until(lambda: _assert_idle(engine))
        proxy.pause()
        worker.signal(signal.SIGTERM)
        assert worker.wait(seconds=GRACE_S) == 0, worker.output
    assert "worker_not_signed_off" in worker.output


def _running_worker(engine: Engine, processes: Processes) -> Process:
    worker = start_worker(processes, engine.environment())
    wait_until(lambda: _assert_registered(engine))
    return worker


def _waiting_worker(engine: Engine, processes: Processes) -> Process:
    """One that has asked Redis for a job, and is not answered."""
    worker = _running_worker(engine, processes)
    wait_until(lambda: _assert_waiting(engine))
    return worker


def _assert_waiting(engine: Engine) -> None:
    assert engine.redis.info("clients")["blocked_clients"] == 1


def _assert_idle(engine: Engine) -> None:
    assert [engine.redis.hget(worker, "state") for worker in engine.redis.smembers("rq:workers")] == ["idle"]


def _play_until(engine: Engine, ended: threading.Event) -> None:
    while not ended.is_set():
        engine.play(f"jira:POC-{len(engine.told) % 7}")


def _assert_registered(engine: Engine, *, number: int = 1) -> None:
    assert engine.redis.scard("rq:workers") == number


def _given_while_stopped(engine: Engine, worker: Process) -> Told:
    """A turn whose job Redis gave to the worker after it was stopped: its look for one was still under way."""
    for _ in range(LOOKS):
        wait_until(lambda: _assert_waiting(engine))
        worker.signal(signal.SIGSTOP)
        turn = engine.play()
        if engine.redis.lrange(engine.keys.taken(engine.keys.queue), 0, -1) == [f"turn-{turn.turn_id}"]:
            return turn
        worker.signal(signal.SIGCONT)  # that look was over before the job came
        wait_until(lambda: check_committed(engine.redis_url, engine.told))
    raise AssertionError(f"in {LOOKS} looks the worker was given no job")


def _assert_nothing_is_held(engine: Engine) -> None:
    """No job is taken, begun or registered by a worker that is gone."""
    patterns = ("rq:wip:*", "rq:*:intermediate", "rq:execution*")
    assert [key for pattern in patterns for key in engine.redis.scan_iter(pattern)] == []
    assert engine.redis.scard("rq:workers") == 0
