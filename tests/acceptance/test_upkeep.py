"""The reconciler as a process: killed between two systems, stopped in the middle of a sweep, worked by the clock."""

import signal
from collections.abc import Callable

import pytest

from tests.engine import QUICK, start_clock
from tests.ledger_checks import wait_for
from tests.processes import Processes
from tests.reconciling import assert_at_rest, field, forget, lapse
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import LedgerName, Replied
from turnledger.workers.reconciler import Reconciler

COMPACTS = """
import sys
from turnledger.checkpoint import Turns
from turnledger.store import openai_step
turn = Turns.from_settings().start(agent="lead", conversation="jira:POC-7", triggered_by="Please")
turn.compact(turn.history_to_replace(), steps=[openai_step({"role": "user", "content": "all"})], model="m")
"""


def environment(stores: Stores, **more: str) -> dict[str, str]:
    return {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url, **more}


def two_runs(stores: Stores, node: Turns) -> tuple[Turn, Turn]:
    """Two runs of one work key, the second of them committed."""
    first = begin(node, work_key="k")
    stores.redis.delete(stores.keys.open(LEAD))
    second = begin(node, work_key="k")
    second.complete(reply=Replied("Done"))
    stores.drain()
    return first, second


def abandon(stores: Stores, node: Turns) -> tuple[str, str | None]:
    first, _ = two_runs(stores, node)
    lapse(stores, first)
    return first.turn_id, "abandoned"


def finish_duplicate(stores: Stores, node: Turns) -> tuple[str, str | None]:
    first, _ = two_runs(stores, node)
    first.complete(reply=Replied("Done too"))
    return first.turn_id, "committed"


def lose(stores: Stores, node: Turns) -> tuple[str, str | None]:
    turn = begin(node)
    turn.complete(reply=Replied("Done"))
    forget(stores, turn)
    return turn.turn_id, None


@pytest.mark.parametrize(
    ("point", "trouble"), [("upkeep.ended", abandon), ("upkeep.told", finish_duplicate), ("upkeep.told", lose)]
)
def test_a_reconciler_that_is_killed_between_two_systems_is_followed_by_one_that_finishes(
    stores: Stores,
    node: Turns,
    processes: Processes,
    reconciler: Reconciler,
    point: str,
    trouble: Callable[[Stores, Turns], tuple[str, str | None]],
) -> None:
    """One terminal a turn, whoever wrote it (RC-15, EV-6)."""
    turn_id, state = trouble(stores, node)
    killed = processes.command("reconcile", environment=environment(stores, TURNLEDGER_CRASH_AT=point))
    assert killed.wait() == -signal.SIGKILL
    reconciler.sweep()
    assert_at_rest(reconciler, stores)
    assert (stores.state(turn_id), stores.pending()) == (state, [])
    assert len(stores.types(turn_id)) == 2


def test_open_turns_are_marked_when_the_replacing_node_is_killed(
    stores: Stores, node: Turns, processes: Processes, reconciler: Reconciler
) -> None:
    """Before it could mark them, and before it could ask for a look (HV-12)."""
    turn = begin(node)
    killed = processes.snippet(COMPACTS, environment=environment(stores, TURNLEDGER_CRASH_AT="replace.committed"))
    assert killed.wait() == -signal.SIGKILL
    assert not field(stores, turn, "replaced_by")
    reconciler.sweep()
    assert field(stores, turn, "replaced_by") == "1"
    killed = processes.snippet(COMPACTS, environment=environment(stores, TURNLEDGER_CRASH_AT="upkeep.marked"))
    assert killed.wait() == -signal.SIGKILL
    assert field(stores, turn, "replaced_by") == "2"
    turn.save(steps=[user("still its holder's")])


def test_a_sweep_under_way_ends_at_once_when_its_worker_is_stopped(
    stores: Stores, node: Turns, processes: Processes, reconciler: Reconciler
) -> None:
    """With exit code 0, and the next sweep does the rest (RC-15, OP-6)."""
    turns = [begin(node, ledger=LedgerName("lead", f"jira:POC-{number}")) for number in range(300)]
    for turn in turns:
        lapse(stores, turn)
    worker = processes.command("upkeep", environment=environment(stores, TURNLEDGER_RECONCILE_PAGE="1"))
    Upkeep(stores.records).request_sweep()
    wait_for(lambda: any(stores.state(turn.turn_id) == "parked" for turn in turns))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    parked = sum(stores.state(turn.turn_id) == "parked" for turn in turns)
    assert 0 < parked < 300
    assert not stores.redis.exists("rq:wip:upkeep", "rq:failed:upkeep")
    assert reconciler.sweep().done == {"park": 300 - parked}


def test_the_clock_and_a_worker_of_upkeep_mend_what_nobody_reports(
    stores: Stores, node: Turns, processes: Processes
) -> None:
    """A lapsed turn is parked, again and again, with nobody asking for it (RC-4, RC-18, FL-7)."""
    start_clock(processes, environment(stores, **{**QUICK, "TURNLEDGER_RECONCILE_S": "0.2"}))
    processes.command("upkeep", environment=environment(stores))
    for number in range(2):
        turn = begin(node, ledger=LedgerName("lead", f"jira:POC-{number}"))
        lapse(stores, turn)
        wait_for(lambda turn=turn: stores.state(turn.turn_id) == "parked")  # type: ignore[misc]  # bound at once
