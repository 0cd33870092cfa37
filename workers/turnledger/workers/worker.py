"""A worker process: RQ's own loop, in one process, on one queue, for our functions only."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq import SimpleWorker
from rq.exceptions import DequeueTimeout, StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.worker.base import WorkerStatus
from structlog.contextvars import bound_contextvars

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointSettings, CheckpointUnavailable
from turnledger.checkpoint.connection import connect, connection_options, is_transient, make_client, translated
from turnledger.checkpoint.queue import (
    COMMIT_FUNCTION,
    CONDENSE_FUNCTION,
    FIT_FUNCTION,
    INVALIDATE_FUNCTION,
    RECONCILE_FUNCTION,
    RETENTION_FUNCTION,
)
from turnledger.store import Database, StoreMisconfigured, StoreSettings, check_revision, read_settings
from turnledger.store.errors import without_content
from turnledger.store.logs import get_logger
from turnledger.workers import jobs, upkeep
from turnledger.workers.alive import SignOfLife
from turnledger.workers.errors import ForbiddenFunction
from turnledger.workers.rewriting import read_rewrite_settings
from turnledger.workers.safety import check_redis, check_rq_prefix
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.turn_queue import TurnQueue
from turnledger.workers.upkeep import stop_requested

log = get_logger(__name__)

ALLOWED_FUNCTIONS = frozenset(
    {
        COMMIT_FUNCTION,
        CONDENSE_FUNCTION,
        FIT_FUNCTION,
        INVALIDATE_FUNCTION,
        RECONCILE_FUNCTION,
        RETENTION_FUNCTION,
    }
)
FATAL = (StoreMisconfigured, CheckpointMisconfigured)
LOOK_S = 1  # how long one look for a job waits, and so how soon an idle worker stops


class TurnJob(Job):
    """A job that runs one of our functions; whatever else a queue may hold is refused before it is imported."""

    @property
    def func(self) -> Any:
        """The function.

        Raises:
            ForbiddenFunction: the job names another function, an object, or a callback.
        """
        callbacks = (self._success_callback_name, self._failure_callback_name, self._stopped_callback_name)
        if self.func_name not in ALLOWED_FUNCTIONS or self.instance or any(callbacks):
            raise ForbiddenFunction(f"job {self.id} asks for {self.func_name!r}, which this worker does not run")
        return super().func

    def send_webhooks(self, *_: object, **__: object) -> None:
        """Nothing: a job must not make a worker call an address of its choice."""

    @property
    def success_callback(self) -> None:
        """None: no callback is ever imported."""
        return None

    @property
    def failure_callback(self) -> None:
        """None: no callback is ever imported."""
        return None

    @property
    def stopped_callback(self) -> None:
        """None: no callback is ever imported."""
        return None


class TurnWorker(SimpleWorker):
    """Commits turns in its own process, and goes on telling RQ that it lives while it does.

    It stops by itself, with `exit_code` 1, when a person has to repair something: everything stays pending. SIGTERM
    ends it once the job in hand is done, within a second when there is none.
    """

    job_class = TurnJob
    log_result_lifespan = False

    def __init__(self, queue: str, *, redis: Redis, settings: WorkerSettings, name: str | None = None) -> None:
        super().__init__(
            [_turn_queue(queue, redis=redis, settings=settings)],
            name=name,
            connection=redis,
            serializer=JSONSerializer,
            worker_ttl=settings.worker_ttl_s,
            maintenance_interval=settings.maintenance_s,
            log_job_description=False,
        )
        self.turn_settings = settings
        self.sign_of_life = SignOfLife(settings)
        self.exit_code = 0
        self.jobs_done = 0

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:  # noqa: ARG002  # RQ's signature
        """A job whose worker fell silent is abandoned after the worker's own time to live."""
        return self.turn_settings.worker_ttl_s

    def register_birth(self) -> None:
        """As RQ's, once a request to stop is heard: one that killed the process now would leave it on the list."""
        self._install_signal_handlers()  # type: ignore[no-untyped-call]  # RQ's
        super().register_birth()  # type: ignore[no-untyped-call]  # RQ's

    @property
    def connection_timeout(self) -> int:
        """The least patience that RQ lets the client have: that of one look, not of RQ's own, which take a minute."""
        return LOOK_S + 1

    def teardown(self) -> None:
        """Sign off; without Redis an idle worker ends all the same, and is forgotten there by itself."""
        try:
            super().teardown()  # type: ignore[no-untyped-call]  # RQ's
        except RedisError as error:
            if self.get_state() != WorkerStatus.IDLE or not is_transient(error):
                raise
            log.warning("worker_not_signed_off", reason=str(error))

    def check_for_suspension(self, burst: bool) -> None:  # noqa: FBT001  # RQ's signature
        """Whether somebody has suspended all workers; without Redis the look for a job that follows waits."""
        try:
            super().check_for_suspension(burst)
        except RedisError as error:
            if not is_transient(error):
                raise
            log.warning("worker_without_redis", reason=str(error))

    def dequeue_job_and_maintain_ttl(
        self,
        timeout: int | None,
        max_idle_time: int | None = None,  # noqa: ARG002  # RQ's signature
    ) -> tuple[Job, Queue] | None:
        """Wait for a job in short looks; a request to stop is seen between two of them.

        Nothing may break off a look: the job that it has just taken off the queue would be nobody's for a minute.
        """
        while not self._stop_requested:
            self.sign_of_life.give()
            try:
                return self._look_for_job(None if timeout is None else LOOK_S)
            except DequeueTimeout:
                continue
            except RedisError as error:
                if not is_transient(error):
                    raise
                log.warning("worker_without_redis", reason=str(error))
                time.sleep(LOOK_S)
        raise StopRequested

    def _look_for_job(self, timeout: int | None) -> tuple[Job, Queue] | None:
        self.set_state(WorkerStatus.IDLE)
        self.heartbeat()
        if self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()
        return self.queue_class.dequeue_any(
            self.queues,
            timeout,
            connection=self.connection,
            job_class=self.job_class,
            serializer=self.serializer,
            death_penalty_class=self.death_penalty_class,
        )

    def run_maintenance_tasks(self) -> None:
        """Look after jobs that dead workers left, as a worker that is known.

        A Redis that takes no writes now is looked after at the next look.
        """
        try:
            self._register_if_forgotten()
            super().run_maintenance_tasks()  # type: ignore[no-untyped-call]  # RQ's
        except RedisError as error:
            if not is_transient(error):
                raise
            log.warning("maintenance_postponed", reason=str(error))

    def _register_if_forgotten(self) -> None:
        """Redis forgets a worker that was cut off, or frozen, for long."""
        if not self.connection.hexists(self.key, "birth"):
            self.connection.delete(self.key)  # a sign of life alone
            self.register_birth()
            log.warning("worker_registered_again", worker=self.name)

    def _shutdown(self) -> None:
        """Stop after the job in hand, or after this look for one; the signal itself breaks nothing off.

        A sweep is told, and ends at its next step.
        """
        stop_requested.set()
        self._stop_requested = True

    def ended_by_itself(self) -> bool:
        """Whether it stopped although nobody asked it to and it had not done its share of jobs."""
        return not self._stop_requested and self.jobs_done < self.turn_settings.recycle_jobs

    def perform_job(self, job: Job, queue: Queue, execution: Execution) -> bool:
        """Run the job while a thread keeps worker and job alive."""
        self.jobs_done += 1
        with bound_contextvars(job_id=job.id), self._kept_alive(job, execution):
            return bool(super().perform_job(job, queue, execution))

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """Stop after this job when trying again cannot help until a person has acted."""
        error = exc_info[1]
        log.error("job_failed", job_id=job.id, error=type(error).__name__, reason=without_content(error))
        if isinstance(error, FATAL):
            log.critical("worker_stops", job_id=job.id, reason=str(error))
            self.exit_code = 1
            self._stop_requested = True
        super().handle_exception(job, *exc_info)

    @contextmanager
    def _kept_alive(self, job: Job, execution: Execution) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(job, execution, ended), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _beat(self, job: Job, execution: Execution, ended: threading.Event) -> None:
        while not ended.wait(self.turn_settings.heartbeat_s):
            self.sign_of_life.give()
            try:
                self.maintain_heartbeats(job, execution)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next beat tries again
                log.warning("heartbeat_failed", job_id=job.id, reason=without_content(error))


