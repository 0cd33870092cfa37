"""Processes whose clock is an hour ahead or behind."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from tests.recovering import Recovery
from turnledger.checkpoint import AlreadyRunning, Turn

HOUR_S = 3_600.0
NEAR_S = 120.0  # no time that is told may be further off: the test takes less
LEASE_S = 3.0  # a busy machine may keep a node from renewing for a second or two
SHIFTED = Path(__file__).parents[2] / "shifted_clock"
NODE = """
import time
from turnledger.checkpoint import Turns
from turnledger.store import NoReplyOwed, Step
turns = Turns.from_settings()
def step(text):
    return Step.of(role="user", content={"role": "user", "content": text})
done = turns.start(agent="lead", conversation="jira:POC-1", triggered_by="Please", work_key="w")
done.complete(reply=NoReplyOwed(), steps=[step("done")])
held = turns.start(agent="lead", conversation="jira:POC-1", triggered_by="Please")
held.save(steps=[step("saved")])
print("done", done.turn_id)
print("held", held.turn_id)
print("time", time.time(), flush=True)
time.sleep(600)
"""


@pytest.fixture(params=[HOUR_S, pytest.param(-HOUR_S, marks=pytest.mark.faults)], ids=["ahead", "behind"])
def shifted(request: pytest.FixtureRequest, engine: Engine) -> dict[str, str]:
    """The environment of a process whose clock is wrong by so much."""
    path = os.pathsep.join([str(SHIFTED), os.environ.get("PYTHONPATH", "")])
    quick = {"TURNLEDGER_LEASE_S": str(LEASE_S), "TURNLEDGER_RENEW_S": str(LEASE_S / 6)}
    return engine.environment(PYTHONPATH=path, SHIFTED_CLOCK_S=str(request.param), **quick)


def test_a_wrong_clock_of_a_node_a_worker_and_the_clock_changes_nothing(
    engine: Engine, processes: Processes, shifted: dict[str, str], recovery: Recovery
) -> None:
    """Leases, order, and every time that is stored are right: none is taken from a host (CK-11, QU-3, FL-7, OP-3)."""
    node = processes.snippet(NODE, environment=shifted)
    told = float(node.wait_for_line("time").split()[1])
    assert abs(told - time.time() - float(shifted["SHIFTED_CLOCK_S"])) < NEAR_S
    done, held = (node.wait_for_line(word).split()[1] for word in ("done", "held"))
    worker, clock = start_worker(processes, shifted), start_clock(processes, shifted)
    wait_until(lambda: _assert_state(engine, done, "committed"))
    renewed_until = time.monotonic() + 1.5 * LEASE_S
    while time.monotonic() < renewed_until:
        with pytest.raises(AlreadyRunning):
            engine.turns.resume(held)
        time.sleep(LEASE_S / 6)
    node.kill()
    with recovery.of(f"a node killed whose clock is off, its lease of {LEASE_S:g} s included"):
        wait_until(lambda: _assert_taken_over(engine, held))
    engine.play("jira:POC-1")
    wait_for_invariants(engine.database_url, engine.redis_url, told=engine.told)
    assert _order(engine) == [done, *(turn.turn_id for turn in engine.told)]
    assert _furthest_s(engine) < NEAR_S
    assert worker.running
    assert clock.running


def test_doctor_says_that_the_clock_of_its_host_is_wrong(processes: Processes, shifted: dict[str, str]) -> None:
    """OP-3"""
    doctor = processes.command("doctor", "--json", environment=shifted)
    assert doctor.wait() == 1
    checks = {check["check"]: check for check in json.loads(doctor.output)["checks"]}
    assert checks["clocks"]["verdict"] == "wrong", checks["clocks"]


def _assert_state(engine: Engine, turn_id: str, state: str) -> None:
    assert engine.state(turn_id) == state


def _assert_taken_over(engine: Engine, turn_id: str) -> None:
    try:
        turn: Turn = engine.turns.resume(turn_id)
    except AlreadyRunning as error:
        raise AssertionError(str(error)) from error
    assert len(turn.steps) == 1
    engine.complete(turn)


def _order(engine: Engine) -> list[str]:
    with engine.connected() as connection:
        rows = connection.execute("SELECT turn_id FROM turnledger.ledger_entry ORDER BY ordinal")
        return [row[0] for row in rows]


def _furthest_s(engine: Engine) -> float:
    """How far the stored time is from Postgres' that is furthest from it."""
    with engine.connected() as connection:
        ((furthest,),) = connection.execute(
            """
            SELECT max(abs(extract(epoch FROM now() - moment)))::float8 FROM (
                SELECT unnest(ARRAY[occurred_at, recorded_at]) FROM turnledger.ledger_event
                UNION ALL SELECT completed_at FROM turnledger.ledger_entry
                UNION ALL SELECT unnest(ARRAY[started_at, ended_at]) FROM turnledger.ledger_turn
                UNION ALL SELECT unnest(ARRAY[created_at, active_at]) FROM turnledger.ledger
            ) AS stored (moment)
            """
        )
        return float(furthest)
