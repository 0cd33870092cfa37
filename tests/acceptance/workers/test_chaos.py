"""Many conversations at once while workers are killed and servers restarted: nothing lost, doubled, or out of order."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

import psutil
import pytest
from redis.exceptions import RedisError

from tests.engine import Engine, start_clock
from tests.ledger_checks import wait_for_invariants
from tests.processes import Process, Processes
from turnledger.checkpoint import CheckpointUnavailable
from turnledger.store import StoreBusy, StoreUnavailable
from turnledger.workers.embedded import EmbeddedServers

LEDGERS, TURNS = 50, 40
DUPLICATES = 0.1  # of the turns have a second run of their work
SECONDS_BETWEEN_KILLS = (0.3, 1.0)
SETTLED_S = 60
AWAY = (StoreUnavailable, StoreBusy, CheckpointUnavailable, RedisError)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
SUPERVISED = """
import signal, sys
from turnledger.workers import supervisor
from turnledger.workers.settings import WorkerSettings
supervisor.QUICK_DEATH_S = 0  # it kills too often here for longer and longer pauses
supervised = supervisor.Supervisor([["worker"]] * int(sys.argv[1]), settings=WorkerSettings())
signal.signal(signal.SIGTERM, supervised.stop)
sys.exit(supervised.run())
"""


def _play(engine: Engine, *, seed: int, ledgers: int = LEDGERS, turns: int = TURNS) -> None:
    """Turns of all ledgers in any order, some with a second run that completes before or after the first."""
    left = [ledger for ledger in range(ledgers) for _ in range(turns)]
    random.Random(seed).shuffle(left)
    with ThreadPoolExecutor(2) as pool:
        lanes = ([ledger for ledger in left if ledger % 2 == lane] for lane in range(2))
        for played in [pool.submit(_play_lane, engine, lane, seed=seed) for lane in lanes]:
            played.result()


def _play_lane(engine: Engine, lane: list[int], *, seed: int) -> None:
    chance = random.Random(f"{seed} {lane[:5]}")
    for ledger in lane:
        conversation, key = f"jira:POC-{ledger}", f"work-{chance.getrandbits(64)}"
        runs = [_patiently(engine.start, conversation, work_key=key)]
        if chance.random() < DUPLICATES:
            runs.append(_patiently(engine.start_again, runs[0]))
        chance.shuffle(runs)
        for run in runs:
            _patiently(engine.complete, run, steps=2)


def _patiently(call: Callable[Arguments, Result], *given: Arguments.args, **named: Arguments.kwargs) -> Result:
    """Until it succeeds: an engine node whose servers are away asks again."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        try:
            return call(*given, **named)
        except AWAY:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def _kills(supervisor: Process, *, seed: int) -> Iterator[list[int]]:
    """SIGKILL one worker after the other, at random, for as long as the block runs; their process ids."""
    chance, ended, killed = random.Random(seed), threading.Event(), []

    def kill() -> None:
        while not ended.wait(chance.uniform(*SECONDS_BETWEEN_KILLS)):
            with suppress(psutil.Error, IndexError):
                victim = chance.choice(psutil.Process(supervisor.pid).children())
                victim.kill()
                killed.append(victim.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("workers", "seed"),
    [(2, 1), (3, 2), *(pytest.param(2 + seed % 2, seed, marks=pytest.mark.soak) for seed in range(3, 13))],
)
def test_killed_workers_lose_double_and_reorder_nothing(
    engine: Engine, processes: Processes, workers: int, seed: int
) -> None:
    """(QU-3, QU-4, FL-7)"""
    start_clock(processes, engine.environment())
    supervisor = processes.snippet(SUPERVISED, str(workers), environment=engine.environment())
    with _kills(supervisor, seed=seed) as killed:
        _play(engine, seed=seed)
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told, seconds=SETTLED_S)
    assert len(engine.told) >= LEDGERS * TURNS
    assert len(killed) >= 5


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))])
def test_restarted_servers_lose_double_and_reorder_nothing(
    private_servers: EmbeddedServers, processes: Processes, seed: int
) -> None:
    """(QU-4, QU-7)"""
    engine = Engine(private_servers.database_url, private_servers.redis_url)
    start_clock(processes, engine.environment())
    supervisor = processes.snippet(SUPERVISED, "2", environment=engine.environment())
    with ThreadPoolExecutor(1) as pool, _kills(supervisor, seed=seed):
        played = pool.submit(_play, engine, seed=seed, ledgers=20, turns=30)
        for server in (private_servers.redis, private_servers.postgres, private_servers.redis):
            time.sleep(1.5)
            server.restart()
        played.result()
    engine.turns.recover()
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told, seconds=SETTLED_S)
    engine.close()
