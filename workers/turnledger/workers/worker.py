"""A worker process: RQ's own loop, in one process, on one queue, for our functions only."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from redis import Redis
from rq import SimpleWorker
from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointSettings
from turnledger.checkpoint.connection import connection_options
from turnledger.checkpoint.queue import COMMIT_FUNCTION
from turnledger.store import Database, InvalidInput, StoreMisconfigured, StoreSettings, check_revision, read_settings
from turnledger.workers.errors import ForbiddenFunction
from turnledger.workers.safety import check_redis, check_rq_prefix
from turnledger.workers.settings import WorkerSettings

log = structlog.get_logger(__name__)

ALLOWED_FUNCTIONS = frozenset({COMMIT_FUNCTION})
FATAL = (StoreMisconfigured, CheckpointMisconfigured)


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

    It stops by itself, with `exit_code` 1, when a person has to repair something: everything stays pending.
    """

    job_class = TurnJob
    log_result_lifespan = False

    def __init__(self, queue: str, *, redis: Redis, settings: WorkerSettings, name: str | None = None) -> None:
        super().__init__(
            [queue],
            name=name,
            connection=redis,
            serializer=JSONSerializer,
            worker_ttl=settings.worker_ttl_s,
            maintenance_interval=settings.maintenance_s,
            log_job_description=False,
        )
        self.turn_settings = settings
        self.exit_code = 0

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:  # noqa: ARG002  # RQ's signature
        """A job whose worker fell silent is abandoned after the worker's own time to live."""
        return self.turn_settings.worker_ttl_s

    def perform_job(self, job: Job, queue: Queue, execution: Execution) -> bool:
        """Run the job while a thread keeps worker and job alive."""
        with self._kept_alive(job, execution):
            return bool(super().perform_job(job, queue, execution))

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """Stop after this job when trying again cannot help until a person has acted."""
        if isinstance(exc_info[1], FATAL):
            log.critical("worker_stops", job_id=job.id, reason=str(exc_info[1]))
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
            try:
                self.maintain_heartbeats(job, execution)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next beat tries again
                log.warning("heartbeat_failed", job_id=job.id, reason=str(error))


def run_worker(*, burst: bool = False, name: str | None = None) -> int:
    """Work until SIGTERM or, with `burst`, until the queue is empty; returns the exit code.

    Raises:
        UnsafeRedis, SchemaMismatch, CheckpointMisconfigured, StoreUnavailable, CheckpointUnavailable, InvalidInput:
            it does not start.
    """
    checkpoint, settings = read_settings(CheckpointSettings), read_settings(WorkerSettings)
    check_rq_prefix(checkpoint)
    database = Database(read_settings(StoreSettings))
    check_revision(database)
    database.close()
    redis = rq_connection(checkpoint)
    check_redis(redis)
    worker = TurnWorker(checkpoint.commit_queue, redis=redis, settings=settings, name=name)
    worker.work(burst=burst, max_jobs=settings.recycle_jobs, logging_level="WARNING")
    return worker.exit_code


def rq_connection(settings: CheckpointSettings) -> Redis:
    """A client as RQ needs it: bytes, and a reply timeout that leaves its long waits for a job alone.

    Raises:
        InvalidInput: the URL cannot be read.
    """
    options = {**connection_options(settings), "socket_timeout": None}
    try:
        return Redis.from_url(settings.redis_url, **options)
    except ValueError as error:
        raise InvalidInput(f"TURNLEDGER_REDIS_URL cannot be read ({error}); write redis://host:port/0") from None
