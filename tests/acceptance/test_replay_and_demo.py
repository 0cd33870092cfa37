"""replay and demo as a person runs them."""

import json
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis import Redis

from tests.configuring import write_config
from tests.ledger_checks import wait_for
from tests.processes import ROOT, Process, Processes
from tests.stores import Stores
from turnledger.checkpoint.spool import Spool
from turnledger.store import LedgerName
from turnledger.store.commit import CompletedTurn
from turnledger.store.deployment import Home
from turnledger.workers.embedded import EmbeddedServers

AIRLINE = ROOT.parent / "shared" / "data" / "airline.jsonl"
REPLAYED_S = 300.0  # a whole replay, however busy the machine
SAMPLE = str(files("turnledger.workers") / "sample" / "conversations.jsonl")


@pytest.fixture
def urls(database_url: str, redis_url: str) -> dict[str, str]:
    return {"TURNLEDGER_DATABASE_URL": database_url, "TURNLEDGER_REDIS_URL": redis_url}


def _result(process: Process) -> dict[str, Any]:
    """The JSON object among what was printed; logs on standard error may be JSON too."""
    (line,) = [line for line in process.output.splitlines() if '"turns_per_second"' in line]
    found: dict[str, Any] = json.loads(line)
    return found


def _nothing_is_left(folder: Path, *, kept: Collection[str] = ()) -> bool:
    """No file but of these kinds, and no process that works there: others on this machine may play the same file."""
    running = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline", "environ"])
        if any(str(folder) in word for word in process.info["cmdline"] or [])
        or (process.info["environ"] or {}).get("TMPDIR") == str(folder)
    ]
    return not running and all(path.suffix in kept for path in folder.iterdir())


@pytest.mark.skipif(not AIRLINE.exists(), reason="the conversations of an airline's agent are not here")
def test_two_hundred_real_conversations_are_played_by_several_processes(processes: Processes, folder: Path) -> None:
    """QU-3, QU-4, BL-9, EV-4, EN-11"""
    replay = processes.command(
        "replay", str(AIRLINE), "--nodes", "2", "--workers", "2", "--json", environment={"TMPDIR": str(folder)}
    )
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output
    result = _result(replay)
    rates = ("turns_per_second", "commit_ms_p50", "commit_ms_p99", "commit_ms_max")
    assert all(result.pop(rate) > 0 for rate in rates)
    assert result == {
        "conversations": 200,
        "turns": 1490,
        "completed": 1490,
        "committed": 1490,
        "lost": 0,
        "doubled": 0,
        "problems": [],
        "right": True,
    }
    assert _nothing_is_left(folder)


def test_servers_of_its_own_are_given_nothing_that_this_host_has_spooled(
    processes: Processes, folder: Path, tmp_path: Path
) -> None:
    """It belongs to other servers, and waits for them (FL-4)."""
    when, entry_id = "2026-11-30T12:00:00.000Z", "0c1b6d2e-8f7a-4b53-8a43-0e1d2c3b4a59"
    turn = CompletedTurn("t1", LedgerName("lead", "jira:POC-7"), "", 1, when, when, entry_id, "{}", "done")
    spooled = Spool(tmp_path / "spool").write(turn, built_on=[], home=Home("at-0123456789abcdef"))
    replay = processes.command("replay", SAMPLE, "--json", environment={"TMPDIR": str(folder)})
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output
    assert spooled.exists()
    assert _nothing_is_left(folder)


def test_a_file_may_be_replayed_into_the_same_database_again(processes: Processes, urls: dict[str, str]) -> None:
    for _ in range(2):
        replay = processes.command("replay", SAMPLE, "--json", environment=urls)
        assert replay.wait(seconds=REPLAYED_S) == 0, replay.output
        assert _result(replay)["committed"] == 80
    stores = Stores(database_url=urls["TURNLEDGER_DATABASE_URL"], redis_url=urls["TURNLEDGER_REDIS_URL"])
    assert stores.rows("SELECT count(*), sum(turn_count) FROM ledger") == [(24, 160)]
    stores.close()


def test_more_turns_than_entries_are_kept_are_played_right(
    processes: Processes, urls: dict[str, str], tmp_path: Path
) -> None:
    """RT-3, BL-5: trimmed ones are counted in the block."""
    environment = {**urls, "TURNLEDGER_CONFIG": str(write_config(tmp_path, max_entries=2))}
    replay = processes.command("replay", SAMPLE, "--json", environment=environment)
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output


def test_blocks_that_are_full_are_played_right(processes: Processes, urls: dict[str, str]) -> None:
    """BL-5: what is left out is counted in the block."""
    replay = processes.command("replay", SAMPLE, "--json", environment={**urls, "TURNLEDGER_BLOCK_BYTES": "1200"})
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output


