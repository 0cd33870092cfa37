"""The live section as processes see it: nodes, a worker and upkeep, one file, no restart."""

import signal
from pathlib import Path

import pytest

from tests.configuring import put_in_place, write_config
from tests.engine import QUICK, start_clock
from tests.ledger_checks import wait_for
from tests.processes import Process, Processes
from tests.stores import Stores, begin
from turnledger.checkpoint import Turns
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Replied
from turnledger.store.retention import read_totals

STARTS = """
import itertools, sys, time
from turnledger.checkpoint import Turns
turns = Turns.from_settings()
for number in itertools.count():
    turn = turns.start(agent=sys.argv[1], conversation="jira:POC-7", triggered_by="Please")
    shown = "shown" if turn.earlier else "nothing"
    turn.abandon()
    print(f"start {number} {shown}", flush=True)
    time.sleep(0.01)
"""
SWEEPS = """
import structlog
from turnledger.workers.worker import run_worker
structlog.configure()  # every line is told
run_worker(queue='upkeep', burst=True)
"""


def environment(stores: Stores, **more: object) -> dict[str, str]:
    urls = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    return {**urls, **{f"TURNLEDGER_{name}": str(value) for name, value in more.items()}}


def starts(process: Process) -> list[str]:
    return [line.split()[2] for line in process.output.splitlines() if line.startswith("start ")]


def next_starts(process: Process) -> set[str]:
    """What starts see that begin from now on: the one that may be under way is left out."""
    begun = len(starts(process)) + 2
    wait_for(lambda: len(starts(process)) >= begun + 3)
    return set(starts(process)[begun:])


def test_every_node_applies_a_change_at_its_next_start(stores: Stores, processes: Processes, tmp_path: Path) -> None:
    """The kill switch, off and on, on two nodes at once; a broken file changes nothing (RT-2)."""
    config = write_config(tmp_path)
    for agent in ("lead", "help"):
        node = stores.node()
        node.start(agent=agent, conversation="jira:POC-7", triggered_by="One").complete(reply=Replied("Done"))
    stores.drain()
    nodes = [
        processes.snippet(STARTS, agent, environment=environment(stores, CONFIG=config)) for agent in ("lead", "help")
    ]
    assert [next_starts(node) for node in nodes] == [{"shown"}] * 2
    write_config(tmp_path, enabled=False)
    assert [next_starts(node) for node in nodes] == [{"nothing"}] * 2
    put_in_place(config, "turn_engine:\n  conversation_session:\n    enabled: yess\n")
    assert [next_starts(node) for node in nodes] == [{"nothing"}] * 2
    config.unlink()
    assert [next_starts(node) for node in nodes] == [{"nothing"}] * 2
    write_config(tmp_path, enabled=True)
    assert [next_starts(node) for node in nodes] == [{"shown"}] * 2
    assert [node.output.count("config_refused") for node in nodes] == [2, 2]


def test_a_worker_trims_by_the_file_as_it_is_at_each_commit(
    stores: Stores, processes: Processes, tmp_path: Path
) -> None:
    """And keeps the last good one (RT-2, RT-3)."""
    config = write_config(tmp_path, max_entries=5)
    processes.command("worker", environment=environment(stores, CONFIG=config))
    node = stores.node()
    kept = []
    for number in (5, 2, None, 3):
        if number is None:
            put_in_place(config, "turn_engine: [")
        else:
            write_config(tmp_path, max_entries=number)
        for _ in range(6):
            turn = begin(node)
            turn.complete(reply=Replied("Done"))
            turn.wait()
        kept.append(len(stores.entries()))
    assert kept == [5, 2, 2, 3]


def test_a_worker_that_has_not_worked_yet_keeps_what_the_file_said_at_its_start(
    stores: Stores, processes: Processes, tmp_path: Path
) -> None:
    """The file breaks before the worker's first job, which does not fail for it (RT-2)."""
    config = write_config(tmp_path, max_entries=2)
    processes.command("worker", environment=environment(stores, CONFIG=config))
    wait_for(lambda: bool(stores.redis.smembers("rq:workers")))
    put_in_place(config, "turn_engine: [")
    node = stores.node()
    for _ in range(3):
        turn = begin(node)
        turn.complete(reply=Replied("Done"))
        turn.wait()
    assert len(stores.entries()) == 2
    assert not stores.redis.exists(stores.keys.failed_registry)


