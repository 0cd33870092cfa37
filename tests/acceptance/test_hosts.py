"""Engine nodes and workers on hosts of their own: network namespaces with cables that are pulled, and put back.

In `make test` the times of the product are cut short, and so is the cut; `make hosts` takes its defaults and 30 s.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rq import Worker

from tests.engine import QUICK, Engine, rq_queue
from tests.gate import Backend, Gate
from tests.hosts.network import Host, Network, NoNamespaces, network
from tests.hosts.servers import open_servers
from tests.ledger_checks import Told, wait_for_invariants, wait_until
from tests.processes import Process, Processes
from tests.soak.recovery import pending_turns
from tests.soak.told import read_acknowledged
from tests.soak.verdict import judge
from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.store import StoreSettings
from turnledger.store.database import Database
from turnledger.store.migrate import migrate
from turnledger.workers.clock import CLOCK_LOCK

ENGINE_HOSTS, WORKER_HOSTS = ("engine-1", "engine-2"), ("worker-1", "worker-2")
HEARD_S = 3.0  # an idle worker gives a sign of life every second
_TICKING = """
SELECT host(client_addr) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objid::bigint = %s::bigint & 4294967295
"""


@dataclass(frozen=True)
class Pace:
    """The product's times, how long a cable is out, and by when others must have what the cut-off host had."""

    settings: dict[str, str]
    cut_s: float
    noticed_s: float  # that the other end is gone
    clock_s: float  # another clock ticks
    taken_over_s: float


SHORT = {
    **QUICK,
    "TURNLEDGER_LEASE_MARGIN_S": "0.5",
    "TURNLEDGER_REDIS_REPLY_TIMEOUT_S": "1",
    "TURNLEDGER_REDIS_CONNECT_TIMEOUT_S": "1",
    "TURNLEDGER_REDIS_RETRIES": "1",
    "TURNLEDGER_DATABASE_CONNECT_TIMEOUT_S": "2",
    "TURNLEDGER_DATABASE_SILENCE_S": "2",
    "TURNLEDGER_TRANSIENT_WAIT_S": "6",
    "SOAK_CONVERSATIONS": "10",
}
# A lease that is shorter than the cut: else nobody takes a turn over.
REAL = {"TURNLEDGER_LEASE_S": "20", "TURNLEDGER_RENEW_S": "5", "SOAK_CONVERSATIONS": "40"}
PACES = {
    "short": Pace(SHORT, cut_s=4, noticed_s=10, clock_s=15, taken_over_s=20),
    "real": Pace(REAL, cut_s=30, noticed_s=20, clock_s=30, taken_over_s=60),
}
paced = pytest.mark.parametrize("pace", ["short", pytest.param("real", marks=pytest.mark.soak)], indirect=True)


@dataclass
class Deployment:
    """Four hosts over two servers."""

    network: Network
    hosts: dict[str, Host]
    engine: Engine
    processes: Processes
    pace: Pace
    spools: Path
    report: Callable[[str], None]
    sizes: dict[str, int] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)

    def run(self, host: str, *arguments: str) -> Process:
        """A command of ours on a host."""
        return self.processes.command(*arguments, environment=self._environment(host), within=self.hosts[host].entering)

    def node(self, module: str, host: str, *arguments: str) -> Process:
        """An engine node on a host."""
        within = self.hosts[host].entering
        return self.processes.module(module, *arguments, environment=self._environment(host), within=within)

    def pool(self, host: str, *, size: int) -> Process:
        self.sizes[host] = size
        return self.run(host, "worker", "--processes", str(size))

    def wait_for_workers(self, *hosts: str) -> None:
        """All workers of the pools of these hosts listen."""
        for host in hosts:
            wait_until(partial(self._assert_listening, host))

    def ticking(self) -> list[str]:
        """The hosts whose clock holds the lock."""
        names = {host.address: name for name, host in self.hosts.items()}
        with self.engine.connected() as connection:
            return [names[row[0]] for row in connection.execute(_TICKING, [CLOCK_LOCK]).fetchall()]

    def cut(self, host: str) -> float:
        self.network.cut(self.hosts[host])
        return time.monotonic()

    def mend(self, host: str, *, cut_at: float) -> None:
        """Put the cable back once it has been out for as long as it must be."""
        time.sleep(max(0.0, cut_at + self.pace.cut_s - time.monotonic()))
        self.network.mend(self.hosts[host])

    def check(self) -> None:
        """Nothing lost, nothing doubled, nothing left."""
        told = [*self.told, *self.engine.told]
        wait_for_invariants(self.engine.database_url, self.engine.redis_url, told=told)

    def _assert_listening(self, host: str) -> None:
        """As many workers of this host as its pool has were heard of just now."""
        with rq_queue(self.engine) as queue:
            workers = Worker.all(queue=queue)
        heard = [worker.last_heartbeat for worker in workers if worker.hostname == host]
        assert sum(at is not None and at.timestamp() > time.time() - HEARD_S for at in heard) == self.sizes[host]

    def _environment(self, host: str) -> dict[str, str]:
        urls = {"TURNLEDGER_DATABASE_URL": self.engine.database_url, "TURNLEDGER_REDIS_URL": self.engine.redis_url}
        return {**urls, **self.pace.settings, "TURNLEDGER_SPOOL_FOLDER": str(self.spools / host)}


