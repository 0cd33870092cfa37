"""What the actors of the model do, in calls of the product; only RQ's own part is written here."""

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from tests.model.actors import Actor, Operation, Program
from tests.model.execution import Fault
from tests.model.product import LEDGER, Held, MemorySpool
from tests.model.redis_model import Keyspace
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.submission import Completion
from turnledger.checkpoint.turn import Turn
from turnledger.store import Replied, Step
from turnledger.workers.errors import CommitPostponed, TurnRejected

KEYS = Keys("{turnledger}", "rq", "commits")
KEEPER_ROUNDS = 3  # more than may meet trouble; the real keeper never stops
TROUBLE: frozenset[Fault] = frozenset({"lost", "unanswered"})


def start(turn_id: str, *, work_key: str = "") -> Operation:
    """Begin a run."""

    def run(actor: Actor) -> None:
        actor.held.turns = actor.product.node()
        turn = actor.held.turns.start(
            agent=LEDGER.agent,
            conversation=LEDGER.conversation,
            triggered_by="work",
            work_key=work_key,
            turn_id=turn_id,
        )
        actor.held.turn = turn
        could_look = turn.checkpoint_error is None and turn.history_error is None
        block = turn.earlier if could_look else None
        actor.report("started", turn_id, (turn.claim.owner, turn._record.epoch, turn.checkpoint_error is None, block))

    return Operation("start", run)


def resume(turn_id: str) -> Operation:
    """Take a turn over, at any time after its record was made: its holder may be dead or only slow."""

    def run(actor: Actor) -> None:
        actor.held.turns = actor.product.node()
        turn = actor.held.turns.resume(turn_id)
        actor.held.turn = turn
        found = (json.dumps(turn.bootstrap), turn.cursor.history_version)
        actor.report("resumed", turn_id, (turn.claim.owner, turn._record.epoch, *found))

    return Operation("resume", run, guard=lambda redis, _: _field(redis, turn_id, "state") in ("running", "parked"))


def save(name: str) -> Operation:
    """Save one step and a bootstrap that says which version it belongs to."""

    def run(actor: Actor) -> None:
        turn = _turn(actor)
        turn.save(steps=[_step(turn, name)], bootstrap={"bootstrap": turn.cursor.history_version})
        if turn.checkpoint_error is None:
            actor.report("saved", turn.turn_id, turn.claim.owner)

    return Operation("save", run)


def park() -> Operation:
    """Let go of the turn."""

    def run(actor: Actor) -> None:
        turn = _turn(actor)
        turn.park(reason="question", bootstrap={"bootstrap": turn.cursor.history_version})
        actor.report("parked", turn.turn_id, turn.claim.owner)

    return Operation("park", run)


def complete(name: str) -> Operation:
    """Complete the turn with one more step; its entry names all steps that the engine knows of."""

    def run(actor: Actor) -> None:
        turn = _turn(actor)
        last = _step(turn, name)
        names = [str(step.value) for step in (*turn._held.steps, last)]
        completion = turn.complete(reply=Replied("done", f"r-{turn.turn_id}"), steps=[last], set_out_to=" ".join(names))
        _report_completed(actor, turn, completion)

    return Operation("complete", run)


def _report_completed(actor: Actor, turn: Turn, completion: Completion) -> None:
    how = "spooled" if turn.spooled else "duplicate" if completion.duplicate else "first"
    actor.report("completed", turn.turn_id, (turn.claim.owner, how, turn._record.epoch))


def deliver(name: str) -> Operation:
    """Send the reply to whoever waits for it, and complete the turn."""

    def run(actor: Actor) -> None:
        turn = _turn(actor)

        def send() -> str:
            receipt = f"r-{turn.turn_id}"
            actor.product.redis.request("the vendor takes the reply", lambda _: receipt)
            actor.report("sent", turn.turn_id)
            return receipt

        last = _step(turn, name)
        names = [str(step.value) for step in (*turn._held.steps, last)]
        completion = turn.deliver(send, reply="done", steps=[last], set_out_to=" ".join(names))
        _report_completed(actor, turn, completion)

    return Operation("deliver", run)


def fail() -> Operation:
    """End the turn without an entry, so that its work may be done by another run."""

    def run(actor: Actor) -> None:
        _turn(actor).fail("agent_run_failed")

    return Operation("fail", run)


