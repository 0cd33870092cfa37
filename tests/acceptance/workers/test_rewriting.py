"""A worker of the queue of rewritings, as a process: at work, killed in the middle, stopped in the middle."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.endpoint import Endpoint, computing, saying, silent
from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import check_at_rest, wait_until
from tests.processes import Process, Processes
from tests.rewriting import ACCOUNT, ANOTHER, LONG, complete_long, entries, named, sent
from turnledger.store.crash_points import CRASH_POINTS

POINTS = [point for point in CRASH_POINTS if point.startswith("fit.")]
TURN_S = 6.0  # what a turn's rewriting may take here
MACHINE_S = 10.0  # what a busy machine may need to start a worker, tick and commit
BOUND_S = TURN_S + MACHINE_S


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    """A deployment that rewrites."""
    return {"rewriting": "on"}


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def environment(engine: Engine, endpoint: Endpoint, **more: str) -> dict[str, str]:
    named_here = {
        "TURNLEDGER_REWRITING": "on",
        "TURNLEDGER_REWRITE_BASE_URL": endpoint.url,
        "TURNLEDGER_REWRITE_MODEL": "small",
        "TURNLEDGER_REWRITE_KEY": endpoint.key,
        "TURNLEDGER_REWRITE_TURN_S": str(TURN_S),
    }
    return engine.environment(**{**named_here, **more})


def start_rewriter(processes: Processes, engine: Engine, endpoint: Endpoint, **more: str) -> Process:
    return processes.command("worker", "--queue", "rewrites", environment=environment(engine, endpoint, **more))


def until_committed(engine: Engine, count: int) -> None:
    def check() -> None:
        assert len(entries(engine)) == count

    wait_until(check)


def asked_of(endpoint: Endpoint, count: int) -> None:
    def check() -> None:
        assert len(endpoint.asked) >= count

    wait_until(check)


def test_workers_of_both_queues_bring_a_turn_into_its_ledger(
    engine: Engine, endpoint: Endpoint, processes: Processes
) -> None:
    """And those behind it; SIGTERM then ends them well, and nothing is left in the queues (RW-5, OP-6)."""
    rewriter = start_rewriter(processes, engine, endpoint)
    committer = start_worker(processes, engine.environment())
    turns = [complete_long(engine, LONG, ANOTHER), *(complete_long(engine, "short enough") for _ in range(3))]
    until_committed(engine, 4)
    assert list(entries(engine)) == [turn.turn_id for turn in turns]
    assert sent(engine, turns[0]) == [ACCOUNT, ACCOUNT]
    for process in (rewriter, committer):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert "turn_rewritten" in rewriter.output
    assert "a long letter" not in rewriter.output
    assert endpoint.key not in rewriter.output
    wait_until(lambda: check_at_rest(engine.redis_url))


def test_a_worker_killed_while_the_model_thinks_holds_up_its_ledger_no_longer_than_a_turns_time(
    engine: Engine, endpoint: Endpoint, processes: Processes, released: threading.Event
) -> None:
    """Nobody else rewrites here: the clock commits with names (RW-5, FL-7)."""
    endpoint.says(silent(released))
    start_clock(processes, engine.environment())
    rewriter = start_rewriter(processes, engine, endpoint)
    turn = complete_long(engine)
    asked_of(endpoint, 1)
    rewriter.kill()
    killed_at = time.monotonic()
    after = complete_long(engine, "short enough")
    start_worker(processes, engine.environment())
    until_committed(engine, 2)
    assert time.monotonic() - killed_at < BOUND_S
    assert list(entries(engine)) == [turn.turn_id, after.turn_id]
    assert sent(engine, turn) == named(LONG)


@pytest.mark.parametrize("point", POINTS)
def test_another_worker_goes_on_where_one_was_killed(
    engine: Engine, endpoint: Endpoint, processes: Processes, point: str
) -> None:
    """At any step: the entry is written once, within the turn's time (RW-5, QU-4, FL-7)."""
    rewriter = start_rewriter(processes, engine, endpoint, TURNLEDGER_CRASH_AT=point)
    turn = complete_long(engine)
    assert rewriter.wait() == -signal.SIGKILL
    killed_at = time.monotonic()
    start_rewriter(processes, engine, endpoint)
    start_worker(processes, engine.environment())
    start_clock(processes, engine.environment())
    until_committed(engine, 1)
    assert time.monotonic() - killed_at < BOUND_S
    assert sent(engine, turn) in ([ACCOUNT], named(LONG))
    assert len(endpoint.asked) <= 2


def test_a_worker_that_is_stopped_in_the_middle_leaves_the_rest_to_another(
    engine: Engine, endpoint: Endpoint, processes: Processes
) -> None:
    """It takes the answer in hand, puts the job back and ends with 0 (OP-6)."""
    asked, go_on = threading.Event(), threading.Event()

    def answer(_: object) -> str:
        asked.set()
        go_on.wait(20)
        return "short"

    endpoint.says(computing(answer), saying("short"))
    rewriter = start_rewriter(processes, engine, endpoint, TURNLEDGER_REWRITE_TURN_S="60")
    turn = complete_long(engine, LONG, ANOTHER)
    assert asked.wait(20)
    rewriter.signal(signal.SIGTERM)
    time.sleep(0.2)  # the signal has to arrive before the answer does
    go_on.set()
    assert rewriter.wait() == 0
    assert entries(engine) == {}
    start_rewriter(processes, engine, endpoint)
    start_worker(processes, engine.environment())
    until_committed(engine, 1)
    assert sent(engine, turn) == [ACCOUNT, ACCOUNT]


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (("--queue", "rewrites"), {"TURNLEDGER_REWRITE_MODEL": "m"}, "TURNLEDGER_REWRITE_BASE_URL is not set"),
        (("--queue", "rewrites"), {}, "TURNLEDGER_REWRITE_BASE_URL is not set"),
        (("--queue", "rewrite"), {}, "name one of commits, rewrites, upkeep"),
    ],
)
def test_a_worker_that_cannot_rewrite_does_not_start(
    engine: Engine, processes: Processes, arguments: tuple[str, ...], given: dict[str, str], words: str
) -> None:
    """And says what is missing (RW-2)."""
    process = processes.command("worker", *arguments, environment=engine.environment(**given))
    assert process.wait() == 2
    assert words in process.output


@pytest.mark.parametrize("model", ["small", ""])
def test_up_starts_a_worker_that_rewrites_or_says_what_it_lacks(
    processes: Processes, endpoint: Endpoint, folder: Path, model: str
) -> None:
    """(OP-1, RW-2)"""
    given = {
        "TURNLEDGER_REWRITING": "on",
        "TURNLEDGER_REWRITE_BASE_URL": endpoint.url,
        "TURNLEDGER_REWRITE_MODEL": model,
    }
    process = processes.command("up", "--folder", str(folder), "--workers", "1", environment=given)
    if not model:
        assert process.wait() == 2
        assert "TURNLEDGER_REWRITE_MODEL is not set" in process.output
        return
    process.wait_for_line("Ctrl-C stops it")
    urls = dict(line.split()[-1].split("=", 1) for line in process.output.splitlines() if "export" in line)
    with Redis.from_url(urls["TURNLEDGER_REDIS_URL"]) as client:

        def check() -> None:
            assert client.scard("rq:workers:rewrites") == 1

        wait_until(check)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
