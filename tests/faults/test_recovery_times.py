"""How long recovery takes at the default settings, over real processes; other tests prove the rest, at a quick pace."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine import Engine
from tests.ledger_checks import check_all_there, check_ledgers, wait_until
from tests.processes import Process, Processes
from tests.recovering import Recovery
from tests.stores import user
from turnledger.checkpoint import AlreadyRunning, Turn
from turnledger.workers.embedded import EmbeddedServers

PROMISED_S = 60.0
PATIENCE_S = 180.0
CAUGHT_UP_S = 30.0
NODE = """
import time
from turnledger.checkpoint import Turns
from turnledger.store import Step
turns = Turns.from_settings()
def send():
    print("sending", turn.turn_id, flush=True)
    time.sleep(600)
turn = turns.start(agent="lead", conversation="jira:{name}-1", triggered_by="Please")
turn.save(steps=[Step.of(role="user", content={{"role": "user", "content": "saved"}})])
print("saved", turn.turn_id, flush=True)
{then}
"""


@pytest.fixture
def environment(engine: Engine) -> dict[str, str]:
    """What a process is told: the servers, and nothing of how quick to be."""
    return {"TURNLEDGER_DATABASE_URL": engine.database_url, "TURNLEDGER_REDIS_URL": engine.redis_url}


def test_what_killed_processes_left_is_taken_over_within_a_minute(
    engine: Engine, processes: Processes, environment: dict[str, str], recovery: Recovery
) -> None:
    """A worker with a turn in hand, a node in the middle of one, a node that delivers (FL-7, DL-5)."""
    for command in ("clock", "upkeep"):
        processes.command(command, environment=environment)
    worker = processes.command("worker", environment={**environment, "TURNLEDGER_CRASH_AT": "commit.locked"})
    holder = processes.snippet(NODE.format(name="HELD", then="time.sleep(600)"), environment=environment)
    sender = processes.snippet(
        NODE.format(name="SENT", then="turn.deliver(send, reply='Hello')"), environment=environment
    )
    held, sent = _told(holder, "saved"), _told(sender, "sending")
    in_hand = engine.play("jira:POC-1")
    worker.wait()
    for node in (holder, sender):
        node.kill()
    killed_at = time.monotonic()
    processes.command("worker", environment=environment)
    ends: dict[str, Callable[[], object]] = {
        "the turn that a killed worker had in hand is committed": lambda: _assert_state(engine, in_hand.turn_id),
        "the turn of a killed node may be resumed": lambda: _assert_taken_over(engine, held),
        "the turn of a node killed while it delivered is blocked": lambda: _assert_blocked(engine, sent),
    }
    while ends and time.monotonic() - killed_at < PATIENCE_S:
        for what, check in list(ends.items()):
            if _holds(check):
                recovery.note(f"{what}: {time.monotonic() - killed_at:.1f} s")
                del ends[what]
        time.sleep(0.2)
    assert not ends
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def test_after_an_outage_everything_goes_on_within_seconds(
    engine: Engine,
    private_servers: EmbeddedServers,
    processes: Processes,
    environment: dict[str, str],
    recovery: Recovery,
) -> None:
    """Of Postgres, of Redis, of both, and a Redis that comes back empty (FL-1 to FL-4, FL-6, QU-7)."""
    for command in ("clock", "upkeep", "worker"):
        processes.command(command, *(["--processes", "1"] if command == "worker" else []), environment=environment)
    engine.play()
    wait_until(lambda: _assert_there(engine), seconds=CAUGHT_UP_S)
    postgres, redis = private_servers.postgres, private_servers.redis
    running, saved = engine.start("jira:POC-2"), engine.start("jira:POC-3")
    postgres.stop()
    flagged = engine.start("jira:POC-4")
    assert flagged.history_error is not None
    for turn in (running, flagged):
        engine.complete(turn)
    time.sleep(5)
    postgres.start()
    with recovery.of("Postgres is back after 5 s, what was pending is committed"):
        wait_until(lambda: _assert_there(engine), seconds=CAUGHT_UP_S)
    redis.stop()
    saved.save(steps=[user("unsaved")])
    assert saved.checkpoint_error is not None
    unsaved = engine.start("jira:POC-5")
    with recovery.of("a completion without Redis is committed by its node"):
        engine.complete(unsaved)
    _assert_there(engine)
    redis.start()
    with recovery.of("Redis is back, the next save brings what is missing, a turn is committed through the queue"):
        wait_until(lambda: _assert_saved(saved), seconds=CAUGHT_UP_S)
        engine.complete(saved)
        wait_until(lambda: _assert_there(engine), seconds=CAUGHT_UP_S)
    spooled = engine.start("jira:POC-6")
    postgres.stop()
    redis.stop()
    engine.complete(spooled)
    assert spooled.spooled is not None
    redis.start()
    postgres.start()
    with recovery.of("both are back, the next start has replayed the spool"):
        engine.play("jira:POC-7")
    wait_until(lambda: _assert_there(engine), seconds=CAUGHT_UP_S)
    lost = engine.start("jira:POC-8")
    engine.complete(lost)
    engine.redis.flushall()
    with recovery.of("Redis has lost a completion whose process lives; it is committed"):
        wait_until(lambda: _assert_there(engine), seconds=CAUGHT_UP_S)
    check_ledgers(engine.database_url, engine.redis_url, told=engine.told)


def _told(node: Process, word: str) -> str:
    return node.wait_for_line(word).split()[1]


def _holds(check: Callable[[], object]) -> bool:
    try:
        check()
    except (AssertionError, AlreadyRunning):
        return False
    return True


def _assert_state(engine: Engine, turn_id: str) -> None:
    assert engine.state(turn_id) == "committed"


def _assert_taken_over(engine: Engine, turn_id: str) -> None:
    turn: Turn = engine.turns.resume(turn_id)
    assert len(turn.steps) == 1
    engine.complete(turn)


def _assert_blocked(engine: Engine, turn_id: str) -> None:
    blocked: Any = engine.redis.hget(engine.keys.record(turn_id), "blocked")
    assert blocked == "delivery_unknown"


def _assert_saved(turn: Turn) -> None:
    turn.save()
    assert turn.checkpoint_error is None


def _assert_there(engine: Engine) -> None:
    check_all_there(engine.database_url, told=engine.told)
