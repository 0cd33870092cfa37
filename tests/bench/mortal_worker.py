"""A worker of the product that kills itself, like a crash, at the step of a commit that Redis names; once a name."""

import os
import signal
import sys

from redis import Redis

from turnledger.store import crash_points

DIE_AT = "bench:die-at"


def main() -> None:
    redis = Redis.from_url(os.environ["TURNLEDGER_REDIS_URL"], decode_responses=True)

    def die_if_asked(name: str) -> None:
        if redis.get(DIE_AT) == name and redis.delete(DIE_AT):
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.crash_point = die_if_asked  # before the modules are loaded that have such points
    from turnledger.workers.worker import run_worker

    sys.exit(run_worker())
