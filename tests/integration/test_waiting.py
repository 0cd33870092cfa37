"""Waiting for the commit, and nodes that fork."""

import threading

import pytest

from tests.processes import PATIENCE_S, Processes
from tests.stores import LEAD, Stores, begin
from turnledger.checkpoint import TurnNotFound, Turns
from turnledger.store import Replied


def test_wait_returns_once_the_turn_is_history(stores: Stores, node: Turns) -> None:
    """Not before its commit (QU-1)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    worker = threading.Timer(0.2, stores.drain)
    worker.start()
    turn.wait(timeout_s=PATIENCE_S)
    assert stores.run(turn.turn_id) == "completed"
    worker.join()


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 0.05])
def test_wait_says_what_the_turn_is_when_its_time_is_over(stores: Stores, node: Turns, timeout_s: float) -> None:
    """Pending, rejected, or not completed at all (QU-1)."""
    turn = begin(node)
    with pytest.raises(TimeoutError, match="is running"):
        turn.wait(timeout_s=timeout_s)
    turn.complete(reply=Replied("Done"))
    with pytest.raises(TimeoutError, match="is completed"):
        turn.wait(timeout_s=timeout_s)
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="no")
    with pytest.raises(TimeoutError, match="is rejected"):
        turn.wait(timeout_s=timeout_s)


def test_wait_for_a_turn_that_redis_has_forgotten_is_not_endless(stores: Stores, node: Turns) -> None:
    """It says so (QU-1)."""
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    stores.redis.flushall()
    with pytest.raises(TurnNotFound):
        turn.wait()


FORK = """
import os, time
from turnledger.checkpoint import Turns
from turnledger.store import Replied
turns = Turns.from_settings()
def run(agent):
    turn = turns.start(agent=agent, conversation="jira:1", triggered_by="x")
    time.sleep(4)  # longer than a lease: somebody has to renew it
    other = Turns.from_settings()
    try:
        other.resume(turn.turn_id)
        print("LOST", agent)
    except Exception as error:
        print(type(error).__name__, agent)
    turn.complete(reply=Replied("Done"))
mine = turns.start(agent="parent", conversation="jira:0", triggered_by="x")
pid = os.fork()
if pid == 0:
    run("child")
    os._exit(0)
run("parent")
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
mine.complete(reply=Replied("Done"))
print("code", code)
"""


def test_a_node_works_in_the_child_of_a_fork(stores: Stores, processes: Processes) -> None:
    """With connections and a lease thread of its own; the parent's turns stay its own (CK-11, DESIGN 4)."""
    environment = {
        "TURNLEDGER_DATABASE_URL": stores.database_url,
        "TURNLEDGER_REDIS_URL": stores.redis_url,
        "TURNLEDGER_LEASE_S": "3",
        "TURNLEDGER_RENEW_S": "0.1",
        "TURNLEDGER_LEASE_MARGIN_S": "0.5",
    }
    process = processes.snippet(FORK, environment=environment)
    assert process.wait() == 0, process.output
    assert "code 0" in process.output
    assert process.output.count("AlreadyRunning") == 2, process.output
    stores.drain()
    assert len(stores.entries()) == 3
