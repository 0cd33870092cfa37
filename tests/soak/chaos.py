"""Who is killed next, and how."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.soak.recovery import Watch, look_at, pending_turns
from tests.soak.stage import NodeSeat, Stage
from tests.soak.told import last_held
from turnledger.checkpoint import CheckpointUnavailable
from turnledger.workers.embedded import EmbeddedServers

WEIGHTS = {
    "node": 6,
    "worker": 6,
    "clock": 2,
    "upkeep": 2,
    "redis restarted": 1,
    "postgres restarted": 1,
    "postgres": 1,
}


class Chaos:
    """Kills one process or server at a time. Each kill gives a watch that tells how long its traces last."""

    def __init__(self, stage: Stage, servers: EmbeddedServers, *, seed: int) -> None:
        self._stage = stage
        self._servers = servers
        self._chance = random.Random(seed)
        self._left: list[str] = []
        self._ways: Mapping[str, Callable[[], Watch]] = {
            "node": self._kill_node,
            "worker": lambda: self._kill_supervised("worker"),
            "clock": lambda: self._kill_supervised("clock"),
            "upkeep": lambda: self._kill_supervised("upkeep"),
            "redis restarted": self._restart_redis,
            "postgres restarted": self._restart_postgres,
            "postgres": self._kill_postgres,
        }

    def strike(self) -> Watch:
        """Every kind has its turn before one comes again as often as its weight says."""
        if not self._left:
            self._left = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
            self._chance.shuffle(self._left)
        return self._ways[self._left.pop()]()

    def _kill_node(self) -> Watch:
        seat = self._chance.choice(self._stage.nodes)
        before = seat.process
        assert before is not None
        before.kill()
        before.wait()
        watch = Watch("node", lambda: _is_back(seat, before.pid), pending_turns(self._stage.records))
        held = last_held(seat.told)
        with suppress(CheckpointUnavailable):
            found = look_at(self._stage.records, held) if held else {}
            if found.get("state") == "running":
                watch.held, watch.held_by = held, found["owner"]
        return watch

    def _kill_supervised(self, kind: str) -> Watch:
        place = self._chance.choice(self._stage.places(kind))
        before = self._stage.process_of(place)
        before.kill()
        before.wait()

        def is_back() -> bool:
            now = self._stage.process_of(place)
            return now.pid != before.pid and now.poll() is None

        return Watch(kind, is_back, pending_turns(self._stage.records))

    def _restart_redis(self) -> Watch:
        watch = Watch("redis restarted", lambda: True, pending_turns(self._stage.records))
        self._servers.redis.restart()
        return watch

    def _restart_postgres(self) -> Watch:
        watch = Watch("postgres restarted", lambda: True, pending_turns(self._stage.records))
        self._servers.postgres.restart()
        return watch

    def _kill_postgres(self) -> Watch:
        watch = Watch("postgres", lambda: True, pending_turns(self._stage.records))
        self._servers.postgres.kill()
        self._servers.postgres.start()
        return watch


def _is_back(seat: NodeSeat, killed: int) -> bool:
    process = seat.process
    return process is not None and process.pid != killed and process.poll() is None
