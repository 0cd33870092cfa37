"""`turnledger worker --processes N` under what happens to it: workers that have done their share, signals, sudden ends.

The pool is a process with its workers; "in hand" is a group of turns whose transaction is held open by the test.
"""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil
import pytest

from tests.cgroup import group
from tests.engine import Engine, start_clock
from tests.gate import Gate
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Process, Processes, lives

SIZE = 2
GRACE_S = 30


@pytest.fixture
def gate(database_url: str) -> Iterator[Gate]:
    made = Gate(database_url)
    yield made
    made.close()


def _pool(processes: Processes, engine: Engine, *, within: Sequence[str] = (), **more: str) -> Process:
    """A pool all of whose workers listen."""
    settings = engine.environment(**more)
    pool = processes.command("worker", "--processes", str(SIZE), environment=settings, within=within)
    wait_until(lambda: _assert_listening(engine, pool))
    return pool


def _pool_with_turns_in_hand(processes: Processes, engine: Engine, gate: Gate, within: Sequence[str] = ()) -> Process:
    """One of its workers is in the middle of a group of a dozen turns of four ledgers."""
    _complete_held_turns(engine, gate)
    pool = _pool(processes, engine, within=within)
    wait_until(lambda: _assert_held(gate))
    return pool


def _complete_held_turns(engine: Engine, gate: Gate) -> None:
    turns = [engine.start(f"jira:POC-{number % 4}") for number in range(12)]
    gate.shut(turns[5].turn_id)
    for turn in turns:
        engine.complete(turn)


def _workers(pool: Process) -> list[psutil.Process]:
    return psutil.Process(pool.pid).children()


def _assert_listening(engine: Engine, pool: Process) -> None:
    assert pool.running, pool.output
    assert _listening(engine) == {worker.pid for worker in _workers(pool)}
    assert len(_listening(engine)) == SIZE


def _listening(engine: Engine) -> set[int]:
    """The workers that Redis knows, and whose handlers of signals are in place."""
    known = [engine.redis.hmget(worker, "pid", "state") for worker in engine.redis.smembers("rq:workers")]
    return {int(pid) for pid, state in known if state in ("idle", "busy")}


def _assert_held(gate: Gate) -> None:
    assert gate.held()


def _events(pool: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pool.output.splitlines() if line.startswith("{")]


def _assert_no_job_is_held(engine: Engine) -> None:
    patterns = ("rq:wip:*", "rq:*:intermediate", "rq:execution*")
    assert [key for pattern in patterns for key in engine.redis.scan_iter(pattern)] == []


def test_a_pool_ends_with_0_after_a_crash_and_a_second_signal(engine: Engine, processes: Processes, gate: Gate) -> None:
    """(OP-6): the group in hand is finished, and nothing stays leased."""
    pool = _pool(processes, engine)
    victim = _workers(pool)[0]
    victim.kill()
    line = json.loads(pool.wait_for_line("process_ended"))
    assert (line["child"], line["exit_code"]) == (victim.pid, -signal.SIGKILL)
    assert line["command"] == f"worker --parent {pool.pid} --queue commits"
    _complete_held_turns(engine, gate)
    wait_until(lambda: _assert_held(gate))
    workers = _workers(pool)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        pool.signal(number)
    gate.go()
    assert pool.wait(seconds=GRACE_S) == 0, pool.output
    _assert_gone(workers)
    assert {engine.state(turn.turn_id) for turn in engine.told} == {"committed"}
    _assert_no_job_is_held(engine)
    assert _listening(engine) == {victim.pid}


def test_workers_end_with_their_pool_and_finish_what_they_have_in_hand(
    engine: Engine, processes: Processes, gate: Gate
) -> None:
    """(OP-8): SIGKILL of the supervisor alone."""
    pool = _pool_with_turns_in_hand(processes, engine, gate)
    workers = _workers(pool)
    pool.kill()
    gate.go()
    wait_until(lambda: _assert_gone(workers))
    _assert_no_job_is_held(engine)  # they ended as at SIGTERM
    assert engine.redis.scard("rq:workers") == 0
    engine.commit_all()  # what they had not yet begun is in the queue
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _assert_gone(workers: list[psutil.Process]) -> None:
    assert [worker for worker in workers if lives(worker)] == []


def test_a_pool_that_is_killed_as_a_whole_loses_doubles_and_leaves_nothing(
    engine: Engine, processes: Processes, gate: Gate, report: Callable[[str], None]
) -> None:
    """(OP-8, FL-7): all of it in the same instant, with a group in hand: nobody can tidy up."""
    start_clock(processes, engine.environment())
    with group() as together:
        pool = _pool_with_turns_in_hand(processes, engine, gate, together.entering())
        workers = _workers(pool)
        together.kill(pool.pid)
        wait_until(lambda: _assert_gone(workers))
        assert pool.wait() == -signal.SIGKILL
        report(f"killed by {together.kind}")
    gate.go()
    _let_registrations_lapse(engine)
    _pool(processes, engine)  # and nobody else is registered
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)


def _let_registrations_lapse(engine: Engine) -> None:
    """RQ knows a worker for up to two minutes after its last sign of life; those are short here."""
    for worker in engine.redis.smembers("rq:workers"):
        assert 0 < engine.redis.ttl(worker) <= 120
        engine.redis.pexpire(worker, 1)


def test_a_burst_ends_although_a_worker_was_killed_and_says_so(
    engine: Engine, processes: Processes, gate: Gate
) -> None:
    """(OP-8)"""
    held = engine.start("jira:POC-0")
    gate.shut(held.turn_id)
    engine.complete(held)
    burst = processes.command("worker", "--burst", "--processes", str(SIZE), environment=engine.environment())
    wait_until(lambda: _assert_held(gate))
    (victim,) = [worker for worker in _workers(burst) if _is_busy(engine, worker)]
    victim.kill()
    gate.go()
    assert burst.wait() == 1, burst.output
    assert [event["child"] for event in _events(burst)] == [victim.pid]


def _is_busy(engine: Engine, worker: psutil.Process) -> bool:
    states = [engine.redis.hmget(each, "pid", "state") for each in engine.redis.smembers("rq:workers")]
    return [str(worker.pid), "busy"] in states
