"""The model's Redis and Postgres answer as the real ones do, for what the model asks of them."""

import json
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from sqlalchemy import Connection, text

from tests.model.postgres_model import STATEMENTS, Tables
from tests.model.recording import Cases, ScriptCase, StatementCase, record
from tests.model.redis_model import COMMANDS, NOW_MS, Frozen, Keyspace, as_text
from tests.model.scenarios import COMMITTERS, REPLACEMENT, TWO_RUNS, TWO_TAKE_OVERS
from tests.stores import Stores
from turnledger.checkpoint.records import _SCRIPTS
from turnledger.store.commit import _ENTRY_TARGET, _EVENT_TARGET
from turnledger.store.database import copy_rows, statement
from turnledger.store.times import milliseconds

# What no actor of the model does: child ledgers, the reconciler's look at many turns, settings of a connection, sweeps
# of retention, accounts of older entries, roles, the doctor's look, and a run that is begun anew after a replacement,
# and the deployment's id.
NOT_MODELLED = {
    *("find_child", "find_parent", "find_standings", "insert_child", "open_runs", "set_lock_timeout"),
    *(
        "add_to_retention",
        "lock_sweepable",
        "look_sweepable",
        "note_sweep",
        "read_retention",
        "silent_entries",
        "make_roles",
    ),
    *("sweep_entries", "sweep_events", "find_account", "long_ledgers", "save_account"),
    *("forget_steps", "run_started_at", "in_recovery", "read_deployment"),
}
NEVER_RUN = {"trim_entries", "is_swept"}  # the model knows them, and no path of it gets there


@pytest.fixture(scope="module")
def cases() -> Cases:
    return record([TWO_RUNS, TWO_TAKE_OVERS, REPLACEMENT, COMMITTERS], states=4_000, most=25)


def test_every_command_of_the_scripts_is_modelled() -> None:
    """A script that the actors run could not run otherwise."""
    for name in ("_shared", *_SCRIPTS):
        script = (files("turnledger.checkpoint") / "scripts" / f"{name}.lua").read_text(encoding="utf-8")
        assert set(re.findall(r"(?:redis\.call|push)\('([A-Z]+)'", script)) <= set(COMMANDS), name


def test_every_statement_is_modelled_or_named_as_left_out() -> None:
    """A new statement has to be given its place."""
    names = {file.name.removesuffix(".sql") for file in (files("turnledger.store") / "sql").iterdir()}
    assert names == set(STATEMENTS) | NOT_MODELLED


def test_scripts_answer_and_write_as_in_redis(cases: Cases, stores: Stores) -> None:
    """The product's own text in Lua 5.1, the model's commands below it, on states of real paths."""
    assert len(cases.scripts) > 100
    for case in cases.scripts:
        put(stores.redis, case.before)
        answer: Any = stores.redis.eval(case.text, len(case.keys), *case.keys, *map(as_text, case.arguments))
        assert in_any_order(answer, case) == in_any_order(case.answer, case), case.name
        check_stored(stores.redis, case.after)


