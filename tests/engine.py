"""An engine node as the tests play it, and the processes that commit what it completes."""

import signal
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from tests.ledger_checks import Told
from tests.processes import PATIENCE_S, Process, Processes
from turnledger.checkpoint import CheckpointSettings, Turn, Turns
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.records import Records
from turnledger.store import Database, LedgerName, Message, NoReplyOwed, Step, StoreSettings
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings

# The defaults at a twentieth of their length: what must happen within 60 seconds must happen within 3.
SCALE = 20.0
QUICK = {
    "TURNLEDGER_OVERDUE_S": str(30 / SCALE),
    "TURNLEDGER_SWEEP_S": str(15 / SCALE),
    "TURNLEDGER_CLOCK_RETRY_S": str(5 / SCALE),
    "TURNLEDGER_WORKER_TTL_S": "3",
    "TURNLEDGER_HEARTBEAT_S": str(15 / SCALE),
    "TURNLEDGER_MAINTENANCE_S": "1",
    "TURNLEDGER_LEASE_S": str(60 / SCALE),
    "TURNLEDGER_RENEW_S": str(15 / SCALE),
}
_WORKER = "import sys; from turnledger.workers.worker import run_worker; sys.exit(run_worker({}))"
_CLOCK = """
import signal
from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.records import Records
from turnledger.store import Database, StoreSettings
from turnledger.workers.clock import Clock
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.settings import WorkerSettings
records, database = Records.from_settings(CheckpointSettings()), Database(StoreSettings())
settings = WorkerSettings()
committer = Committer(records=records, database=database, settings=settings)
clock = Clock(records=records, database=database, committer=committer, settings=settings)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, clock.stop)
print("the clock is there", flush=True)
clock.run()
"""


class Engine:
    """Completes turns and remembers what it was told; everything it needs to look around is at hand."""

    def __init__(self, database_url: str, redis_url: str, *, lock_timeout_ms: int = 1_000, **checkpoint: Any) -> None:
        self.database_url, self.redis_url = database_url, redis_url
        self.settings = CheckpointSettings(redis_url=redis_url, **checkpoint)
        self.database = Database(StoreSettings(database_url=database_url, lock_timeout_ms=lock_timeout_ms))
        self.records = Records.from_settings(self.settings)
        self.turns = Turns(records=self.records, database=self.database)
        self.told: list[Told] = []

    @property
    def redis(self) -> Any:
        return self.records.redis

    @property
    def keys(self) -> Keys:
        return self.records.keys

    def close(self) -> None:
        self.turns.close()

    def start(self, conversation: str = "jira:POC-1", *, agent: str = "lead", work_key: str = "", **more: Any) -> Turn:
        return self.turns.start(
            agent=agent, conversation=conversation, triggered_by="Please", work_key=work_key, **more
        )

    def start_again(self, turn: Turn) -> Turn:
        """A second run of the same work: the ledger's index, which would have told, was lost."""
        self.redis.delete(self.keys.open(turn.ledger))
        return self.start(turn.ledger.conversation, agent=turn.ledger.agent, work_key=turn.work_key)

    def complete(self, turn: Turn, *, steps: int = 1, **account: Any) -> Told:
        """Complete a turn with some more steps; what was told is remembered, duplicates included."""
        new = numbered_steps(turn, steps)
        turn.complete(reply=NoReplyOwed(), steps=new, **account)
        contents = tuple(step.content for step in (*turn.steps, *new))
        told = Told(turn.turn_id, turn.ledger.agent, turn.ledger.conversation, turn.work_key, contents)
        self.told.append(told)
        return told

    def play(
        self, conversation: str = "jira:POC-1", *, agent: str = "lead", work_key: str = "", steps: int = 1
    ) -> Told:
        """One whole turn, with an inbound message."""
        turn = self.start(conversation, agent=agent, work_key=work_key, messages=[Message(uuid.uuid4().hex, "Please")])
        return self.complete(turn, steps=steps)

    @staticmethod
    def ledger_of(turn: Told) -> LedgerName:
        return LedgerName(turn.agent, turn.conversation)

    def state(self, turn_id: str) -> str | None:
        state: str | None = self.redis.hget(self.keys.record(turn_id), "state")
        return state

    def pending(self, ledger: LedgerName) -> list[str]:
        return list(self.redis.lrange(self.keys.pending(ledger), 0, -1))

    def queued(self) -> list[str]:
        return list(self.redis.lrange(self.keys.queue, 0, -1))

    def commit_all(self) -> None:
        """What one worker would do, in this process: every job in turn, each of which carries others."""
        committer = self.committer()
        while job := self.redis.lpop(self.keys.queue):
            committer.persist(job.removeprefix("turn-"))
            self.redis.delete(f"rq:job:{job}")

    def committer(self, **settings: Any) -> Committer:
        """A committer in this process; call `persist` as a worker would."""
        quick = {"transient_wait_s": 0.5, "first_pause_s": 0.01, "longest_pause_s": 0.05, **settings}
        return Committer(records=self.records, database=self.database, settings=WorkerSettings(**quick))

    def clock(self, **settings: Any) -> Clock:
        """A clock in this process; call `tick` or `sweep` as its loop would."""
        quick = {"overdue_s": 1e-9, **settings}
        return Clock(
            records=self.records,
            database=self.database,
            committer=self.committer(**settings),
            settings=WorkerSettings(**quick),
        )

    def reconcile(self) -> None:
        """One sweep of the reconciler, in this process."""
        Reconciler(records=self.records, database=self.database, settings=WorkerSettings()).sweep()

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the test's own, in autocommit."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            yield connection

    def environment(self, **more: str) -> dict[str, str]:
        """What a process of this deployment is told, at the quick pace."""
        urls = {"TURNLEDGER_DATABASE_URL": self.database_url, "TURNLEDGER_REDIS_URL": self.redis_url}
        return {**urls, **QUICK, **more}


@contextmanager
def rq_queue(engine: Engine) -> Iterator[Queue]:
    """The commit queue as RQ's own tools see it."""
    with Redis.from_url(engine.redis_url) as client:
        yield Queue(engine.settings.commit_queue, connection=client, serializer=JSONSerializer)


def numbered_steps(turn: Turn, count: int) -> list[Step]:
    done = len(turn.steps)
    return [
        Step.of(role="user", content={"role": "user", "content": f"{turn.turn_id} step {number}"})
        for number in range(done, done + count)
    ]


def start_worker(processes: Processes, environment: Mapping[str, str], *, burst: bool = False) -> Process:
    """A process with one `TurnWorker`."""
    return processes.snippet(_WORKER.format("burst=True" if burst else ""), environment=environment)


def start_clock(processes: Processes, environment: Mapping[str, str]) -> Process:
    """A process with a clock, which says that it is there."""
    clock = processes.snippet(_CLOCK, environment=environment)
    clock.wait_for_line("the clock is there")
    return clock


def worker_command() -> Sequence[str]:
    """How a supervisor starts the same worker."""
    return (sys.executable, "-c", _WORKER.format(""))


@contextmanager
def within(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Fail what is still running after so many seconds, an endless loop included."""

    def fail(*_: object) -> None:
        raise AssertionError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)  # again, should someone catch the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
