"""What must hold of both stores whatever happened, read from Postgres and Redis directly.

``check_ledgers`` holds at every moment, ``check_at_rest`` once the work is done, ``check_invariants`` is both.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import psycopg
import redis
from psycopg.rows import namedtuple_row

from tests.processes import PATIENCE_S

_PREFIX = "{turnledger}"
_QUEUE = "rq:queue:commits"
_MOST_ENTRIES = 20
_TERMINALS = {"turn_completed": "completed", "turn_failed": "failed", "turn_duplicate": "duplicate"}
_ENDED_BY = {"completed": "completed", "failed": "failed", "abandoned": "failed", "duplicate": "duplicate"}
_REPLACEMENTS = ("compaction", "handoff")
_PROVISIONAL = "lost:"  # how the key of a terminal begins that a later completion overrules
_MAY_STAY = re.compile(r"rq:(queues|workers(:commits|:upkeep)?)$")
# What the clock asks for all the time.
_UPKEEP = re.compile(r"rq:(queue:upkeep|job:(reconcile|retention|invalidate-.+))$")


@dataclass(frozen=True)
class Told:
    """A completion that an engine node was told has succeeded; ``steps`` are the contents, as JSON text."""

    turn_id: str
    agent: str
    conversation: str
    work_key: str
    steps: tuple[str, ...]


@dataclass
class _Ledger:
    """One ledger as Postgres has it."""

    row: Any
    runs: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)


def check_invariants(
    database_url: str,
    redis_url: str,
    *,
    told: Sequence[Told],
    rejected: Collection[str] = (),
    unfinished: Collection[str] = (),
) -> None:
    """Everything that must hold once all work is done."""
    check_ledgers(database_url, redis_url, told=told)
    check_all_there(database_url, told=[turn for turn in told if turn.turn_id not in rejected])
    check_at_rest(redis_url, rejected=rejected, unfinished=unfinished)


def wait_for_invariants(
    database_url: str,
    redis_url: str,
    *,
    told: Sequence[Told],
    seconds: float = PATIENCE_S,
    rejected: Collection[str] = (),
    unfinished: Collection[str] = (),
) -> float:
    """Wait until all turns are there and nothing is left to do, check everything, and return how long it took.

    RQ lets a minute pass before it looks at a job whose worker died as it took it; here that minute is short.
    """
    began = time.monotonic()
    wait_until(lambda: check_committed(redis_url, told, rejected=rejected), seconds=seconds)
    committed_after = time.monotonic() - began
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:

        def check() -> None:
            _let_a_minute_pass(client)
            check_at_rest(redis_url, rejected=rejected, unfinished=unfinished)

        wait_until(check, seconds=seconds)
    check_invariants(database_url, redis_url, told=told, rejected=rejected, unfinished=unfinished)
    return committed_after


def wait_for(condition: Callable[[], bool], *, seconds: float = PATIENCE_S, pause_s: float = 0.01) -> None:
    """Return once the condition holds; fail when it does not in time."""

    def check() -> None:
        assert condition(), f"nothing came of it in {seconds:g} s"

    wait_until(check, seconds=seconds, pause_s=pause_s)


def wait_until(check: Callable[[], object], *, seconds: float = PATIENCE_S, pause_s: float = 0.05) -> None:
    """Repeat an assertion until it holds; its last failure is the caller's."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
        else:
            return