KEYS = st.sampled_from(["one", "two"])
WORDS = st.sampled_from(["a", "b", "c", "7"])
PLACES = st.integers(-4, 4).map(str)
TYPED: dict[str, st.SearchStrategy[tuple[str, ...]]] = {
    "GET string": st.tuples(),
    "INCR string": st.tuples(),
    "HGET hash": st.tuples(WORDS),
    "HMGET hash": st.tuples(WORDS, WORDS),
    "HGETALL hash": st.tuples(),
    "HSET hash": st.tuples(WORDS, WORDS, WORDS, WORDS),
    "HSETNX hash": st.tuples(WORDS, WORDS),
    "HDEL hash": st.tuples(WORDS, WORDS),
    "HINCRBY numbers": st.tuples(WORDS, PLACES),
    "RPUSH list": st.tuples(WORDS, WORDS),
    "LPUSH list": st.tuples(WORDS, WORDS),
    "LPOP list": st.tuples(),
    "LLEN list": st.tuples(),
    "LRANGE list": st.tuples(PLACES, PLACES),
    "LTRIM list": st.tuples(PLACES, PLACES),
    "LREM list": st.tuples(st.sampled_from(["0", "1", "2"]), WORDS),
    "LPOS list": st.tuples(WORDS),
    "LINSERT list": st.tuples(st.sampled_from(["BEFORE", "AFTER"]), WORDS, WORDS),
    "SADD set": st.tuples(WORDS, WORDS),
    "SREM set": st.tuples(WORDS, WORDS),
    "SMEMBERS set": st.tuples(),
    "ZADD sorted": st.tuples(PLACES, WORDS),
    "ZREM sorted": st.tuples(WORDS, WORDS),
    "ZCARD sorted": st.tuples(),
    "ZRANGEBYSCORE sorted": st.tuples(st.sampled_from(["-inf", "0"]), PLACES),
}
ON_ANY = ["EXISTS", "DEL", "PERSIST", "PEXPIREAT"]
KINDS = ["string", "hash", "numbers", "list", "set", "sorted"]


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, ...]:
    """A command with a key of the kind it wants."""
    number = draw(KEYS)
    if draw(st.integers(0, 4)) == 0:
        name, key = draw(st.sampled_from(ON_ANY)), f"{draw(st.sampled_from(KINDS))}:{number}"
        return (name, key, *([str(NOW_MS + 1_000)] if name == "PEXPIREAT" else []))
    name, kind = draw(st.sampled_from(sorted(TYPED))).split()
    return (name, f"{kind}:{number}", *draw(TYPED[f"{name} {kind}"]))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(commands(), min_size=1, max_size=25))
def test_commands_answer_and_write_as_in_redis(stores: Stores, asked: list[tuple[str, ...]]) -> None:
    """Each command on its own, in any order, on keys of its kind."""
    stores.redis.flushall()
    keyspace = Keyspace({})
    for name, *arguments in asked:
        answer: Any = stores.redis.eval(CALL, 0, name, *arguments)
        assert answer == in_order(name, keyspace.call(name, arguments)), (name, arguments)
    check_stored(stores.redis, keyspace.freeze())


# As a script sees the answers, a set or hash in one order.
CALL = """local answer = redis.call(unpack(ARGV))
if ARGV[1] == 'SMEMBERS' then table.sort(answer) end
if ARGV[1] ~= 'HGETALL' then return answer end
local pairs_of = {}
for index = 1, #answer, 2 do pairs_of[#pairs_of + 1] = answer[index] .. '=' .. answer[index + 1] end
table.sort(pairs_of)
return pairs_of"""


def in_order(name: str, answer: Any) -> Any:
    if name != "HGETALL":
        return answer
    return sorted(f"{field}={value}" for field, value in zip(answer[::2], answer[1::2], strict=True))


def put(redis: Redis, frozen: Frozen) -> None:
    """Make the server hold this state and nothing else."""
    redis.flushall()
    for key, (kind, value, expires) in frozen.items():
        if kind == "string":
            redis.set(key, value)
        elif kind == "hash":
            redis.hset(key, mapping=dict(value))
        elif kind == "list":
            redis.rpush(key, *value)
        elif kind == "set":
            redis.sadd(key, *value)
        else:
            redis.zadd(key, dict(value))
        if expires is not None:
            redis.pexpireat(key, expires)


def check_stored(redis: Redis, expected: Frozen) -> None:
    """The server holds this state; a time that was given as from now on is not the model's own."""
    found = {str(key): value_of(redis, str(key), str(redis.type(key))) for key in redis.scan_iter()}
    assert found == {key: value for key, (_, value, _) in expected.items()}
    now_ms = milliseconds(datetime.now(tz=UTC))
    for key, (_, _, expires) in expected.items():
        left = int(str(redis.pttl(key)))
        wanted = [-1] if expires is None else [expires - now_ms, expires - NOW_MS]
        assert any(abs(left - time) < 5_000 for time in wanted), (key, left, wanted)


def value_of(redis: Any, key: str, kind: str) -> Any:
    if kind == "string":
        return redis.get(key)
    if kind == "hash":
        return tuple(sorted(redis.hgetall(key).items()))
    if kind == "list":
        return tuple(redis.lrange(key, 0, -1))
    if kind == "set":
        return tuple(sorted(redis.smembers(key)))
    return tuple(sorted(redis.zrange(key, 0, -1, withscores=True)))