@pytest.fixture
def pace(request: pytest.FixtureRequest) -> Pace:
    return PACES[request.param]


@pytest.fixture
def deployment(pace: Pace, processes: Processes, tmp_path: Path, report: Callable[[str], None]) -> Iterator[Deployment]:
    """Two hosts of engine nodes, two of workers, nothing on them yet."""
    with ExitStack() as stack:
        made, hosts = _made_network(stack)
        servers = stack.enter_context(open_servers(made))
        stack.enter_context(processes)  # they end before their hosts do
        database = Database.from_settings(database_url=servers.database_url)
        migrate(database)
        database.close()
        engine = Engine(servers.database_url, servers.redis_url)
        stack.callback(engine.close)
        by_name = {host.name: host for host in hosts}
        yield Deployment(made, by_name, engine, processes, pace, tmp_path, report)


def _made_network(stack: ExitStack) -> tuple[Network, list[Host]]:
    try:
        return stack.enter_context(network(*ENGINE_HOSTS, *WORKER_HOSTS))
    except NoNamespaces as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _said(process: Process, what: str, *, seconds: float = 60.0) -> dict[str, Any]:
    return dict(json.loads(process.wait_for_line(f'"said": "{what}"', seconds=seconds)))


def _told(said: dict[str, Any]) -> Told:
    work_key = "" if said["said"] == "own turn" else said["conversation"].partition(":")[2].partition("-")[0].lower()
    return Told(said["turn_id"], "lead", said["conversation"], work_key, tuple(said["steps"]))


def _all_said(process: Process, what: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.output.splitlines() if line.startswith('{"said"')]
    return [line for line in lines if line["said"] == what]


@paced
def test_an_engine_host_that_was_cut_off_is_refused_what_others_have_taken_over(deployment: Deployment) -> None:
    """(CK-2, CK-11, DL-5, FL-4): and what nobody has taken over it brings along when it is back."""
    deployment.run("worker-2", "clock")
    deployment.pool("worker-1", size=1)
    first = deployment.node("tests.hosts.holding", "engine-1")
    deployment.wait_for_workers("worker-1")
    held = _said(first, "ready")
    first.wait_for_line('"said": "sending"')
    cut_at = deployment.cut("engine-1")
    first.signal(signal.SIGUSR1)
    second = deployment.node("tests.hosts.taking", "engine-2", held["saved"], held["taken"], held["delivering"])
    _said(second, "done")
    _said(first, "cut off")
    deployment.mend("engine-1", cut_at=cut_at)
    first.signal(signal.SIGUSR1)
    assert first.wait() == 0, first.output
    second.signal(signal.SIGUSR1)
    assert second.wait() == 0, second.output

    kept = _said(first, "complete kept while cut off")
    for said in (kept, _said(first, "complete taken while cut off")):
        assert (said["error"], said["spooled"]) == (None, True)
        assert said["seconds"] < deployment.pace.noticed_s
        deployment.report(f"a completion was on disk after {said['seconds']:.1f} s")
    assert _said(second, "resume of a delivery")["error"] == "TurnBlocked"
    assert [_said(first, what)["error"] for what in ("save", "complete")] == ["StaleTurn", "StaleTurn"]
    assert [_said(first, what)["error"] for what in ("deliver", "recover")] == [None, None]
    completed = [*_all_said(second, "own turn"), *_all_said(second, "took over"), kept, _said(first, "deliver")]
    deployment.told += [_told(said) for said in completed]
    deployment.check()
    (refused,) = (deployment.spools / "engine-1").rglob(f"*{held['taken']}*")
    assert refused.suffix == ".refused"


