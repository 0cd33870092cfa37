"""`turnledger alive` over real processes: one that hangs is told from one that waits (OP-5)."""

import os
import signal
from pathlib import Path

import pytest

from tests.ledger_checks import wait_until
from tests.processes import Process, Processes
from turnledger.workers.cli.alive import run_alive
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.embedded import EmbeddedServers

ALIVE_S = "2.5"  # a worker that lives leaves a sign each second


@pytest.fixture
def environment(private_servers: EmbeddedServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the process and the command are told."""
    told = {"TURNLEDGER_ALIVE_FOLDER": str(tmp_path / "alive"), "TURNLEDGER_ALIVE_S": ALIVE_S}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    urls = {"TURNLEDGER_DATABASE_URL": private_servers.database_url, "TURNLEDGER_REDIS_URL": private_servers.redis_url}
    return {**told, **urls}


def _says(code: int, process: Process) -> None:
    assert run_alive(output="text") == code, process.output


def test_a_worker_that_waits_is_alive_and_one_that_hangs_is_not(
    environment: dict[str, str], private_servers: EmbeddedServers, processes: Processes
) -> None:
    """Redis away for longer than a silence may last is no reason to start the worker anew (OP-5)."""
    worker = processes.command("worker", environment=environment)
    wait_until(lambda: _says(OK, worker))
    private_servers.redis.stop()
    worker.wait_for_line("worker_without_redis")
    signs = Path(environment["TURNLEDGER_ALIVE_FOLDER"]) / str(worker.pid)
    os.utime(signs, (0, 0))
    wait_until(lambda: _says(OK, worker))
    worker.signal(signal.SIGSTOP)
    wait_until(lambda: _says(NEEDS_A_PERSON, worker))
    worker.signal(signal.SIGCONT)
    wait_until(lambda: _says(OK, worker))