def run_worker(*, queue: str | None = None, burst: bool = False, name: str | None = None) -> int:
    """Work until SIGTERM or, with `burst`, until the queue is empty; returns the exit code.

    The queue is that of the commits unless another one is named; that of the rewritings needs an endpoint and a model.

    Raises:
        UnsafeRedis, SchemaMismatch, CheckpointMisconfigured, StoreUnavailable, CheckpointUnavailable, InvalidInput:
            it does not start.
        CheckpointUnavailable: also when Redis goes away in the middle of a job; nothing is lost.
    """
    checkpoint, settings = read_settings(CheckpointSettings), read_settings(WorkerSettings)
    if queue == checkpoint.rewrite_queue:
        read_rewrite_settings()
    check_rq_prefix(checkpoint)
    with closing(Database(read_settings(StoreSettings))) as database:
        check_revision(database)
    redis = rq_connection(checkpoint)
    with closing(connect(checkpoint)) as client:  # RQ's own waits for a silent Redis without end
        check_redis(client)
    _prepare(queue, checkpoint)
    stop_requested.clear()
    worker = TurnWorker(queue or checkpoint.commit_queue, redis=redis, settings=settings, name=name)
    with translated(), worker.sign_of_life:
        worker.work(burst=burst, max_jobs=settings.recycle_jobs, logging_level="WARNING")
    if worker.ended_by_itself() and not burst:
        raise CheckpointUnavailable("the worker lost Redis in the middle of a job, which stays pending")
    return worker.exit_code


def _prepare(queue: str | None, checkpoint: CheckpointSettings) -> None:
    """Make what the jobs of the queue work with, now: a file that breaks later leaves them what it said."""
    if queue == checkpoint.rewrite_queue:
        jobs.process_fitter()
        jobs.process_condenser()
    elif queue == checkpoint.upkeep_queue:
        upkeep.process_reconciler()
        upkeep.process_retention()
    else:
        jobs.process_committer()


def _turn_queue(name: str, *, redis: Redis, settings: WorkerSettings) -> TurnQueue:
    return TurnQueue(
        name,
        maintenance_lock_s=max(settings.maintenance_s, 1),
        connection=redis,
        job_class=TurnJob,
        serializer=JSONSerializer,
    )


def rq_connection(settings: CheckpointSettings) -> Redis:
    """A client as RQ needs it: bytes, and a reply timeout that leaves a look for a job alone.

    Raises:
        InvalidInput: the URL cannot be read.
    """
    patience_s = settings.redis_reply_timeout_s + LOOK_S
    return make_client(settings, **{**connection_options(settings), "socket_timeout": patience_s})
