"""Commands that run until they are stopped: the local stack, workers and the clock, with real signals."""

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.ledger_checks import wait_for
from tests.processes import Process, Processes, lives
from tests.stores import LEAD, Stores, assistant, begin, user
from turnledger.store import Replied
from turnledger.workers.clock import CLOCK_LOCK
from turnledger.workers.embedded import running_servers

# A command in a folder of its own: there it finds, or does not find, the `turnledger up` of that folder.
IN_FOLDER = """
import os, sys
os.chdir(sys.argv.pop(1))
from turnledger.workers.cli import main
main()
"""


def _environment(stores: Stores) -> dict[str, str]:
    return {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}


def _listens(stores: Stores, *, number: int) -> Callable[[], bool]:
    return lambda: stores.redis.scard("rq:workers:commits") == number


def _complete(stores: Stores, number: int) -> str:
    turn = begin(stores.node(), f"ask {number}", work_key=f"k{number}")
    turn.complete(reply=Replied("done"), steps=[user(f"ask {number}"), assistant("done")])
    return turn.turn_id


def _up(processes: Processes, folder: Path, *arguments: str) -> Process:
    process = processes.snippet(IN_FOLDER, str(folder), "up", "--workers", "1", *arguments)
    process.wait_for_line("Ctrl-C stops it")
    return process


def _here(processes: Processes, folder: Path, *arguments: str) -> Process:
    process = processes.snippet(IN_FOLDER, str(folder), *arguments)
    process.wait()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_the_stack_is_found_by_commands_and_stops_cleanly(
    processes: Processes, folder: Path, number: signal.Signals
) -> None:
    """OP-1"""
    up = _up(processes, folder)
    found = running_servers(folder / ".turnledger")
    assert found is not None
    assert f"export TURNLEDGER_DATABASE_URL={found.database_url}" in up.output
    assert f"export TURNLEDGER_REDIS_URL={found.redis_url}" in up.output
    assert "no ledger" in _here(processes, folder, "show", "lead", "jira:POC-7").output
    wait_for(lambda: '"workers":1' in _here(processes, folder, "status", "--json").output)
    children = psutil.Process(up.pid).children(recursive=True)
    up.signal(number)
    assert up.wait() == 0
    assert up.output.endswith("Stopped.\n")
    assert not [child for child in children if lives(child)]
    assert running_servers(folder / ".turnledger") is None


def test_a_second_up_in_the_same_folder_is_told_so(processes: Processes, folder: Path) -> None:
    """OP-1"""
    first = _up(processes, folder)
    second = _here(processes, folder, "up")
    assert second.wait() == 1
    assert second.output.startswith("turnledger: another `turnledger up` runs in")
    assert len(second.output.splitlines()) == 1
    first.signal(signal.SIGINT)
    assert first.wait() == 0


def test_what_up_stored_is_there_the_next_time(processes: Processes, folder: Path) -> None:
    """OP-1"""
    chats = folder / "chats.jsonl"
    chats.write_text(json.dumps({"id": "a", "messages": [{"role": "user", "content": "hello"}]}))
    up = _up(processes, folder)
    servers = running_servers(folder / ".turnledger")
    assert servers is not None
    urls = {"TURNLEDGER_DATABASE_URL": servers.database_url, "TURNLEDGER_REDIS_URL": servers.redis_url}
    replay = processes.command("replay", str(chats), "--json", environment=urls)
    assert replay.wait() == 0, replay.output
    up.signal(signal.SIGINT)
    assert up.wait() == 0
    again = _up(processes, folder)
    assert json.loads(_here(processes, folder, "status", "--json").output)["turns"] == 1
    again.signal(signal.SIGINT)
    assert again.wait() == 0


def test_workers_of_a_killed_up_do_not_stay_behind(processes: Processes, folder: Path) -> None:
    """OP-8"""
    up = _up(processes, folder)
    children = psutil.Process(up.pid).children(recursive=True)
    assert len(children) >= 3
    up.kill()
    wait_for(lambda: not [child for child in children if lives(child)])


def _children(process: Process) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if lives(child)]