def check_committed(redis_url: str, told: Sequence[Told], *, rejected: Collection[str] = ()) -> None:
    """Redis knows every turn that was told to be decided."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client, client.pipeline() as pipeline:
        for turn in told:
            pipeline.hget(f"{_PREFIX}:turn:{turn.turn_id}", "state")
        states = pipeline.execute()
    wrong = {
        turn.turn_id: state
        for turn, state in zip(told, states, strict=True)
        if state != ("rejected" if turn.turn_id in rejected else "committed")
    }
    assert not wrong, f"{len(wrong)} turns are not decided: {dict(list(wrong.items())[:5])}"


def check_ledgers(database_url: str, redis_url: str, *, told: Sequence[Told]) -> None:
    """Dense, in order of completion, one ending a run, one completion a work key, every step once: at any moment."""
    by_id = {turn.turn_id: turn for turn in told}
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        for ledger in _read_ledgers(database_url):
            _check_numbers(ledger)
            _check_endings(ledger)
            _check_work_keys(ledger)
            _check_entries(ledger)
            _check_steps(ledger, by_id)
            _check_order(ledger, client)


def check_all_there(database_url: str, *, told: Sequence[Told]) -> None:
    """Every turn that was told is history, or names the turn of its work key that is."""
    runs = {run.turn_id: run for ledger in _read_ledgers(database_url) for run in ledger.runs.values()}
    for turn in told:
        run = runs.get(turn.turn_id)
        assert run is not None, f"turn {turn.turn_id} is lost: Postgres does not know it"
        assert run.outcome in ("completed", "duplicate"), f"turn {turn.turn_id} is lost: its run is {run.outcome}"
        if run.outcome == "duplicate":
            first = runs[run.duplicate_of]
            assert (first.outcome, first.work_key) == ("completed", turn.work_key), f"{turn.turn_id} names {first}"


def check_at_rest(redis_url: str, *, rejected: Collection[str] = (), unfinished: Collection[str] = ()) -> None:
    """Nothing is pending, no job is left anywhere, and nothing that should expire stays for ever."""
    kept_jobs = {f"turn-{turn_id}" for turn_id in rejected}
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        keys: list[str] = sorted(client.scan_iter("*", count=10_000))
        left = [
            problem
            for key in keys
            if not _UPKEEP.match(key) and (problem := _left_behind(client, key, rejected, unfinished, kept_jobs))
        ]
    assert not left, f"{len(left)} things are left behind: {left[:8]}"


def _read_ledgers(database_url: str) -> list[_Ledger]:
    with psycopg.connect(database_url, row_factory=namedtuple_row) as connected:
        connection: Any = connected
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SET search_path = turnledger")
        ledgers = {row.ledger_id: _Ledger(row) for row in connection.execute("SELECT * FROM ledger")}
        for row in connection.execute("SELECT * FROM ledger_turn"):
            ledgers[row.ledger_id].runs[row.turn_id] = row
        for row in connection.execute(
            "SELECT ledger_id, seq, type, turn_id, idempotency_key, payload, content::text AS content"
            " FROM ledger_event ORDER BY seq"
        ):
            ledgers[row.ledger_id].events.append(row)
        for row in connection.execute("SELECT * FROM ledger_entry ORDER BY ordinal"):
            ledgers[row.ledger_id].entries.append(row)
    return list(ledgers.values())


def _check_numbers(ledger: _Ledger) -> None:
    seqs = [event.seq for event in ledger.events]
    assert seqs == list(range(ledger.row.next_seq)), f"seq is not dense in ledger {ledger.row}: {seqs}"
    ordinals = [event.payload["ordinal"] for event in ledger.events if _is_filed(event)]
    assert ordinals == list(range(1, ledger.row.turn_count + 1)), f"ordinals of ledger {ledger.row}: {ordinals}"


def _check_endings(ledger: _Ledger) -> None:
    endings = defaultdict(list)
    for event in ledger.events:
        if event.type in _TERMINALS and not event.idempotency_key.startswith(_PROVISIONAL):
            endings[event.turn_id].append(_TERMINALS[event.type])
    ended = [run for run in ledger.runs.values() if run.outcome in _ENDED_BY]
    expected = {run.turn_id: [_ENDED_BY[run.outcome]] for run in ended}
    assert dict(endings) == expected, f"endings in ledger {ledger.row}: {_difference(endings, expected)}"


def _is_filed(event: Any) -> bool:
    """Whether it ends a turn that has an entry: a completed one, or one that failed after its work."""
    return event.type in _TERMINALS and "ordinal" in event.payload


def _check_work_keys(ledger: _Ledger) -> None:
    completed = Counter(run.work_key for run in ledger.runs.values() if run.outcome == "completed" and run.work_key)
    doubled = {key: count for key, count in completed.items() if count > 1}
    assert not doubled, f"work keys completed more than once in ledger {ledger.row}: {doubled}"


def _check_entries(ledger: _Ledger) -> None:
    events = {
        event.payload["ordinal"]: (event.turn_id, event.payload["entry_id"])
        for event in ledger.events
        if _is_filed(event)
    }
    newest = dict(sorted(events.items())[-_MOST_ENTRIES:])
    entries = {entry.ordinal: (entry.turn_id, str(entry.entry_id)) for entry in ledger.entries}
    assert entries == newest, f"entries of ledger {ledger.row}: {_difference(entries, newest)}"


def _check_steps(ledger: _Ledger, told: dict[str, Told]) -> None:
    """Those of a completed turn are there once; of any other only what a replacement of history covers."""
    steps: dict[str, list[tuple[int, str]]] = defaultdict(list)
    covered: dict[str, int] = defaultdict(int)
    for event in ledger.events:
        if event.type == "agent_step":
            steps[event.turn_id].append((event.seq, event.content))
        elif event.type in _REPLACEMENTS:
            covered[event.turn_id] = max(covered[event.turn_id], event.payload["covered_steps"])
    filed = {event.turn_id for event in ledger.events if _is_filed(event)}
    for run in ledger.runs.values():
        found = steps.pop(run.turn_id, [])
        if run.turn_id not in filed:
            assert len(found) == covered[run.turn_id], f"turn {run.turn_id} is {run.outcome} and has steps"
        elif run.turn_id in told:
            assert [content for _, content in found] == list(told[run.turn_id].steps), f"steps of turn {run.turn_id}"
        seqs = [seq for seq, _ in found[covered[run.turn_id] :]]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True, f"{run.turn_id} is not in one piece"
    assert not steps, f"steps of unknown turns: {list(steps)}"


def _check_order(ledger: _Ledger, client: Any) -> None:
    """The spare copies still hold the number that each completion got when it happened."""
    ended = [event.turn_id for event in ledger.events if event.type in ("turn_completed", "turn_duplicate")]
    with client.pipeline(transaction=False) as pipeline:
        for turn_id in ended:
            pipeline.hget(f"{_PREFIX}:turn:{turn_id}", "completion_no")
        numbers = [int(number) for number in pipeline.execute() if number]
    assert numbers == sorted(numbers), f"ledger {ledger.row} is not in order of completion: {numbers}"


def _left_behind(
    client: Any,
    key: str,
    rejected: Collection[str],
    unfinished: Collection[str],
    kept_jobs: Collection[str],
) -> str | None:
    if key.startswith(f"{_PREFIX}:turn:"):
        return _left_of_turn(client, key, rejected, unfinished)
    if key in (f"{_PREFIX}:turns", f"{_PREFIX}:backlog"):
        allowed = set(unfinished) | set(rejected) if key.endswith(":turns") else set()
        return _unless_empty(key, set(client.zrange(key, 0, -1)) - allowed)
    if key.startswith(f"{_PREFIX}:ledger:"):
        return _left_of_ledger(client, key, rejected, unfinished)
    return None if _MAY_STAY.match(key) else _left_in_rq(client, key, kept_jobs)


def _left_in_rq(client: Any, key: str, kept_jobs: Collection[str]) -> str | None:
    if key == "rq:failed:commits":
        return _unless_empty(key, set(client.zrange(key, 0, -1)) - set(kept_jobs))
    if key.startswith(("rq:job:", "rq:results:")):
        job = key.split(":", 2)[2]
        return None if job in kept_jobs and client.pttl(key) > 0 else f"{key} is left"
    if key.startswith((_QUEUE, "rq:wip:", "rq:executions:", "rq:canceled:", "rq:finished:", "rq:scheduled:")):
        return None if ":first_seen:" in key else f"{key} is left"
    return f"{key} never expires" if client.exists(key) and client.pttl(key) <= 0 else None


def _left_of_turn(client: Any, key: str, rejected: Collection[str], unfinished: Collection[str]) -> str | None:
    turn_id = key.split(":")[2]
    record = f"{_PREFIX}:turn:{turn_id}"
    state = client.hget(record, "state")
    if turn_id in rejected:
        ok = state == "rejected" and client.pttl(key) == -1
    elif turn_id in unfinished:
        ok = state in ("running", "parked") and client.pttl(key) > 0
    else:
        ok = state in ("committed", "failed", "abandoned") and client.pttl(key) > 0
    together = abs(client.pttl(key) - client.pttl(record)) < 1_000
    return None if ok and together else f"{key} is {state}, expires in {client.pttl(key)} ms"


def _left_of_ledger(client: Any, key: str, rejected: Collection[str], unfinished: Collection[str]) -> str | None:
    kind = key.rpartition(":")[2]
    if kind == "completions":
        idle = not client.exists(key.replace(":completions", ":rejected"))
        return f"{key} never expires" if idle and client.pttl(key) <= 0 else None
    if kind == "open":
        return _unless_empty(key, set(client.smembers(key)) - set(unfinished))
    allowed = set(rejected) if kind == "rejected" else set()
    return _unless_empty(key, set(client.lrange(key, 0, -1)) - allowed)


def _unless_empty(key: str, left: set[str]) -> str | None:
    return f"{unquote(key)} holds {sorted(left)[:3]}" if left else None


def _let_a_minute_pass(client: Any) -> None:
    for key in client.scan_iter(f"{_QUEUE}:intermediate:first_seen:*"):
        with suppress(redis.ResponseError):
            client.set(key, time.time() - 61, xx=True, keepttl=True)


def _difference(left: Any, right: Any) -> Any:
    keys = [key for key in {*left, *right} if left.get(key) != right.get(key)]
    return {key: (left.get(key), right.get(key)) for key in keys[:5]}
