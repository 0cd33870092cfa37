"""`turnledger doctor` over real servers: each thing is broken, found with what to do, and mended."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from rq import Queue

from tests.access import redis_user
from tests.ledger_checks import wait_until
from tests.processes import Processes
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Replied
from turnledger.workers.cli.doctor import run_doctor
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.clock import CLOCK_LOCK
from turnledger.workers.doctor import CHECKS, Facts, Result, Verdict, examine, gather
from turnledger.workers.doctor.facts import Asked
from turnledger.workers.embedded import EmbeddedServers

Doctor = Callable[[], dict[str, Result]]
ALWAYS = {"clock", "workers"}  # no process runs in these tests


pytestmark = pytest.mark.usefixtures("named_servers")


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs it, and gives what came of each check."""

    def run() -> dict[str, Result]:
        code = run_doctor(role="worker", output="json")
        results = {
            each["check"]: Result(**{**each, "verdict": Verdict(each["verdict"])})
            for each in json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]
        }
        verdicts = {result.verdict for result in results.values()}
        assert code == (3 if Verdict.AWAY in verdicts else int(Verdict.WRONG in verdicts))
        return results

    return run


@pytest.fixture
def configure(stores: Stores) -> Iterator[Callable[[str, str], None]]:
    """Sets what Redis is configured with; as it was, afterwards."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        found: Any = stores.redis.config_get(name)
        before.setdefault(name, found[name])
        stores.redis.config_set(name, value)

    yield change
    for name, value in before.items():
        stores.redis.config_set(name, value)


def wrong(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if result.verdict is Verdict.WRONG} - ALWAYS


def only(doctor: Doctor, name: str) -> Result:
    """The result of the only check that finds a fault, which says why it matters and what to do."""
    results = doctor()
    assert wrong(results) == {name}
    assert results[name].why
    assert results[name].fix
    return results[name]


def _complete(node: Turns, number: int) -> Turn:
    turn = begin(node, f"ask {number}", work_key=f"k{number}")
    turn.complete(reply=Replied("Fixed"), steps=[user(f"ask {number}")], decision="done")
    return turn


def test_a_whole_deployment_is_fine(
    stores: Stores, node: Turns, doctor: Doctor, processes: Processes, tmp_path: Path
) -> None:
    """Worker, upkeep and clock run, a turn was committed by them: every check is fine (OP-3)."""
    _complete(node, 1)
    environment = {DATABASE_URL: stores.database_url, REDIS_URL: stores.redis_url}
    for command in ("worker", "upkeep", "clock"):
        processes.command(command, environment=environment)

    def check() -> None:
        assert {result.check for result in doctor().values() if result.verdict is not Verdict.FINE} == set()

    wait_until(check, pause_s=0.2)


def test_the_text_names_each_check_once_and_counts_them(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-3"""
    assert run_doctor(role="worker", output="text") == 1
    shown = capsys.readouterr().out
    for check in CHECKS:
        assert shown.count(f"  {check.name}: ") == 1
    assert "23 checks: 21 fine, 2 wrong." in shown
    assert "fix: Run `turnledger clock`" in shown


def test_it_changes_nothing(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """Not in Redis, where rights are tried, nor in Postgres (OP-3)."""
    _complete(node, 1)
    before = stores.written(), _digest(stores.redis)
    doctor()
    assert (stores.written(), _digest(stores.redis)) == before


def _digest(redis: Any) -> object:
    """Of all data, whatever their order in memory."""
    return redis.execute_command("DEBUG", "DIGEST")


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"redis": {"version": (6, 0, 16)}}, "Redis is 6.0.16, and 6.2 is the oldest"),
        ({"redis": {"product": "Valkey", "version": (7, 0)}}, "Valkey is 7.0, and 7.2 is the oldest"),
        ({"postgres": {"version": (17, 6)}}, "Postgres is 17.6, and 18 is the oldest"),
        ({"host": {"rq_version": (2, 6, 1)}}, "rq is 2.6.1, and 3 is the oldest"),
        ({"host": {"rq_version": (4, 0)}}, "rq is 4.0, and this version was made for 3"),
        ({"host": {"redis_py_version": (4, 6)}}, "redis-py is 4.6, and 5.2 is the oldest"),
    ],
)
def test_a_version_that_will_not_do(stores: Stores, change: dict[str, dict[str, Any]], phrase: str) -> None:
    """The only fault that is told from changed facts: no such servers are at hand (OP-3)."""
    facts = gather(role="worker")
    for part, members in change.items():
        found = getattr(facts, part)
        asked = found if part == "host" else replace(found, answer=replace(found.get(), **members))
        facts = replace(facts, **{part: replace(found, **members) if part == "host" else asked})
    assert phrase in _examined(facts)["versions"].finding