def _redis_of(up: Process) -> psutil.Process:
    found = []
    for process in psutil.Process(up.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Postgres starts and ends processes all the time
            found += [process] if process.name().startswith("redis-server") else []
    (redis,) = found
    return redis


def test_up_ends_loudly_when_a_server_ends(processes: Processes, folder: Path) -> None:
    up = _up(processes, folder)
    _redis_of(up).kill()
    assert up.wait() == 1
    assert f"Redis has ended; its log is {(folder / '.turnledger' / 'redis' / 'server.log').resolve()}" in up.output
    assert "Start `turnledger up` again" in up.output


def test_without_servers_both_ways_to_name_them_are_told(processes: Processes, folder: Path) -> None:
    process = _here(processes, folder, "status")
    assert process.wait() == 2
    assert "TURNLEDGER_DATABASE_URL" in process.output
    assert "turnledger up" in process.output


def test_a_worker_commits_and_ends_with_0_at_sigterm(processes: Processes, stores: Stores) -> None:
    """OP-6"""
    worker = processes.command("worker", environment=_environment(stores))
    turn_id = _complete(stores, 1)
    wait_for(lambda: stores.state(turn_id) == "committed")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert stores.redis.scard("rq:workers:commits") == 0


@pytest.mark.parametrize("processes_wanted", [1, 2])
def test_a_burst_ends_when_the_queue_is_empty(processes: Processes, stores: Stores, processes_wanted: int) -> None:
    turn_ids = [_complete(stores, number) for number in range(5)]
    worker = processes.command(
        "worker", "--burst", "--processes", str(processes_wanted), environment=_environment(stores)
    )
    assert worker.wait() == 0, worker.output
    assert {stores.run(turn_id) for turn_id in turn_ids} == {"completed"}


def test_several_workers_are_kept_alive_and_stop_at_one_sigterm(processes: Processes, stores: Stores) -> None:
    """OP-8"""
    worker = processes.command("worker", "--processes", "2", environment=_environment(stores))
    wait_for(_listens(stores, number=2))
    first, second = psutil.Process(worker.pid).children()
    first.kill()
    wait_for(lambda: not lives(first))
    wait_for(lambda: len(_children(worker)) == 2)
    children = _children(worker)
    assert second in children
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not [child for child in children if lives(child)]


def test_the_clock_commits_what_has_no_job_and_ends_with_0_at_sigterm(processes: Processes, stores: Stores) -> None:
    """Its office is free at once for the next one (FL-7, QU-12, OP-6)."""
    turn_id = _complete(stores, 1)
    stores.redis.delete(stores.keys.queue, stores.keys.job(turn_id))
    quick = {"TURNLEDGER_OVERDUE_S": "0.1", "TURNLEDGER_SWEEP_S": "0.2"}
    clock = processes.command("clock", environment={**_environment(stores), **quick})
    wait_for(lambda: stores.state(turn_id) == "committed")
    clock.signal(signal.SIGTERM)
    assert clock.wait() == 0
    assert stores.rows("SELECT pg_try_advisory_lock(%s)", CLOCK_LOCK) == [(True,)]


def test_logs_of_workers_tell_no_content(processes: Processes, stores: Stores) -> None:
    """OP-7: also of a turn that Postgres refuses, whose error would quote it."""
    secret = "a marker in every text"
    turn = begin(stores.node(), secret, work_key="k")
    turn.complete(reply=Replied(secret), steps=[user(secret), assistant(secret)])
    stores.execute("ALTER TABLE ledger_entry ADD CONSTRAINT refused CHECK (turn_id <> %s)" % repr(turn.turn_id))  # noqa: UP031
    worker = processes.command(
        "worker", "--burst", environment={**_environment(stores), "TURNLEDGER_LOG_LEVEL": "DEBUG"}
    )
    assert worker.wait() == 0
    assert stores.state(turn.turn_id) == "rejected"
    assert turn.turn_id in worker.output
    assert LEAD.conversation in worker.output
    assert secret not in worker.output
    assert "Traceback" not in worker.output
