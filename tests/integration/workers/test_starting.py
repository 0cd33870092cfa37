"""What a worker refuses to start on, and what it does first."""

import signal
from collections.abc import Iterator

import pytest
from redis import Redis

from tests.commands import nothing_kept
from tests.engine import Engine, start_worker
from tests.processes import Processes
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.worker import TurnWorker

UNSAFE = {
    "evicts": ("maxmemory-policy", "allkeys-lru", "noeviction"),
    "forgets": ("appendonly", "no", "yes"),
}


@pytest.fixture
def setting(engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """A real Redis with this setting, until the end of the test."""
    name, bad, good = UNSAFE[request.param]
    with Redis.from_url(engine.redis_url) as client:
        client.config_set(name, bad)
        yield f"`{name} {good}`"
        client.config_set(name, good)


@pytest.mark.parametrize("setting", UNSAFE, indirect=True)
def test_a_worker_refuses_a_redis_that_may_lose_turns(engine: Engine, processes: Processes, setting: str) -> None:
    """(FL-5)"""
    turn = engine.play()
    worker = start_worker(processes, engine.environment())
    assert worker.wait() != 0
    assert f"set {setting}" in worker.output
    assert engine.state(turn.turn_id) == "completed"


def test_a_worker_refuses_a_schema_that_is_not_there(
    engine: Engine, processes: Processes, empty_database_url: str
) -> None:
    """(CK-15)"""
    worker = start_worker(processes, engine.environment(TURNLEDGER_DATABASE_URL=empty_database_url))
    assert worker.wait() != 0
    assert "SchemaMismatch" in worker.output


def test_a_worker_refuses_another_prefix_than_rq_was_imported_with(engine: Engine, processes: Processes) -> None:
    """(CK-14)"""
    source = (
        "import os; os.environ['RQ_KEY_PREFIX'] = 'one'; import rq; os.environ['RQ_KEY_PREFIX'] = 'two'\n"
        "from turnledger.workers.worker import run_worker; run_worker()"
    )
    worker = processes.snippet(source, environment=engine.environment())
    assert worker.wait() != 0
    assert "rq was imported with the prefix 'one', the settings say 'two'" in worker.output


def test_a_worker_hears_a_request_to_stop_before_redis_knows_of_it(engine: Engine) -> None:
    """A signal in between would kill it, and leave it on Redis' list for a minute (OP-6)."""
    with Redis.from_url(engine.redis_url) as client, nothing_kept():
        worker = TurnWorker("commits", redis=client, settings=WorkerSettings())
        worker.register_birth()
        assert signal.getsignal(signal.SIGTERM) == worker.request_stop
        worker.register_death()  # type: ignore[no-untyped-call]  # RQ's
