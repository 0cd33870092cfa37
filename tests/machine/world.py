"""Real servers, and the processes of a deployment played one step at a time: engine nodes, a worker, the clock."""

import itertools
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.commands.core import Script

from tests.configuring import write_config
from tests.machine.faults import Interruptions, Line, Link, redis_over
from tests.machine.model import Process
from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreSettings
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.errors import CommitPostponed, TurnRejected
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings

NODES = 3
SLICES = 4
QUICK = WorkerSettings(transient_wait_s=0.001, first_pause_s=0.0005, longest_pause_s=0.001, overdue_s=0.0001)
_COPY = """
redis.call('SELECT', ARGV[2])
redis.call('FLUSHDB')
redis.call('SELECT', ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[2])
end
"""


class Seat:
    """Where a process runs: its line to Redis, its way to Postgres, its disk. They outlive the process."""

    def __init__(self, shared: Database, *, redis_url: str, spool: Path) -> None:
        self.line = Line()
        self.link = Link(shared)
        self.spool = spool
        # Leases lapse and are renewed when the test says so, and never by the clock on the wall.
        settings = CheckpointSettings(redis_url=redis_url, lease_s=900, renew_s=899, slices=SLICES, spool_folder=spool)
        self.records = Records(redis_over(self.line, redis_url), settings)

    @property
    def is_whole(self) -> bool:
        return self.line.is_whole and self.link.is_whole

    def mend(self) -> None:
        self.line.mend()
        self.link.mend()


class Node:
    """An engine node: processes that follow one another in one seat."""

    def __init__(self, seat: Seat, *, number: int) -> None:
        self.seat = seat
        self.number = number
        self._boot()

    @property
    def leases(self) -> LeaseKeeper:
        return self.turns._services.leases

    def restart(self) -> None:
        """The process is gone, with all that it held; another one begins."""
        self.turns.close()
        self._boot()

    def _boot(self) -> None:
        self.process = Process(self.number)
        self.seat.link.forget()
        self.turns = Turns(records=self.seat.records, database=self.seat.link)
        self.turns._checked_revision = True  # once a process is enough


class Worker:
    """Runs the jobs of the commit queue, as RQ would; what it takes off the queue it loses when it dies."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self._committer = Committer(records=seat.records, database=seat.link, settings=QUICK)
        self._clock = Clock(records=seat.records, database=seat.link, committer=self._committer, settings=QUICK)

    def sweep(self) -> None:
        """As the clock does."""
        self._clock.sweep()

    def run(self, job: str, *, redis: Any, keys: Keys) -> None:
        """Run one job that was taken off the queue. Transient trouble puts it back at the end."""
        turn_id = job.removeprefix("turn-")
        try:
            self._committer.persist(turn_id)
        except CommitPostponed:
            redis.rpush(keys.queue, job)
            return
        except TurnRejected:
            pass
        redis.delete(keys.job(turn_id))


class World:
    """Both servers, and everything that runs over them; one example after the other."""

    def __init__(self, *, database_url: str, redis_url: str, folder: Path) -> None:
        self._agents = (f"agent-{uuid.uuid4().hex}-{number}" for number in itertools.count(1))
        self._folder = folder
        self._redis_url = redis_url
        config = write_config(folder, max_entries=100)
        self.database = Database(StoreSettings(database_url=database_url, config=config, block_bytes=200_000))
        self.redis: Any = Redis.from_url(redis_url, decode_responses=True)
        self._copy: Script = self.redis.register_script(_COPY)
        self.interruptions = Interruptions()
        self.tally: Counter[str] = Counter()
        self.nodes = [Node(self._seat(f"node-{number}"), number=number) for number in range(NODES)]
        self.worker = Worker(self._seat("worker"))
        self.reconciler = Reconciler(records=self.worker.seat.records, database=self.worker.seat.link, settings=QUICK)

    @property
    def keys(self) -> Keys:
        return self.worker.seat.records.keys

    @property
    def seats(self) -> list[Seat]:
        return [*(node.seat for node in self.nodes), self.worker.seat]

    def begin_example(self) -> str:
        """An empty Redis, whole lines, empty disks, fresh processes. Returns an agent that nobody has used."""
        self.redis.flushall()
        self.interruptions.disarm()
        for seat in self.seats:
            seat.mend()
            shutil.rmtree(seat.spool, ignore_errors=True)
        for node in self.nodes:
            node.restart()
        self.replica_catches_up()
        return next(self._agents)

    def next_job(self) -> str | None:
        job: str | None = self.redis.lpop(self.keys.queue)
        return job

    def replica_catches_up(self) -> None:
        """Remember Redis as it is, so that a failover may bring it back."""
        self._copy(args=[0, 1])

    def fail_over(self) -> None:
        """Redis is again as its replica had it: whatever was written since is lost."""
        self._copy(args=[1, 0])

    def close(self) -> None:
        for node in self.nodes:
            node.turns.close()
        self.reconciler.close()
        self.redis.close()
        self.database.close()

    def _seat(self, name: str) -> Seat:
        return Seat(self.database, redis_url=self._redis_url, spool=self._folder / name)


@contextmanager
def world(*, database_url: str, redis_url: str, folder: Path) -> Iterator[World]:
    """A world whose processes stop at crash points when they are told to."""
    made = World(database_url=database_url, redis_url=redis_url, folder=folder)
    try:
        with made.interruptions.installed():
            yield made
    finally:
        made.close()