def _examined(facts: Facts) -> dict[str, Result]:
    return {result.check: result for result in examine(facts, checks=CHECKS)}


def test_a_database_without_our_schema(
    doctor: Doctor, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OP-3"""
    monkeypatch.setenv(DATABASE_URL, empty_database_url)
    result = only(doctor, "migrations")
    assert "has no schema of ours" in result.finding
    assert "turnledger migrate" in result.fix
    assert doctor()["entries"].verdict is Verdict.UNKNOWN


def test_a_database_at_another_revision(stores: Stores, doctor: Doctor) -> None:
    """OP-3, CK-15"""
    stores.execute("UPDATE alembic_version SET version_num = '9999'")
    try:
        assert "is at revision 9999" in only(doctor, "migrations").finding
    finally:
        stores.execute("UPDATE alembic_version SET version_num = '0001'")


def test_a_postgres_that_takes_no_writes(stores: Stores, doctor: Doctor) -> None:
    """OP-3, QU-7"""
    name = stores.database_url.rpartition("/")[2]
    stores.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        assert only(doctor, "writes").finding == "Postgres is a standby, or was told to take no writes"
    finally:
        with stores.connection() as connection:
            connection.execute(b"SET TRANSACTION READ WRITE")
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())


def test_a_redis_that_is_a_replica(stores: Stores, doctor: Doctor) -> None:
    """OP-3, FL-8"""
    stores.redis.slaveof("127.0.0.1", 1)
    try:
        assert "Redis is a replica" in doctor()["writes"].finding
    finally:
        stores.redis.slaveof()


def test_a_redis_that_evicts(doctor: Doctor, configure: Callable[[str, str], None]) -> None:
    """OP-3, FL-5"""
    configure("maxmemory-policy", "allkeys-lru")
    assert only(doctor, "eviction").finding == "maxmemory-policy is allkeys-lru"


def test_a_redis_without_its_file(doctor: Doctor, configure: Callable[[str, str], None]) -> None:
    """OP-3, FL-5"""
    configure("appendonly", "no")
    assert only(doctor, "persistence").finding == "appendonly is no"


def test_a_redis_whose_disk_fails(
    stores: Stores, doctor: Doctor, configure: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Its folder is gone when it rewrites its file (OP-3)."""
    gone = tmp_path / "gone"
    gone.mkdir(mode=0o777)
    configure("dir", str(gone))
    gone.rmdir()
    _rewrite(stores.redis)

    def check() -> None:
        assert "its last rewrite of the append-only file failed" in only(doctor, "persistence").finding

    try:
        wait_until(check)
    finally:
        gone.mkdir()
        configure("dir", str(gone))
        _rewrite(stores.redis)
    wait_until(lambda: _assert_fine(doctor, "persistence"))


def _rewrite(redis: Redis) -> None:
    """One that was asked for before may still be on its way."""

    def ask() -> None:
        with suppress(ResponseError):
            assert redis.bgrewriteaof()
            return
        raise AssertionError

    wait_until(ask)


def _assert_fine(doctor: Doctor, name: str) -> None:
    assert doctor()[name].verdict is Verdict.FINE


def _shifted_time(by_s: float) -> float:
    return time.time() + by_s


def test_a_host_whose_clock_is_off() -> None:
    """By more than the answers took (OP-3)."""
    for off_s, words in ((-3_600, "ahead of"), (3_600, "behind")):
        result = _examined(gather(role="worker", now=partial(_shifted_time, off_s)))["clocks"]
        assert result.verdict is Verdict.WRONG
        assert f"the clock of Redis is 3,600.0 s {words} this host's" in result.finding
        assert f"the clock of Postgres is 3,600.0 s {words} this host's" in result.finding


def test_an_answer_that_took_long_says_nothing_of_a_clock() -> None:
    """OP-3"""
    facts = gather(role="worker")
    server = facts.redis.get()
    for error_s, verdict in ((29.5, Verdict.FINE), (0.5, Verdict.WRONG)):
        slow = Asked(replace(server, skew_s=30.0, skew_error_s=error_s))
        assert _examined(replace(facts, redis=slow))["clocks"].verdict is verdict


def test_a_job_that_is_pickled(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """An engine uses our queue with RQ's own serializer (OP-3, QU-2)."""
    _complete(node, 1)
    assert wrong(doctor()) == set()
    with Redis.from_url(stores.redis_url) as redis:
        job = Queue(stores.records.settings.commit_queue, connection=redis).enqueue("os.getpid")
    result = only(doctor, "serializer")
    assert job.id in result.finding
    assert "JSONSerializer" in result.fix


def test_another_prefix_than_rq_was_imported_with(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-3, CK-14"""
    monkeypatch.setenv("RQ_KEY_PREFIX", "{turnledger}:rq")
    assert "imported with the prefix 'rq', and the settings say '{turnledger}:rq'" in only(doctor, "prefix").finding


def test_a_right_that_is_missing(stores: Stores, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without using any: on Redis 6.2 there is no ACL DRYRUN (OP-3, CK-14)."""
    with redis_user(stores.redis_url, "on ~* &* +@all -persist -xadd") as url:
        monkeypatch.setenv(REDIS_URL, url)
        assert only(doctor, "rights").finding == "Redis refuses this user, as worker: PERSIST, XADD"


def test_keys_of_ours_that_are_refused(stores: Stores, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """All it asks of RQ's keys is refused, and it says so once; the server's own checks go on (OP-3, CK-14)."""
    with redis_user(stores.redis_url, "on ~{turnledger}:* resetchannels +@all") as url:
        monkeypatch.setenv(REDIS_URL, url)
        results = doctor()
    assert {"access", "rights"} <= wrong(results)
    assert "SUBSCRIBE" in results["rights"].finding
    assert "HGETALL" in results["rights"].finding
    assert "HGET," not in results["rights"].finding
    assert results["eviction"].verdict is Verdict.FINE


def test_a_user_of_whom_it_cannot_be_told(stores: Stores, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may open no transaction (OP-3)."""
    with redis_user(stores.redis_url, "on ~* &* +@all -multi") as url:
        monkeypatch.setenv(REDIS_URL, url)
        result = doctor()["rights"]
    assert result.verdict is Verdict.UNKNOWN
    assert "may not open a transaction" in result.finding
    assert "MULTI" in result.fix


def test_a_turn_that_postgres_refused(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """OP-3, QU-6"""
    turn = _complete(node, 1)
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")
    assert turn.turn_id in only(doctor, "rejected").finding


def test_a_commit_job_that_failed(stores: Stores, doctor: Doctor) -> None:
    """OP-3"""
    stores.redis.zadd(stores.keys.failed_registry, {"turn-x": time.time() + 60})
    assert only(doctor, "failed jobs").finding == "1 commit job failed (x)"


def test_a_turn_that_waits_for_too_long(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """OP-3, FL-7"""
    turn = _complete(node, 1)
    stores.redis.zincrby(stores.keys.backlog, -61_000, turn.turn_id)
    assert "has waited for 61 s" in only(doctor, "oldest pending").finding


def test_a_turn_that_nobody_may_resume(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """OP-3, RC-4"""
    turn = begin(node)
    turn.park(reason="authorization")
    stores.redis.hset(stores.keys.record(turn.turn_id), "blocked", "delivery_unknown")
    assert turn.turn_id in only(doctor, "blocked").finding


def test_a_record_in_quarantine(stores: Stores, doctor: Doctor) -> None:
    """OP-3, RC-11"""
    stores.redis.zadd(stores.keys.quarantined, {"broken": 1})
    assert only(doctor, "quarantine").finding == "1 record in quarantine (broken)"


@pytest.mark.parametrize("ending", ["parked", "abandoned"])
def test_a_record_that_never_expires(stores: Stores, node: Turns, doctor: Doctor, ending: str) -> None:
    """Of an unfinished turn or an ended one; a completed one stays for ever, rightly (OP-3)."""
    _complete(node, 1)
    turn = begin(node, "ask 2", work_key="k2")
    turn.save(steps=[user("ask 2")])
    if ending == "parked":
        turn.park(reason="authorization")
    else:
        turn.abandon()
    assert wrong(doctor()) == set()
    key = stores.keys.record(turn.turn_id)
    assert stores.redis.persist(key)
    assert only(doctor, "expiry").finding == f"keys that never expire: {key}"
    stores.redis.pexpire(key, 60_000)
    assert stores.redis.persist(stores.keys.steps(turn.turn_id))
    assert stores.keys.steps(turn.turn_id) in only(doctor, "expiry").finding


def test_the_sample_of_records_is_bounded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-3"""
    monkeypatch.setattr("turnledger.workers.doctor.samples.MOST_RECORDS", 20)
    monkeypatch.setattr("turnledger.workers.doctor.samples.PAGE_KEYS", 10)
    for number in range(200):
        stores.redis.hset(stores.keys.record(f"many-{number}"), "state", "parked")
    turns = gather(role="worker").turns.get()
    assert 20 <= turns.records_examined < 60
    assert len(turns.endless_keys) == 10


def test_an_entry_without_its_event(stores: Stores, node: Turns, doctor: Doctor) -> None:
    """Somebody deleted it past the trigger; an event that retention has swept is no fault (OP-3)."""
    turns = [_complete(node, number) for number in range(2)]
    stores.drain()
    assert wrong(doctor()) == set()
    with stores.connection() as connection:
        connection.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
        connection.execute("DELETE FROM ledger_event WHERE type = 'turn_completed'")
        connection.execute("UPDATE ledger_turn SET swept = true WHERE turn_id = %s", [turns[0].turn_id])
    result = only(doctor, "entries")
    assert turns[1].turn_id in result.finding
    assert turns[0].turn_id not in result.finding


def test_the_look_at_entries_scans_no_log(stores: Stores) -> None:
    """However long it is: the newest entries by their time, each event by its key (OP-3, PR-5)."""
    from tests.integration.test_retention import seed_many
    from turnledger.store.database import driver_text

    seed_many(stores)
    with stores.connection() as connection:
        query = f"EXPLAIN {driver_text('silent_entries')}".encode()
        plan = "\n".join(row[0] for row in connection.execute(query, {"most": 100, "named": 10}))
    assert "ledger_entry_completed" in plan
    assert "ledger_event_key" in plan
    assert "Seq Scan on ledger_event" not in plan
    assert "Seq Scan on ledger_entry" not in plan


def test_backpressure(node: Turns, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-3, QU-14"""
    for number in range(3):
        _complete(node, number)
    monkeypatch.setenv("TURNLEDGER_PENDING_TURNS", "3")
    assert only(doctor, "backpressure").finding.startswith("3 turns pending, and from 3 on")


def test_a_redis_without_headroom(stores: Stores, doctor: Doctor, configure: Callable[[str, str], None]) -> None:
    """OP-3, QU-14"""
    memory: Any = stores.redis.info("memory")
    configure("maxmemory", str(int(memory["used_memory"] * 1.1)))
    assert "of its memory limit; 85% is the most" in only(doctor, "memory").finding
    configure("maxmemory", str(memory["total_system_memory"] * 2))
    assert "more than the whole memory" in only(doctor, "memory").finding


def test_the_clock_is_seen_while_it_holds_its_lock(stores: Stores, doctor: Doctor) -> None:
    """OP-3, RC-18"""
    assert doctor()["clock"].verdict is Verdict.WRONG
    with stores.connection() as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [CLOCK_LOCK])
        assert doctor()["clock"].verdict is Verdict.FINE


def test_workers_that_are_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rewriting too, where that is on (OP-3)."""
    assert "commits" in doctor()["workers"].finding
    assert "rewrites" not in doctor()["workers"].finding
    monkeypatch.setenv("TURNLEDGER_REWRITING", "on")
    assert "no worker of the rewrites" in doctor()["workers"].finding


def test_a_turn_on_this_hosts_disk(stores: Stores, doctor: Doctor, tmp_path: Path) -> None:
    """Neither store took it; it waits, or was refused for good. What is of others is no fault (OP-3, FL-4)."""
    away = {"database_url": "postgresql://x@127.0.0.1:1/x", "database_connect_timeout_s": 1}
    node = stores.node(store=away, redis_url="redis://127.0.0.1:1/0", redis_retries=0, spool_folder=tmp_path / "spool")
    turn = _complete(node, 1)
    assert turn.spooled is not None
    kept = turn.spooled
    assert doctor()["spool"].finding == "nothing waits on this host's disk but 1 turn of other deployments"
    for name in (f"{turn.turn_id}.1.turn.json", f"{turn.turn_id}.1.{stores.deployment_id}.turn.json"):
        kept = kept.rename(kept.with_name(name))
        assert str(kept) in only(doctor, "spool").finding
    kept.rename(kept.with_name(f"{kept.name}.refused"))
    assert "refused for good" in only(doctor, "spool").finding


def test_servers_that_are_away(
    private_servers: EmbeddedServers, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server is looked at all the same; the exit code is 3 (OP-3)."""
    monkeypatch.setenv(DATABASE_URL, private_servers.database_url)
    monkeypatch.setenv(REDIS_URL, private_servers.redis_url)
    monkeypatch.setenv("TURNLEDGER_REDIS_RETRIES", "0")
    private_servers.redis.kill()
    results = doctor()
    assert {results[name].verdict for name in ("access", "eviction", "rights", "oldest pending")} == {Verdict.AWAY}
    assert {results[name].verdict for name in ("migrations", "entries")} == {Verdict.FINE}
    private_servers.redis.start()
    private_servers.postgres.kill()
    results = doctor()
    assert {results[name].verdict for name in ("access", "migrations", "entries", "clocks")} == {Verdict.AWAY}
    assert results["eviction"].verdict is Verdict.FINE


def test_a_user_that_a_server_refuses(stores: Stores, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is there: a person has to act (OP-3)."""
    monkeypatch.setenv(DATABASE_URL, stores.database_url.replace("turnledger@", "nobody_we_know@"))
    result = doctor()["access"]
    assert result.verdict is Verdict.WRONG
    assert "nobody_we_know" in result.finding
