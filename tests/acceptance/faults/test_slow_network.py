"""Both servers far away: how many round trips each call takes, and that none of them times out or doubles anything."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.engine import Engine, numbered_steps
from tests.ledger_checks import wait_for_invariants
from tests.recovering import Recovery
from tests.slow_line import Pace, SlowLine
from turnledger.checkpoint import Turn
from turnledger.store import Message

# One way. The nearest is what a test has time for, the others are runs of `make faults`.
PACES = [
    Pace(delay_s=0.005),
    pytest.param(Pace(delay_s=0.05), marks=pytest.mark.faults),
    pytest.param(Pace(delay_s=0.2), marks=pytest.mark.faults),
    pytest.param(Pace(delay_s=0.05, bytes_per_s=125_000), marks=pytest.mark.faults),
]
# Round trips to Postgres and to Redis, once a process has made its connections and loaded its scripts.
TRIPS = {
    "start": (10, 2),
    "save": (0, 1),
    "complete": (0, 1),
    "commit": (13, 7),
    "park": (0, 1),
    "resume": (10, 5),
}


@dataclass
class Lines:
    """The lines to both servers, and a node at their end."""

    postgres: SlowLine
    redis: SlowLine
    engine: Engine

    def of(self, call: Callable[[], object]) -> tuple[int, int, float]:
        """Round trips to Postgres and to Redis of one call, and its seconds."""
        before = self.postgres.round_trips, self.redis.round_trips
        began = time.monotonic()
        call()
        took = time.monotonic() - began
        return self.postgres.round_trips - before[0], self.redis.round_trips - before[1], took


@pytest.fixture
def lines(database_url: str, redis_url: str, request: pytest.FixtureRequest) -> Iterator[Lines]:
    with ExitStack() as stack:
        postgres = stack.enter_context(SlowLine(database_url, pace=request.param))
        redis = stack.enter_context(SlowLine(redis_url, pace=request.param))
        engine = Engine(postgres.url, redis.url, renew_s=600, lease_s=1_200)  # no renewal is counted with a call
        stack.callback(engine.close)
        yield Lines(postgres, redis, engine)


@pytest.mark.parametrize(
    "lines",
    PACES,
    indirect=True,
    ids=lambda pace: f"{pace.delay_s * 1000:g} ms" + (" narrow" if pace.bytes_per_s else ""),
)
def test_a_call_takes_so_many_round_trips_and_none_times_out_or_doubles(
    lines: Lines, database_url: str, redis_url: str, recovery: Recovery
) -> None:
    """However far the servers are (CK-1, FL-1, FL-2, QU-4)."""
    _play(lines)
    trips, seconds = _play(lines)
    assert trips == TRIPS
    recovery.note(", ".join(f"{name} {took:.2f} s" for name, took in seconds.items()))
    wait_for_invariants(database_url, redis_url, told=lines.engine.told)


def _play(lines: Lines) -> tuple[dict[str, tuple[int, int]], dict[str, float]]:
    """A turn from its start to its commit, parked and resumed on the way."""
    engine, held = lines.engine, _Held()
    messages = [Message(uuid.uuid4().hex, "Hello")]
    calls: dict[str, Callable[[], object]] = {
        "start": lambda: held.take(engine.start(work_key=uuid.uuid4().hex, messages=messages)),
        "save": lambda: held.turn.save(steps=numbered_steps(held.turn, 3)),
        "park": lambda: held.turn.park(reason="waits"),
        "resume": lambda: held.take(engine.turns.resume(held.turn.turn_id)),
        "complete": lambda: engine.complete(held.turn),
        "commit": lambda: engine.committer().persist(held.turn.turn_id),
    }
    measured = {name: lines.of(call) for name, call in calls.items()}
    engine.redis.lrem(engine.keys.queue, 0, f"turn-{held.turn.turn_id}")
    engine.redis.delete(engine.keys.job(held.turn.turn_id))
    turn = held.turn
    assert (turn.history_error, turn.checkpoint_error, turn.spooled) == (None, None, None)
    return {name: found[:2] for name, found in measured.items()}, {name: found[2] for name, found in measured.items()}


class _Held:
    """The turn in hand."""

    turn: Turn

    def take(self, turn: Turn) -> None:
        self.turn = turn
