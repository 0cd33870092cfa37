"""The sweep as a whole: in bounded steps, stopped and restarted, twice at once, in trouble, and asked for by jobs."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from rq import Queue
from rq.serializers import JSONSerializer

from tests.processes import Processes
from tests.reconciling import assert_at_rest, change, everything, field, forget, grow_old, lapse, sweep
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Database, LedgerName, Replied, StoreSettings, StoreUnavailable
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.reconciler import Finding, Reconciler
from turnledger.workers.settings import WorkerSettings

OTHER = LedgerName("lead", "jira:POC-8")
UPKEEP_WORKER = """
import sys
from turnledger.workers.worker import run_worker
sys.exit(run_worker(queue="upkeep", burst=True))
"""


@contextmanager
def reconciling(stores: Stores, **settings: Any) -> Iterator[Reconciler]:
    """A reconciler of its own, as another process has one."""
    database = Database(StoreSettings(database_url=stores.database_url))
    made = Reconciler(records=stores.records, database=database, settings=WorkerSettings(**settings))
    try:
        yield made
    finally:
        made.close()
        database.close()


def break_many(stores: Stores, node: Turns, *, number: int) -> dict[str, list[Turn]]:
    """Turns of every kind of trouble that one sweep can end."""
    turns = {kind: [begin(node, ledger=LEAD if each % 2 else OTHER) for each in range(number)] for kind in TROUBLE}
    for kind, each in turns.items():
        for turn in each:
            if kind in ("no job", "not pending", "no record"):
                turn.complete(reply=Replied("Done"))
            TROUBLE[kind](stores, turn)
    return turns


def unlist(stores: Stores, turn: Turn) -> None:
    stores.redis.srem(stores.keys.open(turn.ledger), turn.turn_id)


def lose_job(stores: Stores, turn: Turn) -> None:
    stores.redis.delete(stores.keys.job(turn.turn_id))
    stores.redis.lrem(stores.keys.queue, 0, f"turn-{turn.turn_id}")


def take_off_pending(stores: Stores, turn: Turn) -> None:
    stores.redis.lrem(stores.keys.pending(turn.ledger), 0, turn.turn_id)


def end_in_redis(stores: Stores, turn: Turn) -> None:
    stores.records.end(turn.claim, ledger=turn.ledger, state="failed", fields={"code": ""}, operation="x")


def garble(stores: Stores, turn: Turn) -> None:
    change(stores, turn, epoch="?")


def lose_session(stores: Stores, turn: Turn) -> None:
    forget(stores, turn)
    grow_old(stores, turn)


TROUBLE: dict[str, Callable[[Stores, Turn], None]] = {
    "lapsed": lapse,
    "unlisted": unlist,
    "no job": lose_job,
    "not pending": take_off_pending,
    "no terminal": end_in_redis,
    "unreadable": garble,
    "no record": forget,
    "session": lose_session,
}


def check_mended(stores: Stores, turns: dict[str, list[Turn]]) -> None:
    states = {kind: {stores.state(turn.turn_id) for turn in each} for kind, each in turns.items()}
    runs = {kind: {stores.run(turn.turn_id) for turn in each} for kind, each in turns.items()}
    assert states == {
        "lapsed": {"parked"},
        "unlisted": {"running"},
        "no job": {"completed"},
        "not pending": {"completed"},
        "no terminal": {"failed"},
        "unreadable": {None},
        "no record": {None},
        "session": {None},
    }
    assert (runs["no terminal"], runs["no record"], runs["session"]) == ({"failed"}, {"lost"}, {"lost"})
    for ledger in (LEAD, OTHER):
        terminals = [event.turn_id for event in stores.events(ledger) if event.type.startswith("turn_failed")]
        assert len(terminals) == len(set(terminals))
        pending = [turn.turn_id for kind in ("no job", "not pending") for turn in turns[kind] if turn.ledger == ledger]
        assert sorted(stores.pending(ledger)) == sorted(pending)


def test_all_kinds_of_trouble_are_mended_in_one_sweep(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """And a second one changes nothing (RC-16)."""
    turns = break_many(stores, node, number=2)
    assert len(sweep(reconciler, stores)) == 16
    check_mended(stores, turns)


def test_a_sweep_goes_in_small_steps_can_be_stopped_and_goes_on(stores: Stores, node: Turns) -> None:
    """Whatever the number of records (RC-15)."""
    turns = [begin(node, ledger=LedgerName("lead", f"jira:POC-{number}")) for number in range(60)]
    for turn in turns:
        lapse(stores, turn)
    asked = iter(range(1_000))
    with reconciling(stores, reconcile_page=10) as first:
        report = first.sweep(stopped=lambda: next(asked) >= 30)
    assert (report.whole, 0 < report.done["park"] < 60) == (False, True)
    with reconciling(stores, reconcile_page=10) as second:
        rest = second.sweep()
        assert (rest.whole, rest.done["park"]) == (True, 60 - report.done["park"])
        assert_at_rest(second, stores)


def test_two_sweepers_at_once_do_no_harm(stores: Stores, node: Turns) -> None:
    """Each turn is mended once (RC-16)."""
    turns = break_many(stores, node, number=6)
    together = threading.Barrier(2)
    with reconciling(stores, reconcile_page=20) as first, reconciling(stores, reconcile_page=20) as second:

        def run(reconciler: Reconciler) -> int:
            together.wait()
            return reconciler.sweep().postponed

        with ThreadPoolExecutor(2) as pool:
            postponed = list(pool.map(run, (first, second)))
        if any(postponed):
            first.sweep()
        check_mended(stores, turns)
        assert_at_rest(first, stores)


def test_turns_that_go_on_while_they_are_swept_lose_nothing(stores: Stores, node: Turns) -> None:
    """A sweep acts on nothing that has changed since it was seen (RC-16)."""
    stop = threading.Event()

    def sweep_on() -> None:
        with reconciling(stores) as reconciler:
            while not stop.is_set():
                reconciler.sweep()

    sweeper = threading.Thread(target=sweep_on)
    sweeper.start()
    try:
        turns = [_live(stores, number) for number in range(25)]
        stores.drain()
    finally:
        stop.set()
        sweeper.join()
    assert {stores.run(turn_id) for turn_id in turns} == {"completed"}
    assert [entry["turn_id"] for entry in stores.entries()] == turns[-20:]


def _live(stores: Stores, number: int) -> str:
    turn = begin(stores.node() if number % 5 == 0 else stores._nodes[-1])
    turn.save(steps=[user("one")])
    if number % 3 == 0:
        turn.park(reason="waiting")
        turn = stores._nodes[-1].resume(turn.turn_id)
    turn.complete(reply=Replied("Done"))
    if number % 2:
        stores.drain()
    return turn.turn_id


def test_a_locked_ledger_holds_up_no_other(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """Its turns are left for the next sweep (RC-15, QU-13)."""
    held, free = begin(node), begin(node, ledger=OTHER)
    for turn in (held, free):
        end_in_redis(stores, turn)
    with stores.connection() as connection:
        connection.execute(b"SELECT * FROM ledger WHERE conversation_key = 'jira:POC-7' FOR UPDATE")
        report = reconciler.sweep()
    assert (report.postponed, stores.run(free.turn_id), stores.run(held.turn_id)) == (1, "failed", None)
    assert sweep(reconciler, stores) == {held.turn_id: [("write the terminal", "RC-10")]}


def test_a_turn_that_cannot_be_looked_at_holds_up_no_other(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """A list of its ledger is no list (RC-11)."""
    odd, lapsed = begin(node, ledger=OTHER), begin(node)
    stores.redis.set(stores.keys.pending(OTHER), "no list")
    lapse(stores, odd)
    lapse(stores, lapsed)
    reconciler.sweep()
    assert (stores.state(odd.turn_id), stores.state(lapsed.turn_id)) == ("running", "parked")


def test_a_bad_turn_is_left_to_the_workers_and_its_ledger_to_later(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """They take a group apart and set the bad one aside (RC-6, QU-6)."""
    bad, good = begin(node), begin(node, ledger=OTHER)
    for turn in (bad, good):
        turn.complete(reply=Replied("Done"))
        change(stores, turn, completed_at=1)
    change(stores, bad, entry="no JSON")
    report = reconciler.sweep()
    assert (report.postponed, stores.run(good.turn_id), stores.state(bad.turn_id)) == (1, "completed", "completed")


def test_a_server_that_is_away_ends_the_sweep_and_nothing_else(stores: Stores, node: Turns) -> None:
    """(RC-15)"""
    lapse(stores, begin(node))
    before = everything(stores)
    nowhere = Database(StoreSettings(database_url="postgresql://x@127.0.0.1:1/x"))
    reconciler = Reconciler(records=stores.records, database=nowhere, settings=WorkerSettings())
    with pytest.raises(StoreUnavailable):
        reconciler.sweep()
    reconciler.close()
    nowhere.close()
    assert everything(stores) == before


def test_all_it_did_is_logged_with_ids_and_without_content(stores: Stores, node: Turns, reconciler: Reconciler) -> None:
    """(RC-17, OP-7)"""
    turn = begin(node, "the secret ask")
    lapse(stores, turn)
    with structlog.testing.capture_logs() as logs:
        report = reconciler.sweep()
    assert report.done == {"park": 1}
    (logged,) = [entry for entry in logs if entry["event"] == "turn_reconciled"]
    assert (logged["turn_id"], logged["agent"], logged["conversation"]) == (turn.turn_id, "lead", "jira:POC-7")
    assert (logged["action"], logged["requirement"], logged["outcome"]) == ("park", "RC-4", "done")
    assert "secret" not in str(logs)


def test_a_dry_run_tells_what_would_be_done_and_writes_nothing(
    stores: Stores, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-17)"""
    break_many(stores, node, number=1)
    before, told, done = everything(stores), list[Finding](), list[Finding]()
    report = reconciler.sweep(mode="look", tell=told.append)
    assert everything(stores) == before
    assert {finding.outcome for finding in told} == {"would"}
    assert sum(report.done.values()) == len(told) == 8
    reconciler.sweep(tell=done.append)
    first_actions = {finding.turn_id: finding.action for finding in reversed(done)}
    assert {finding.turn_id: finding.action for finding in told} == first_actions


