"""What chance does to the stores, and to the ways that lead to them."""

from typing import Literal

from tests.machine.example import Example
from tests.machine.world import Seat

OnANode = Literal[
    "redis is cut off", "an answer of redis is lost", "two answers of redis are lost", "postgres is down",
    "an answer of postgres is lost", "mended",
]  # fmt: skip
OfRedis = Literal["replica catches up", "fails over", "is flushed", "loses a record", "queue is emptied"]
ON_A_NODE: list[OnANode] = [
    "redis is cut off", "an answer of redis is lost", "two answers of redis are lost", "postgres is down",
    "an answer of postgres is lost",
]  # fmt: skip
ON_THE_WORKER: list[OnANode] = ["postgres is down", "an answer of postgres is lost", "mended"]
OF_REDIS: list[OfRedis] = ["replica catches up", "fails over", "is flushed", "loses a record", "queue is emptied"]


def befall(seat: Seat, kind: OnANode) -> None:
    """One thing goes wrong for one process, until it is mended or has happened."""
    if kind == "redis is cut off":
        seat.line.is_cut = True
    elif kind == "an answer of redis is lost":
        seat.line.answers_to_lose = 1
    elif kind == "two answers of redis are lost":
        seat.line.answers_to_lose = 2
    elif kind == "postgres is down":
        seat.link.is_down = True
    elif kind == "an answer of postgres is lost":
        seat.link.commits_to_lose = 1
    else:
        seat.mend()


def redis_loses(example: Example, kind: OfRedis, *, pick: int) -> None:
    """Redis forgets something that it had acknowledged."""
    world, turns = example.world, list(example.model.turns.values())
    if kind == "replica catches up":
        world.replica_catches_up()
    elif kind == "fails over":
        world.fail_over()
        example.model.redis_loses(*turns)
    elif kind == "is flushed":
        world.redis.flushdb()
        example.model.redis_loses(*turns)
    elif kind == "queue is emptied":
        world.redis.delete(world.keys.queue)
    elif turns:
        turn = turns[pick % len(turns)]
        world.redis.delete(world.keys.record(turn.turn_id), world.keys.steps(turn.turn_id))
        example.model.redis_loses(turn)