def in_any_order(answer: Any, case: ScriptCase) -> Any:
    """Fields of a hash and members of a set come in no order of their own."""
    if case.name == "claim" and answer[0] == "claimed":
        return [answer[0], sorted(zip(answer[1][::2], answer[1][1::2], strict=True)), answer[2]]
    return [*answer[:5], sorted(answer[5])] if case.name == "look" else answer


def test_statements_answer_and_write_as_in_postgres(cases: Cases, stores: Stores) -> None:
    """Every statement that the actors run, COPY and the replay's selects included, on states of real paths."""
    assert {case.name for case in cases.statements} >= (set(STATEMENTS) - NEVER_RUN) | {"copy", "select"}
    for case in cases.statements:
        with stores.database.engine.connect() as connection:
            put_rows(connection, case.before)
            rows = run(connection, case)
            assert comparable(rows) == comparable(case.rows), (case.name, case.parameters)
            check_rows(connection, case)
            connection.rollback()


def put_rows(connection: Connection, tables: Tables) -> None:
    """Make the database hold these rows, for this transaction."""
    for ledger in tables.ledgers:
        connection.execute(
            text(
                "INSERT INTO ledger (ledger_id, agent, conversation_key, history_version, next_seq, turn_count)"
                " OVERRIDING SYSTEM VALUE VALUES (:ledger_id, :agent, :conversation_key, :history_version, :next_seq,"
                " :turn_count)"
            ),
            ledger._asdict(),
        )
    for run_row in tables.runs:
        connection.execute(
            text(
                "INSERT INTO ledger_turn (turn_id, ledger_id, work_key, epoch, steps_written, outcome, duplicate_of,"
                " started_at, ended_at) VALUES (:turn_id, :ledger_id, :work_key, :epoch, :steps_written, :outcome,"
                " :duplicate_of, now(), CASE WHEN CAST(:outcome AS text) IS NULL THEN NULL ELSE now() END)"
            ),
            run_row._asdict(),
        )
    copy_rows(connection, target=_EVENT_TARGET, rows=tables.events)
    copy_rows(connection, target=_ENTRY_TARGET, rows=tables.entries)


def run(connection: Connection, case: StatementCase) -> list[Any]:
    if case.name == "copy":
        copy_rows(connection, target=case.parameters[0], rows=case.parameters[1])
        return []
    if case.name == "select":
        return list(connection.exec_driver_sql(case.text).all())
    result = connection.execute(statement(case.name), case.parameters)
    return list(result.all()) if result.returns_rows else []


def check_rows(connection: Connection, case: StatementCase) -> None:
    numbered = case.name != "create_ledgers"  # the server gives the number that is next
    ledgers = "agent, conversation_key, history_version, next_seq, turn_count" + (", ledger_id" if numbered else "")
    expected = [(*row[1:], *([row.ledger_id] if numbered else [])) for row in case.after.ledgers]
    assert comparable(read(connection, f"SELECT {ledgers} FROM ledger ORDER BY 1")) == comparable(expected), case
    runs = (
        "SELECT turn_id, ledger_id, work_key, epoch, steps_written, outcome, duplicate_of FROM ledger_turn ORDER BY 1"
    )
    assert comparable(read(connection, runs)) == comparable(case.after.runs), case
    events = (
        "SELECT ledger_id, seq, history_version, turn_id, type, schema_version, idempotency_key, payload,"
        " content::text, search_text FROM ledger_event ORDER BY ledger_id, seq"
    )
    assert comparable(read(connection, events)) == comparable([row[:-1] for row in case.after.events]), case
    entries = "SELECT ledger_id, ordinal, entry_id, turn_id, work_key, entry::text FROM ledger_entry ORDER BY 1, 2"
    expected = [(*row[:5], row.entry) for row in case.after.entries]
    assert comparable(read(connection, entries)) == comparable(expected), case


def read(connection: Connection, query: str) -> list[Any]:
    return list(connection.exec_driver_sql(query).all())


def comparable(rows: Any) -> list[list[Any]]:
    """JSON by its value, ids as texts, and times left out: the model's stand still."""
    return [[_comparable(value) for value in row] for row in rows]


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return "a time"
    if isinstance(value, UUID):
        return str(value)
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
