"""What a soak runs: servers, nodes, workers, upkeep and clocks; whatever dies of them is started again."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT
from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreSettings, read_settings
from turnledger.workers.cli.logs import logs_into
from turnledger.workers.cli.processes import child_command
from turnledger.workers.cli.servers import environment, migrate_here, the_database, the_records, urls
from turnledger.workers.embedded import EmbeddedServers, embedded_servers
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor

WORKERS = 2
CLOCKS = 2
STOP_S = 30.0


@dataclass
class NodeSeat:
    """Where the lives of one engine node follow each other: its file of what it was told, its spool."""

    number: int
    told: Path
    spool: Path
    process: "subprocess.Popen[bytes] | None" = None


class Stage:
    """Running processes, by what they are."""

    def __init__(self, *, folder: Path, nodes: int, log: Path, seed: int, records: Records, database: Database) -> None:
        self.records = records
        self.database = database
        self.log = log
        self._chance = random.Random(seed)
        self.nodes = [
            NodeSeat(number, folder / f"told-{number}.jsonl", folder / f"spool-{number}") for number in range(nodes)
        ]
        self._kinds = ["worker"] * WORKERS + ["upkeep"] + ["clock"] * CLOCKS
        commands = [child_command(kind, log=log) for kind in self._kinds]
        self._supervisor = Supervisor(commands, settings=read_settings(WorkerSettings))
        self._playing = True
        self.tend()

    def tend(self) -> None:
        """Start again what has ended."""
        self._supervisor.tend()
        for seat in self.nodes if self._playing else []:
            if seat.process is None or seat.process.poll() is not None:
                seat.process = self._spawn(seat)

    def process_of(self, place: int) -> "subprocess.Popen[bytes]":
        """The process that has this place among workers, upkeep and clocks."""
        return self._supervisor._children[place].process

    def places(self, kind: str) -> list[int]:
        return [place for place, each in enumerate(self._kinds) if each == kind]

    def stop_nodes(self) -> None:
        """Let every node finish what it has in hand; none is started again."""
        self._playing = False
        for seat in self.nodes:
            assert seat.process is not None
            seat.process.send_signal(signal.SIGTERM)
        for seat in self.nodes:
            assert seat.process is not None
            seat.process.wait(STOP_S)

    def end(self) -> None:
        """Nothing runs any more."""
        self._playing = False
        for seat in self.nodes:
            if seat.process is not None:
                seat.process.kill()
                seat.process.wait()
        self._supervisor.end()

    def _spawn(self, seat: NodeSeat) -> "subprocess.Popen[bytes]":
        seed = self._chance.getrandbits(32)
        arguments = [str(seat.number), str(seed), str(seat.told), str(os.getpid())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.soak.node", *arguments],
                cwd=ROOT,
                env={**os.environ, "TURNLEDGER_SPOOL_FOLDER": str(seat.spool)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def stage(folder: Path, *, settings: dict[str, str], nodes: int, seed: int) -> Iterator[tuple[Stage, EmbeddedServers]]:
    """Servers of its own and everything over them; all gone when the block ends."""
    log = folder / "processes.log"
    with ExitStack() as stack:
        servers = stack.enter_context(embedded_servers())
        stack.enter_context(environment({**urls(servers), **settings}))
        stack.enter_context(logs_into(log))
        migrate_here()
        database, records = stack.enter_context(the_database()), stack.enter_context(the_records())
        running = Stage(folder=folder, nodes=nodes, log=log, seed=seed, records=records, database=database)
        stack.callback(running.end)
        yield running, servers


def spool_settings(seat: NodeSeat) -> tuple[CheckpointSettings, StoreSettings]:
    """What the next life of a node would read."""
    return read_settings(CheckpointSettings, spool_folder=seat.spool), read_settings(StoreSettings)