def test_workers_that_run_already_can_do_the_work(processes: Processes, urls: dict[str, str]) -> None:
    processes.command("worker", environment=urls)
    replay = processes.command("replay", SAMPLE, "--workers", "0", environment=urls)
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output
    assert "turns committed" in replay.output


def test_a_turn_that_postgres_refuses_makes_the_replay_wrong(processes: Processes, urls: dict[str, str]) -> None:
    stores = Stores(database_url=urls["TURNLEDGER_DATABASE_URL"], redis_url=urls["TURNLEDGER_REDIS_URL"])
    stores.execute("ALTER TABLE ledger_entry ADD CONSTRAINT refused CHECK (ordinal < 6)")
    stores.close()
    replay = processes.command("replay", SAMPLE, "--json", environment=urls)
    assert replay.wait(seconds=REPLAYED_S) == 1
    result = _result(replay)
    assert (result["right"], result["committed"], result["lost"]) == (False, 60, 20)
    assert "turn_rejected" in replay.output  # the log of the worker


def test_a_postgres_that_is_killed_under_a_replay_costs_nothing_but_time(
    processes: Processes, private_servers: EmbeddedServers, tmp_path: Path
) -> None:
    """FL-1, QU-7: nothing lost, nothing twice, in order, and every block that could be read is right."""
    file = _long_file(tmp_path)
    urls = {
        "TURNLEDGER_DATABASE_URL": private_servers.database_url,
        "TURNLEDGER_REDIS_URL": private_servers.redis_url,
    }
    replay = processes.command("replay", str(file), "--nodes", "2", "--workers", "2", "--json", environment=urls)
    with Redis.from_url(private_servers.redis_url) as client:
        wait_for(lambda: int(str(client.dbsize())) > 300)
    private_servers.postgres.kill()
    time.sleep(2)
    private_servers.postgres.start()
    assert replay.wait(seconds=REPLAYED_S) == 0, replay.output
    assert _result(replay)["committed"] == 800


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting", "starting a node", "playing"])
def test_an_interrupted_replay_leaves_nothing_behind(
    processes: Processes, folder: Path, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    replay = processes.command("replay", str(_long_file(tmp_path)), environment={"TMPDIR": str(folder)})
    wait_for(lambda: any(folder.iterdir()))
    if moment != "starting":
        wait_for(lambda: _plays(replay.pid), pause_s=0)
    if moment == "playing":
        time.sleep(1)
    replay.signal(number)
    assert replay.wait() == 128 + number
    wait_for(lambda: _nothing_is_left(folder))


def test_an_interrupted_demo_leaves_nothing_behind(processes: Processes, folder: Path) -> None:
    """And says so by its code (OP-6)."""
    demo = processes.command("demo", environment={"TMPDIR": str(folder)})
    wait_for(lambda: _plays(demo.pid))
    demo.signal(signal.SIGTERM)
    assert demo.wait() == 128 + signal.SIGTERM
    wait_for(lambda: _nothing_is_left(folder))


def _long_file(folder: Path) -> Path:
    """The sample ten times, so that nothing is through before it is broken off."""
    file = folder / "chats.jsonl"
    chats = [json.loads(line) for line in Path(SAMPLE).read_text().splitlines()]
    copies = [{**chat, "id": f"{chat['id']}-{number}"} for number in range(10) for chat in chats]
    file.write_text("\n".join(json.dumps(chat) for chat in copies))
    return file


def _plays(process_id: int) -> bool:
    return any("node" in _words(process) for process in psutil.Process(process_id).children())


def _words(process: psutil.Process) -> list[str]:
    """Its command line; none of a process that has just ended."""
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def test_a_killed_replay_leaves_no_process_behind(processes: Processes, folder: Path) -> None:
    """Its data goes with its servers; only its log stays."""
    replay = processes.command("replay", SAMPLE, environment={"TMPDIR": str(folder)})
    wait_for(lambda: _plays(replay.pid))
    replay.kill()
    wait_for(lambda: _nothing_is_left(folder, kept={".log"}))


def test_the_demo_kills_a_worker_and_loses_nothing(processes: Processes, folder: Path) -> None:
    """FL-7, QU-4"""
    demo = processes.command("demo", "--rounds", "6", environment={"TMPDIR": str(folder)})
    assert demo.wait(seconds=REPLAYED_S) == 0, demo.output
    said = " ".join(demo.output.split())
    for phrase in (
        "is killed with SIGKILL. It had turn",
        "is committed all the same",
        "## Earlier in this conversation",
        "Triggered by: Any news?",
        "turns completed 480",
        "turns committed 480",
        "lost 0",
        "doubled 0",
        "Every turn is there once, in order and unchanged.",
    ):
        assert phrase in said, demo.output
    assert _nothing_is_left(folder)