@pytest.mark.parametrize("command", ["worker", "upkeep", "clock"])
def test_no_process_starts_with_a_file_that_is_wrong(
    stores: Stores, processes: Processes, tmp_path: Path, command: str
) -> None:
    """One line names the key by its path, and the exit code is that of a mistake (RT-1)."""
    config = write_config(tmp_path, max_entries="20")
    process = processes.command(command, environment=environment(stores, CONFIG=config))
    assert process.wait() == 2
    assert "turn_engine.conversation_session.max_entries is the text '20'" in process.output
    assert "Traceback" not in process.output


def seed_entries(stores: Stores, number: int) -> None:
    """As many entries of long ago."""
    begin(stores.node()).fail("agent_run_failed")
    stores.execute(
        "INSERT INTO ledger_entry (ledger_id, ordinal, entry_id, turn_id, work_key, completed_at, entry)"
        " SELECT ledger_id, n, gen_random_uuid(), 'old-' || n, '', now() - interval '40 days', '{}'"
        " FROM ledger, generate_series(1, %s) AS n",
        number,
    )


def entries(stores: Stores) -> int:
    return int(stores.rows("SELECT count(*) FROM ledger_entry")[0][0])


def counted(stores: Stores) -> int:
    with stores.database.transaction() as connection:
        return read_totals(connection).entries


def finished(node: Turns, text: str) -> str:
    turn = begin(node, text)
    turn.complete(reply=Replied("Done"))
    return turn.turn_id


def test_the_clock_has_upkeep_sweep_by_the_file_as_it_is_then(
    stores: Stores, processes: Processes, tmp_path: Path
) -> None:
    """Entries first; events from the moment that the file gives them an age (RT-4, RT-2)."""
    config = write_config(tmp_path)
    turn_id = finished(stores.node(), "One")
    stores.drain()
    quick = {name.removeprefix("TURNLEDGER_"): value for name, value in QUICK.items()}
    start_clock(processes, environment(stores, **quick, SWEEP_INTERVAL_S=0.1))
    processes.command("upkeep", environment=environment(stores, CONFIG=config, SWEEP_INTERVAL_S=0.1))
    stores.execute("UPDATE ledger_entry SET completed_at = now() - interval '40 days'")
    stores.execute("UPDATE ledger_turn SET ended_at = now() - interval '40 days'")
    wait_for(lambda: entries(stores) == 0)
    assert stores.types(turn_id) != []
    write_config(tmp_path, event_retention_days=35)
    wait_for(lambda: stores.types(turn_id) == [])


def test_a_long_sweep_lets_others_through_and_goes_on(stores: Stores, processes: Processes) -> None:
    """It goes to the end of its queue, as often as it takes, and leaves nothing behind (RT-4, HV-12)."""
    seed_entries(stores, 30)
    Upkeep(stores.records).request_retention()
    Upkeep(stores.records).request_sweep()
    quick = environment(stores, RETENTION_RUN_S=0.0001, RETENTION_BATCH_ROWS=5)
    process = processes.snippet(SWEEPS, environment=quick)
    assert process.wait() == 0
    assert (entries(stores), counted(stores)) == (0, 30)
    assert process.output.count("retention_done") > 1
    done = [line for line in process.output.splitlines() if "retention_done" in line or "sweep_done" in line]
    assert "sweep_done" in done[1]
    assert not stores.redis.exists("rq:job:retention", "rq:queue:upkeep", "rq:wip:upkeep", "rq:failed:upkeep")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_stopped_or_killed_has_done_what_it_counted(
    stores: Stores, processes: Processes, number: signal.Signals
) -> None:
    """SIGTERM is heard between two batches; another sweep does the rest (RT-4, OP-6)."""
    seed_entries(stores, 3_000)
    Upkeep(stores.records).request_retention()
    slow = environment(stores, RETENTION_RUN_S=60, RETENTION_BATCH_ROWS=1)
    process = processes.command("upkeep", environment=slow)
    wait_for(lambda: entries(stores) < 2_990)
    process.signal(number)
    assert process.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    left = entries(stores)
    assert (left > 0, counted(stores)) == (True, 3_000 - left)
    Upkeep(stores.records).request_retention()
    stores.redis.delete("rq:job:retention", "rq:queue:upkeep")
    Upkeep(stores.records).request_retention()
    assert processes.snippet(SWEEPS, environment=environment(stores)).wait() == 0
    assert (entries(stores), counted(stores)) == (0, 3_000)
