"""The commit queue as a worker reads it."""

from typing import Any

from rq.queue import Queue


class TurnQueue(Queue):
    """RQ's queue, whose maintenance a killed worker cannot stop for long.

    The worker that looks after the registries holds a lock. RQ lets the lock of one that died in the middle stand
    for 15 minutes, in which nobody would see an abandoned job.
    """

    def __init__(self, name: str, *, maintenance_lock_s: int, **options: Any) -> None:
        super().__init__(name, **options)
        self._maintenance_lock_s = maintenance_lock_s

    def acquire_maintenance_lock(self) -> bool:
        """Whether this worker may look after the registries now."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=self._maintenance_lock_s))
