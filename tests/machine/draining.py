"""The end of an example: everything heals, everybody works, and then nothing may be left and nothing missing."""

from typing import Any

from tests.machine import acting, invariants, starting
from tests.machine.example import Example
from tests.machine.model import Ack, Attempt, ModelTurn

_MOST_ROUNDS = 12
_UNFINISHED = ("running", "parked")


def finish(example: Example) -> None:
    """Heal, drain, check, and see that every turn that is open can be taken up and completed."""
    example.world.interruptions.disarm()
    for seat in example.world.seats:
        seat.mend()
    drain(example)
    check_decided(example)
    _complete_what_is_open(example)
    drain(example)
    check_decided(example)


def drain(example: Example) -> None:
    """Workers, clock, reconciler, lease keepers and spools, until nothing moves any more."""
    for _ in range(_MOST_ROUNDS):
        before = _picture(example)
        for node in example.world.nodes:
            node.leases.round()
            node.turns.recover()
        work(example, jobs=1_000)
        example.world.worker.sweep()
        reconcile(example)
        if _picture(example) == before:
            return
    raise AssertionError(f"nothing settles: {before}")


def work(example: Example, *, jobs: int) -> None:
    """Run jobs of the commit queue."""
    world = example.world
    for _ in range(jobs):
        job = world.next_job()
        if job is None:
            return
        world.worker.run(job, redis=world.redis, keys=world.keys)


def reconcile(example: Example) -> None:
    """One sweep. A turn whose lease has lapsed is parked by it, and its holder may find it ended.

    So may a holder that had parked its turn, once another run has done the work (RC-5).
    """
    turns = list(example.model.turns.values())
    lapsed = [turn for turn in turns if turn.has_lapsed]
    done = [turn for turn in turns if (turn.is_free or turn.may_be_free) and _may_be_done_by_another(example, turn)]
    for turn in [*lapsed, *done]:
        turn.doubt()
    example.world.reconciler.sweep()
    for turn in lapsed:
        turn.is_parked = True


def _may_be_done_by_another(example: Example, turn: ModelTurn) -> bool:
    rivals = (other for other in example.model.of_work(turn.ledger, turn.work_key) if other is not turn)
    return any(not attempt.failure for other in rivals for attempt in other.attempts)


def check_decided(example: Example) -> None:
    """Nothing is on its way any more, and every completion that was told of is history or refused for a reason."""
    ledgers = invariants.check(example)
    runs = {turn_id: run for ledger in ledgers for turn_id, run in ledger.runs.items()}
    for turn in example.model.turns.values():
        for attempt in turn.told:
            _check_attempt(example, turn, attempt, run=runs.get(turn.turn_id))
    left = [key for key in example.world.redis.keys("*:pending") if example.world.redis.llen(key)]
    assert not left, f"turns are pending for ever: {left}"
    assert not example.world.redis.llen(example.world.keys.queue), "jobs are queued for ever"


def _check_attempt(example: Example, turn: ModelTurn, attempt: Attempt, *, run: Any) -> None:
    if run is None:
        assert attempt.is_excused, f"turn {turn.turn_id} is lost"
        return
    if run.epoch > attempt.epoch or attempt.is_excused or turn.is_contested:
        return
    if run.outcome in ("failed", "abandoned") and turn.may_have_ended and turn.went_back:
        return  # Redis had forgotten that the run had ended
    if attempt.failure:
        assert run.outcome in ("failed", "duplicate"), (
            f"turn {turn.turn_id} could not be delivered, and is {run.outcome}"
        )
        return
    if run.outcome == "duplicate":
        first = example.model.turns[run.duplicate_of]
        assert (first.ledger, first.work_key) == (turn.ledger, turn.work_key), "a duplicate of other work"
        return
    assert run.outcome == "completed", f"turn {turn.turn_id} was completed, and is {run.outcome}"
    assert attempt.ack is Ack.COMPLETED, f"turn {turn.turn_id} was called a duplicate, and is none"


def _complete_what_is_open(example: Example) -> None:
    """No turn is stuck: whoever asks may go on with it, or end it where nobody knows whether its reply was sent."""
    world, node = example.world, example.world.nodes[0]

    def is_open(turn: ModelTurn) -> bool:
        return world.redis.hget(world.keys.record(turn.turn_id), "state") in _UNFINISHED

    for turn in filter(is_open, list(example.model.turns.values())):
        lapse(example, turn)
        starting.resume(example, node, turn)
        for handle in turn.handles:
            if handle.process is node.process and handle.attempt is None:
                acting.complete(example, handle, reach="replied", letters="a")
        if is_open(turn):
            starting.give_up(example, node, turn)
            assert not is_open(turn), f"turn {turn.turn_id} can neither be resumed nor ended"


def lapse(example: Example, turn: ModelTurn) -> None:
    """Nobody has renewed the turn's lease in time."""
    world = example.world
    record = world.keys.record(turn.turn_id)
    if world.redis.hget(record, "state") == "running":
        world.redis.hset(record, "lease_until", 0)
        turn.has_lapsed = True
        for handle in turn.handles:  # by its own clock too: it renewed it no later than Redis says
            handle.turn._session._owned_until = 0.0


def _picture(example: Example) -> list[tuple[str, Any]]:
    """Where every turn of the example stands."""
    world = example.world
    states = [(turn_id, world.redis.hget(world.keys.record(turn_id), "state")) for turn_id in example.model.turns]
    files = [("file", str(path)) for seat in world.seats for path in sorted(seat.spool.glob("*"))]
    with world.database.transaction() as connection:
        heads = [
            ("ledger", (row.conversation_key, row.next_seq))
            for row in connection.execute(invariants.LEDGERS, {"agents": example.agents})
        ]
    return [*states, *files, *sorted(heads)]
