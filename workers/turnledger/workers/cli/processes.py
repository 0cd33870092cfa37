"""`turnledger worker` and `turnledger clock`: the processes of a deployment."""

import os
from pathlib import Path
from typing import Literal

from turnledger.checkpoint import CheckpointSettings
from turnledger.store import InvalidInput, check_revision, read_settings
from turnledger.workers.cli.logs import send_errors_into
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.cli.stopping import end_with, on_stop
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.rewriting import read_rewrite_settings
from turnledger.workers.safety import check_redis, check_rq_prefix
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor
from turnledger.workers.worker import run_worker

Until = Literal["stopped", "empty"]


def child_command(name: str, *, log: Path | None = None) -> list[str]:
    """A command as a child of this process: it ends with this process, however that ends; `log` takes its errors."""
    command = [name, "--parent", str(os.getpid())]
    return command if log is None else [*command, "--log", str(log)]


def be_a_child(*, parent: int, log: Path | None) -> None:
    """What the options of `child_command` ask for; nothing without them."""
    if log is not None:
        send_errors_into(log)
    end_with(parent)


def worker_command(queue: str) -> list[str]:
    """`turnledger worker` on this queue, as a child of this process."""
    return [*child_command("worker"), "--queue", queue]


def work(*, processes: int, until: Until, queue: str | None) -> int:
    """Run one worker in this process, or several as its children; returns the exit code.

    The queue is that of the commits unless another one is named.

    Raises:
        UnsafeRedis, SchemaMismatch, CheckpointMisconfigured, StoreUnavailable, CheckpointUnavailable, InvalidInput:
            nothing was started.
    """
    name = _known_queue(queue)
    if processes == 1:
        return run_worker(queue=name, burst=until == "empty")
    check_servers()
    command = worker_command(name) if until == "stopped" else [*worker_command(name), "--burst"]
    supervisor = Supervisor([command] * processes, settings=read_settings(WorkerSettings))
    on_stop(supervisor.stop)
    return supervisor.run() if until == "stopped" else supervisor.drain()


def rewriting_is_on() -> bool:
    """Whether turns of this deployment are rewritten.

    Raises:
        InvalidInput: they are to be, and nothing says by which model; names the variable.
    """
    if read_settings(CheckpointSettings).rewriting == "off":
        return False
    read_rewrite_settings()
    return True


def _known_queue(queue: str | None) -> str:
    settings = read_settings(CheckpointSettings)
    known = (settings.commit_queue, settings.rewrite_queue, settings.upkeep_queue)
    if queue is not None and queue not in known:
        raise InvalidInput(f"nothing is ever put on the queue {queue!r}; name one of {', '.join(known)}")
    if queue == settings.rewrite_queue:
        read_rewrite_settings()
    return queue or settings.commit_queue


def tick() -> None:
    """Be the clock, or wait to become it, until SIGINT or SIGTERM.

    Raises:
        UnsafeRedis, SchemaMismatch, CheckpointMisconfigured, StoreUnavailable, CheckpointUnavailable, InvalidInput:
            it does not start.
    """
    check_servers()
    settings = read_settings(WorkerSettings)
    with the_database() as database, the_records() as records:
        committer = Committer(records=records, database=database, settings=settings)
        clock = Clock(records=records, database=database, committer=committer, settings=settings)
        on_stop(clock.stop)
        clock.run()


def check_servers() -> None:
    """Refuse servers that workers cannot work with, before anything is started that would be started again.

    Raises:
        UnsafeRedis, SchemaMismatch, CheckpointMisconfigured, StoreUnavailable, CheckpointUnavailable, InvalidInput:
            says what is wrong and what to do.
    """
    check_rq_prefix(read_settings(CheckpointSettings))
    with the_database() as database, the_records() as records:
        check_revision(database)
        check_redis(records.redis)
