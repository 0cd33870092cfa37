"""An engine node that is killed between two writes, or frozen and overtaken; another one goes on."""

import signal
from collections.abc import Callable

import pytest

from tests.engine import Engine
from tests.ledger_checks import Told, check_invariants
from tests.processes import Process, Processes
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, Turn
from turnledger.store import Message
from turnledger.store.crash_points import CRASH_POINTS

# None lapses by itself, however busy the machine: the tests say when one has.
LONG_LEASES = {"TURNLEDGER_LEASE_S": "60", "TURNLEDGER_RENEW_S": "15"}
TURN_ID, WORK_KEY, CONVERSATION = "the-turn", "the-work", "jira:POC-1"
NODE = """
import sys, time
from tests.engine import numbered_steps
from turnledger.checkpoint import Turns
from turnledger.store import Message, NoReplyOwed
turns = Turns.from_settings()
def start():
    return turns.start(agent="lead", conversation="jira:POC-1", triggered_by="Please", work_key="the-work",
                       turn_id="the-turn", messages=[Message("m-1", "Please")])
def save(turn):
    turn.save(steps=numbered_steps(turn, 1))
def complete(turn):
    turn.complete(reply=NoReplyOwed(), steps=numbered_steps(turn, 1))
def say(text):
    print(text, flush=True)
"""
WHOLE = "turn = start(); save(turn); complete(turn)"
PARKED = "turn = start(); save(turn); turn.park(reason='authorization'); turns.close(); say('parked')"


def _node(engine: Engine, processes: Processes, what: str, *, crash_at: str = "") -> Process:
    environment = engine.environment(**LONG_LEASES, **({"TURNLEDGER_CRASH_AT": crash_at} if crash_at else {}))
    return processes.snippet(NODE + what, environment=environment)


def _kill(engine: Engine, processes: Processes, what: str, *, at: str) -> None:
    assert _node(engine, processes, what, crash_at=at).wait() == -signal.SIGKILL


def _start_again(engine: Engine) -> Turn:
    return engine.start(CONVERSATION, work_key=WORK_KEY, turn_id=TURN_ID, messages=[Message("m-1", "Please")])


def _resume(engine: Engine) -> Turn:
    """As another node would once the lease of the dead one has lapsed, and not before."""
    with pytest.raises(AlreadyRunning):
        engine.turns.resume(TURN_ID)
    _lapse(engine)
    return engine.turns.resume(TURN_ID)


def _lapse(engine: Engine) -> None:
    engine.redis.hset(engine.keys.record(TURN_ID), "lease_until", 1)


def _retry_the_start(engine: Engine, processes: Processes) -> None:
    _kill(engine, processes, WHOLE, at="start.recorded")
    turn = _start_again(engine)
    engine.complete(turn)


def _retry_the_opened_start(engine: Engine, processes: Processes) -> None:
    _kill(engine, processes, WHOLE, at="start.opened")
    with pytest.raises(AlreadyRunning):
        engine.start(CONVERSATION, work_key=WORK_KEY)
    turn = _start_again(engine)
    engine.complete(turn)


def _resume_after_a_save(engine: Engine, processes: Processes) -> None:
    _kill(engine, processes, WHOLE, at="save.sent")
    turn = _resume(engine)
    assert [step.content for step in turn.steps] == ['{"role":"user","content":"the-turn step 0"}']
    engine.complete(turn)


def _find_it_completed(engine: Engine, processes: Processes) -> None:
    _kill(engine, processes, WHOLE, at="complete.sent")
    with pytest.raises(AlreadyHandled):
        _start_again(engine)
    with pytest.raises(AlreadyHandled):
        engine.turns.resume(TURN_ID)
    steps = tuple(f'{{"role":"user","content":"the-turn step {number}"}}' for number in range(2))
    engine.told.append(Told(TURN_ID, "lead", CONVERSATION, WORK_KEY, steps))


def _run_the_work_again(engine: Engine, processes: Processes) -> None:
    _kill(engine, processes, "turn = start(); save(turn); turn.fail('agent_run_failed')", at="end.sent")
    engine.complete(engine.start(CONVERSATION, work_key=WORK_KEY))


def _resume_after_a_take_over(at: str) -> Callable[[Engine, Processes], None]:
    def play(engine: Engine, processes: Processes) -> None:
        assert _node(engine, processes, PARKED).wait() == 0
        _kill(engine, processes, "turns.resume('the-turn')", at=at)
        turn = _resume(engine)
        assert len(turn.steps) == 1
        engine.complete(turn)

    return play


STORIES = {
    "start.recorded": _retry_the_start,
    "start.opened": _retry_the_opened_start,
    "save.sent": _resume_after_a_save,
    "complete.sent": _find_it_completed,
    "end.sent": _run_the_work_again,
    "resume.claimed": _resume_after_a_take_over("resume.claimed"),
    "resume.fenced": _resume_after_a_take_over("resume.fenced"),
}


@pytest.mark.parametrize("point", STORIES)
def test_what_a_killed_node_began_is_finished_once(engine: Engine, processes: Processes, point: str) -> None:
    """(QU-4, CK-2)"""
    STORIES[point](engine, processes)
    engine.commit_all()
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)
    with engine.connected() as connection:
        found = connection.execute(
            "SELECT count(*) FROM turnledger.ledger_event WHERE idempotency_key = 'message:m-1'"
        ).fetchone()
    assert found == (1,)


def test_every_step_of_a_turn_has_a_story() -> None:
    families = ("start", "save", "complete", "end", "resume")
    assert set(STORIES) == {point for point in CRASH_POINTS if point.split(".")[0] in families}


def test_a_node_that_is_killed_in_the_middle_of_a_turn_is_replaced_by_another(
    engine: Engine, processes: Processes
) -> None:
    """(FL-7, CK-6)"""
    node = _node(engine, processes, "turn = start(); save(turn); save(turn); say('saved'); time.sleep(60)")
    node.wait_for_line("saved")
    node.kill()
    turn = _resume(engine)
    assert [step.value["content"] for step in turn.steps] == ["the-turn step 0", "the-turn step 1"]
    engine.complete(turn)
    engine.commit_all()
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)


@pytest.mark.parametrize("then", ["save(turn)", "complete(turn)"])
def test_a_node_that_was_frozen_and_overtaken_is_refused(engine: Engine, processes: Processes, then: str) -> None:
    """(CK-2)"""
    node = _node(
        engine,
        processes,
        f"""
turn = start(); save(turn); say('saved')
while turns.read('the-turn').record.slice == 1:
    time.sleep(0.05)
try:
    {then}
    say('accepted')
except Exception as error:
    say('refused: ' + type(error).__name__)
""",
    )
    node.wait_for_line("saved")
    node.signal(signal.SIGSTOP)
    _lapse(engine)
    turn = engine.turns.resume(TURN_ID)
    node.signal(signal.SIGCONT)
    assert node.wait_for_line("refused") == "refused: StaleTurn"
    assert node.wait() == 0
    assert len(turn.steps) == 1
    engine.complete(turn)
    engine.commit_all()
    check_invariants(engine.database_url, engine.redis_url, told=engine.told)