@paced
def test_what_a_worker_host_had_in_hand_when_it_was_cut_off_is_done_by_another(deployment: Deployment) -> None:
    """(FL-7, RC-18, OP-8): Postgres gives its ledgers back, another clock ticks, and it works again when it is back."""
    engine, pace = deployment.engine, deployment.pace
    first, second = deployment.pool("worker-1", size=2), deployment.pool("worker-2", size=1)
    deployment.run("worker-1", "clock")
    wait_until(lambda: _assert_ticking(deployment, "worker-1"))
    deployment.run("worker-2", "clock")
    deployment.wait_for_workers("worker-1", "worker-2")
    with closing(Gate(engine.database_url)) as gate:
        backend = _hold_group(deployment, gate, "worker-1")
        cut_at = deployment.cut("worker-1")
        gate.go()  # its statement ends, and nobody hears of it: the transaction stays open
        others = [engine.play(f"jira:OTHER-{number % 5}") for number in range(10)]
        wait_until(lambda: _assert_committed(engine, others), seconds=pace.noticed_s)
        assert gate.lives(backend)  # they did not wait for it
        _note(deployment, "the turns of other ledgers were committed", since=cut_at)
        wait_until(lambda: _assert_both_workers_noticed(first), seconds=pace.noticed_s)
        wait_until(lambda: _assert_gone(gate, backend), seconds=pace.noticed_s)
        _note(deployment, "Postgres gave the ledger back", since=cut_at)
        wait_until(lambda: _assert_ticking(deployment, "worker-2"), seconds=cut_at + pace.clock_s - time.monotonic())
        _note(deployment, "the other clock ticked", since=cut_at)
        wait_until(
            lambda: _assert_committed(engine, engine.told), seconds=cut_at + pace.taken_over_s - time.monotonic()
        )
        _note(deployment, "what it had in hand was committed", since=cut_at)
    deployment.mend("worker-1", cut_at=cut_at)
    mended_at = time.monotonic()
    deployment.wait_for_workers("worker-1")
    _note(deployment, "with its cable back the pool was whole again", since=mended_at)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0, second.output
    engine.play("jira:LATER-1")
    deployment.check()
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.output


@pytest.mark.soak
@pytest.mark.parametrize("pace", ["short", "real"], indirect=True)
def test_hosts_that_are_cut_off_in_turn_under_load_lose_and_double_nothing(deployment: Deployment) -> None:
    """(QU-3, QU-4, FL-4, FL-7): engine nodes play turns in every way there is, resumes and replacements included."""
    for host in WORKER_HOSTS:
        deployment.pool(host, size=2)
        for command in ("upkeep", "clock"):
            deployment.run(host, command)
    deployment.wait_for_workers(*WORKER_HOSTS)
    files = {host: deployment.spools / f"told-{host}.jsonl" for host in ENGINE_HOSTS}
    nodes = [
        deployment.node("tests.soak.node", host, str(number), str(number), str(path), str(os.getpid()))
        for number, (host, path) in enumerate(files.items())
    ]
    for host in (*ENGINE_HOSTS, *WORKER_HOSTS):
        deployment.mend(host, cut_at=deployment.cut(host))
        time.sleep(deployment.pace.cut_s / 2)  # the load goes on between two cuts
    for node in nodes:
        node.signal(signal.SIGTERM)
    for node in nodes:
        assert node.wait(seconds=120) == 0, node.output
    _judge(deployment, files)


def _judge(deployment: Deployment, files: dict[str, Path]) -> None:
    """What was on the engines' disks is recovered; then everything they were told must be there, once and in order."""
    engine = deployment.engine
    for host in files:
        checkpoint = CheckpointSettings(redis_url=engine.redis_url, spool_folder=deployment.spools / host)
        node = Turns.from_settings(checkpoint=checkpoint, store=StoreSettings(database_url=engine.database_url))
        node.recover()
        node.close()
    wait_until(lambda: _assert_nothing_pending(engine), seconds=120)
    told = read_acknowledged(list(files.values()))
    verdict = judge(told, database=engine.database, records=engine.records)
    deployment.report(f"{verdict.told} turns told, {verdict.committed} committed, {verdict.superseded} superseded")
    assert verdict.right, verdict
    assert verdict.committed > len(told) / 2


def _assert_nothing_pending(engine: Engine) -> None:
    assert not pending_turns(engine.records)


def _note(deployment: Deployment, what: str, *, since: float) -> None:
    deployment.report(f"{what} after {time.monotonic() - since:.1f} s")


def _hold_group(deployment: Deployment, gate: Gate, host: str) -> Backend:
    """Complete turns until this host has a group in hand."""
    for attempt in range(20):
        turn = deployment.engine.start(f"jira:HELD-{attempt}")
        gate.shut(turn.turn_id)
        deployment.engine.complete(turn)
        wait_until(lambda: _assert_held(gate))
        (backend,) = gate.held()
        if backend.address == deployment.hosts[host].address:
            return backend
        gate.go()
        wait_until(lambda: _assert_committed(deployment.engine, deployment.engine.told))
    raise AssertionError(f"{host} got none of 20 groups")


def _assert_both_workers_noticed(pool: Process) -> None:
    """The one that waits for a job, and the one that waits for Postgres: it tries again, or is given up."""
    assert "worker_without_redis" in pool.output
    assert "commit_waits" in pool.output or "process_ended" in pool.output


def _assert_held(gate: Gate) -> None:
    assert gate.held()


def _assert_gone(gate: Gate, backend: Backend) -> None:
    assert not gate.lives(backend)


def _assert_ticking(deployment: Deployment, host: str) -> None:
    assert deployment.ticking() == [host]


def _assert_committed(engine: Engine, turns: Sequence[Told]) -> None:
    assert {engine.state(turn.turn_id) for turn in turns} == {"committed"}
