"""The worker processes that one Redis knows."""

import socket
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from redis import Redis
from rq import Queue, Worker
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker

JOB_PREFIX = "turn-"


class Fleet:
    """The workers of one commit queue, through a connection as RQ needs it."""

    def __init__(self, redis: Redis, *, queue: str) -> None:
        self._queue = Queue(queue, connection=redis, serializer=JSONSerializer)

    def alive(self, *, silent_for_s: float) -> int:
        """How many have given a sign of life within so many seconds."""
        earliest = datetime.now(tz=UTC) - timedelta(seconds=silent_for_s)
        return sum(_heard(worker) >= earliest for worker in self._all())

    def at_work(self, process_ids: Collection[int]) -> set[int]:
        """Those of these processes of this machine that have begun to listen to the queue."""
        here = socket.gethostname()
        found = {worker.pid for worker in self._all() if worker.hostname == here and worker.pid}
        return found & set(process_ids)

    def turn_in_hand(self, process_id: int) -> str | None:
        """The turn whose job this process of this machine runs now; None: it waits for one."""
        here = socket.gethostname()
        for worker in self._all():
            if (worker.hostname, worker.pid) == (here, process_id):
                jobs = [execution.job_id for execution in worker.get_current_executions(refresh=True)]
                return jobs[0].removeprefix(JOB_PREFIX) if jobs else None
        return None

    def _all(self) -> list[BaseWorker]:
        return Worker.all(queue=self._queue, serializer=JSONSerializer)


def _heard(worker: BaseWorker) -> datetime:
    heard = worker.last_heartbeat
    if heard is None:
        return datetime.min.replace(tzinfo=UTC)
    return heard if heard.tzinfo else heard.replace(tzinfo=UTC)
