"""The processes of a replay: engine nodes that play, workers that commit, a clock; all gone when the block ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from redis import Redis
from rich.console import Console
from sqlalchemy import text

from turnledger.checkpoint import CheckpointSettings, CheckpointUnavailable
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreBusy, StoreUnavailable, TurnledgerError, read_settings
from turnledger.workers.cli.fleet import Fleet
from turnledger.workers.cli.logs import logs_into
from turnledger.workers.cli.processes import check_servers, child_command
from turnledger.workers.cli.servers import servers_or_own, the_database, the_records
from turnledger.workers.replay.conversations import AGENT
from turnledger.workers.replay.logfile import LogFile, log_file
from turnledger.workers.replay.nodes import Nodes
from turnledger.workers.replay.plan import Plan
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor
from turnledger.workers.worker import rq_connection

START_S = 60.0
POLL_S = 0.1
PATIENCE_S = 90.0  # a turn that was left lying is committed within 60 s

_COMMITTED = text(
    "SELECT coalesce(sum(turn_count), 0) FROM ledger WHERE agent = :agent AND conversation_key = ANY(:keys)"
)


class Reached(NamedTuple):
    """How far a replay has come: turns completed by the nodes, and turns committed as Postgres has them."""

    completed: int
    committed: int


class Stage:
    """Running processes that are ready to play a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        supervisor: Supervisor,
        nodes: Nodes,
        database: Database,
        records: Records,
        fleet: Fleet,
        log: LogFile,
    ) -> None:
        self.log = log
        self.plan = plan
        self.supervisor = supervisor
        self.nodes = nodes
        self.fleet = fleet
        self._database = database
        self._records = records
        self._keys = plan.keys()

    def play(self, watch: Callable[[Reached], None]) -> None:
        """Play to the end and wait for the commits, telling `watch` ten times a second how far it is.

        Returns when everything is committed, when nothing is on its way any more, or when nothing moved for 90 s.
        """
        self.nodes.go()
        last, deadline = Reached(0, 0), time.monotonic() + PATIENCE_S
        while self.nodes.running or (last.committed < last.completed and time.monotonic() < deadline):
            time.sleep(POLL_S)
            self.supervisor.tend()
            playing, pending = self.nodes.running, self._pending()
            now = Reached(self.nodes.completed, self._committed(before=last.committed))
            if now != last:
                last, deadline = now, time.monotonic() + PATIENCE_S
            watch(now)
            if not playing and not pending:
                return  # what was pending before Postgres was asked is all there is: the rest was rejected

    def wait_until_ready(self) -> None:
        """Return when all processes could begin.

        Raises:
            NodeFailed, WorkersMissing: they did not come up.
        """
        self.nodes.wait_until_ready(timeout_s=START_S)
        deadline = time.monotonic() + START_S
        while len(self.fleet.at_work(self.supervisor.process_ids)) < self.plan.workers:
            if time.monotonic() > deadline:
                raise WorkersMissing
            time.sleep(POLL_S)

    def _pending(self) -> bool:
        """Whether any turn is still on its way; True while Redis cannot be asked."""
        try:
            with translated():
                return bool(self._records.redis.zcard(self._records.keys.backlog))
        except CheckpointUnavailable:
            return True

    def _committed(self, *, before: int) -> int:
        """What Postgres has by now; while it cannot be asked, what it had before."""
        try:
            with self._database.transaction() as connection:
                return int(connection.scalar(_COMMITTED, {"agent": AGENT, "keys": self._keys}) or 0)
        except (StoreUnavailable, StoreBusy):
            return before


class WorkersMissing(TurnledgerError):
    """The workers did not come up."""


@contextmanager
def stage(plan: Plan, *, screen: Console) -> Iterator[Stage]:
    """Start what the plan needs, own servers where none are named; ready when the block begins, gone when it ends.

    What the processes log goes into one file, which is shown when the block fails or the stage's log is wanted.

    Raises:
        TurnledgerError: something did not come up.
    """
    with ExitStack() as stack:
        with screen.status("Starting ..."):
            log = stack.enter_context(log_file(screen))
            stack.enter_context(servers_or_own())
            check_servers()
            stack.enter_context(logs_into(log.path))
            playing = _open(stack, plan, log=log)
            playing.wait_until_ready()
        yield playing


def _open(stack: ExitStack, plan: Plan, *, log: LogFile) -> Stage:
    checkpoint = read_settings(CheckpointSettings)
    stack.enter_context(translated())
    database, records = stack.enter_context(the_database()), stack.enter_context(the_records())
    redis: Redis = stack.enter_context(rq_connection(checkpoint))
    nodes = Nodes([_node(plan, number, log=log.path) for number in range(plan.nodes)])
    stack.callback(nodes.end)
    commands = [child_command("worker", log=log.path)] * plan.workers + [child_command("clock", log=log.path)]
    supervisor = Supervisor(commands, settings=read_settings(WorkerSettings))
    stack.callback(supervisor.end)
    fleet = Fleet(redis, queue=checkpoint.commit_queue)
    return Stage(plan, supervisor=supervisor, nodes=nodes, database=database, records=records, fleet=fleet, log=log)


def _node(plan: Plan, number: int, *, log: Path) -> list[str]:
    options = ["--run", plan.run, "--rounds", str(plan.rounds), "--share", f"{number}/{plan.nodes}"]
    return [*child_command("node", log=log), str(plan.file), *options]