def test_the_command_line_prints_what_it_would_do_and_then_does_it(
    stores: Stores, node: Turns, processes: Processes
) -> None:
    """Exit code 1 when a person should hear of it (RC-17, OP-2)."""
    turn = begin(node)
    lapse(stores, turn)
    blocked = begin(node)
    change(stores, blocked, delivery="delivering", lease_until=1)
    environment = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    look = processes.command("reconcile", "--dry-run", "--json", environment=environment)
    assert look.wait() == 1
    printed = json.loads(look.output.splitlines()[-1])
    assert (printed["examined"], printed["done"], printed["mode"]) == (2, {"block": 1, "park": 1}, "look")
    assert {finding["turn_id"]: finding["action"] for finding in printed["findings"]} == {
        turn.turn_id: "park",
        blocked.turn_id: "block",
    }
    assert stores.state(turn.turn_id) == "running"
    assert processes.command("reconcile", environment=environment).wait() == 1
    assert stores.state(turn.turn_id) == "parked"
    again = processes.command("reconcile", environment=environment)
    assert again.wait() == 0
    assert "0 actions done" in again.output


def test_the_clock_asks_for_a_sweep_now_and_then_and_a_worker_of_upkeep_does_it(
    stores: Stores, node: Turns, processes: Processes
) -> None:
    """Its jobs do not pile up while upkeep is down (RC-18)."""
    turn = begin(node)
    lapse(stores, turn)
    settings = WorkerSettings(reconcile_s=0.001)
    committer = Committer(records=stores.records, database=stores.database, settings=settings)
    clock = Clock(records=stores.records, database=stores.database, committer=committer, settings=settings)
    for _ in range(3):
        clock.tick()
    queue: Any = stores.redis.lrange("rq:queue:upkeep", 0, -1)
    assert queue == ["reconcile", "retention"]
    _work_off_upkeep(stores, processes)
    assert stores.state(turn.turn_id) == "parked"
    assert not stores.redis.exists("rq:queue:upkeep", "rq:job:reconcile", "rq:failed:upkeep")
    clock.tick()
    assert stores.redis.lrange("rq:queue:upkeep", 0, -1) == ["reconcile"]


def test_every_replacement_has_its_ledger_looked_at(stores: Stores, node: Turns, processes: Processes) -> None:
    """The marks of the engine are found to be missing (HV-12, RC-2)."""
    other, replacing = begin(node), begin(node)
    replacing.compact(replacing.history_to_replace(), steps=[user("what was said")], model="m")
    assert field(stores, other, "replaced_by") == "1"
    change(stores, other, replaced_by="", bootstrap="{}")
    assert len(_upkeep_jobs(stores)) == 1
    _work_off_upkeep(stores, processes)
    assert (field(stores, other, "replaced_by"), field(stores, other, "bootstrap")) == ("1", "")
    assert _upkeep_jobs(stores) == []


def _upkeep_jobs(stores: Stores) -> list[str]:
    return Queue("upkeep", connection=stores.redis, serializer=JSONSerializer).job_ids


def _work_off_upkeep(stores: Stores, processes: Processes, **environment: str) -> None:
    urls = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    worker = processes.snippet(UPKEEP_WORKER, environment={**urls, **environment})
    assert worker.wait() == 0, worker.output