def compact() -> Operation:
    """Replace the ledger's history by one step that names all it stands for, own steps included."""

    def run(actor: Actor) -> None:
        turn = _turn(actor)
        history = turn.history_to_replace()
        names = [name for step in (*history.steps, *turn.steps) for name in _names(step)]
        summary = Step.of(role="user", content={"stands_for": names})
        turn.compact(history, steps=[summary], model="any")

    return Operation("compact", run, goes_on=True)


def submitted_again(turn_id: str) -> tuple[Operation, ...]:
    """Rounds of the lease keeper that find the completion gone; they come only if there is something to find."""

    def run(actor: Actor) -> None:
        assert actor.held.turns is not None, "a turn was completed before"
        services = actor.held.turns._services
        services.leases.round()
        if turn_id in cast("MemorySpool", services.direct._spool).files:
            actor.report("spooled", turn_id)

    def is_gone(redis: Keyspace, held: Callable[[], Held]) -> bool:
        state = _field(redis, turn_id, "state")
        if state in ("completed", "rejected"):
            turn = held().turn
            return turn is not None and _field(redis, turn_id, "owner") != turn.claim.owner
        return state != "committed"

    return (Operation("lease keeper", run, guard=is_gone),) * KEEPER_ROUNDS


def node(name: str, *operations: Operation, faults: frozenset[Fault] = frozenset()) -> Program:
    """An engine node."""
    return Program(name, operations, faults=faults)


def worker(*, jobs: int) -> Program:
    """A worker process that takes so many jobs."""
    return Program("worker", (Operation("job", _work, guard=_has_job),) * jobs)


def clock() -> Program:
    """The clock: one sweep over what is overdue."""
    return Program("clock", (Operation("sweep", _sweep),))


def _sweep(actor: Actor) -> None:
    actor.product.clock.sweep()


def _work(actor: Actor) -> None:
    """What RQ does around a job: out of the queue, run, and then deleted, put back, or set aside as failed."""
    redis = actor.product.redis
    job = redis.request("rq takes a job", _dequeue)
    if job is None:
        return
    try:
        actor.product.committer().persist(str(job).removeprefix("turn-"))
    except CommitPostponed:
        redis.request("rq puts the job back", lambda keyspace: _requeue(keyspace, job))
    except TurnRejected:
        redis.request("rq sets the job aside", lambda keyspace: _set_aside(keyspace, job))
    else:
        redis.request("rq deletes the job", lambda keyspace: keyspace.call("DEL", [KEYS.job_prefix + job]))


def _dequeue(keyspace: Keyspace) -> Any:
    job = keyspace.call("LPOP", [KEYS.queue])
    if job is not None and keyspace.call("EXISTS", [KEYS.job_prefix + job]):
        keyspace.call("HSET", [KEYS.job_prefix + job, "status", "started"])
    return job


def _requeue(keyspace: Keyspace, job: str) -> Any:
    keyspace.call("HSET", [KEYS.job_prefix + job, "status", "queued"])
    return keyspace.call("RPUSH", [KEYS.queue, job])


def _set_aside(keyspace: Keyspace, job: str) -> Any:
    keyspace.call("HSET", [KEYS.job_prefix + job, "status", "failed"])
    return keyspace.call("ZADD", [KEYS.failed_registry, "0", job])


def _has_job(keyspace: Keyspace, held: Callable[[], Held]) -> bool:
    del held
    return bool(keyspace.call("LLEN", [KEYS.queue]))


def _field(keyspace: Keyspace, turn_id: str, name: str) -> str | None:
    value: str | None = keyspace.call("HGET", [KEYS.record(turn_id), name])
    return value


def _turn(actor: Actor) -> Turn:
    assert actor.held.turn is not None, "a turn was started or resumed before"
    return actor.held.turn


def _step(turn: Turn, name: str) -> Step:
    """Named for its turn, itself, and the history version that its holder knew of."""
    return Step.of(role="assistant", content=f"{turn.turn_id}.{name}@{turn.cursor.history_version}")


def _names(step: Step) -> Sequence[str]:
    content = step.value
    return list(content["stands_for"]) if isinstance(content, dict) else [str(content)]
