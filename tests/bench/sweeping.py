"""A sweep over 100,000 records: how many a second, and how long other clients of Redis wait meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.results import Report, Result
from tests.bench.rig import Rig
from tests.bench.timing import seconds_of
from turnledger.checkpoint.keys import encode_ledger, job_id
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor
from turnledger.checkpoint.sighting import FIELDS
from turnledger.store import LedgerName
from turnledger.store.database import copy_rows
from turnledger.store.ledger import Head, create_ledgers, lock_free_ledgers
from turnledger.store.times import time_text
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings

RECORDS, LEDGERS, PAGE = 100_000, 2_000, 1_000
QUIET_S = 10.0  # about as long as a sweep: what the machine alone makes a client wait
RUNS = "ledger_turn (turn_id, ledger_id, work_key, started_at, ended_at, outcome)"
_STARTED_AT_MS = 1_780_000_000_000
_FAR_MS = 4_000_000_000_000
_PINGER = """
import json, sys, threading, time
from redis import Redis
redis, waits, ended = Redis.from_url(sys.argv[1]), [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
redis.ping()
print("ready", flush=True)
while not ended.is_set():
    began = time.perf_counter()
    redis.get("nothing")
    waits.append(time.perf_counter() - began)
    time.sleep(0.0005)
waits.sort()
print(json.dumps([waits[len(waits) // 2], waits[int(len(waits) * 0.999)], waits[-1]]))
"""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long another client waited for the answer to one GET, in seconds."""

    median: float
    one_in_a_thousand: float
    longest: float


def measure(rig: Rig) -> Report:
    """A sweep that finds nothing and one that parks every tenth turn, beside a bare SCAN that reads the same fields."""
    rig.empty()
    seed(rig)
    _, quiet = _watched(rig, lambda: time.sleep(QUIET_S))
    bare_s, bare = _watched(rig, lambda: _bare_scan(rig))
    hmget_ms = _command_ms(rig, "hmget")
    idle_s, idle = _watched(rig, lambda: _sweep(rig, parked=0))
    step_ms = _command_ms(rig, "evalsha")
    lapsed = _lapse(rig)
    busy_s, busy = _watched(rig, lambda: _sweep(rig, parked=lapsed))
    peer = "bare SCAN and HMGET"
    results = (
        Result("sweep, nothing to do", RECORDS / idle_s, "records/s", peer, RECORDS / bare_s),
        Result(f"sweep that parks {lapsed:,}", RECORDS / busy_s, "records/s", peer, RECORDS / bare_s),
        Result("Redis itself, a record", step_ms, "ms", "bare HMGET", hmget_ms),
        Result("another's GET, p50", idle.median * 1_000, "ms", peer, bare.median * 1_000),
        Result("another's GET, p99.9", idle.one_in_a_thousand * 1_000, "ms", peer, bare.one_in_a_thousand * 1_000),
        Result("another's GET, longest", idle.longest * 1_000, "ms", peer, bare.longest * 1_000),
        Result("another's GET, longest", idle.longest * 1_000, "ms", "no sweep", quiet.longest * 1_000),
        Result("the same, while it parks", busy.longest * 1_000, "ms", "no sweep", quiet.longest * 1_000),
    )
    return Report("f. Sweeping 100,000 records", _HOW, results)


def _command_ms(rig: Rig, name: str) -> float:
    """The mean time that Redis itself spent on a call of this command since the last `_watched` began."""
    found: Any = rig.redis.info("commandstats")
    return float(found[f"cmdstat_{name}"]["usec_per_call"]) / 1_000


def seed(rig: Rig) -> None:
    """Seven of ten turns committed, one pending, one running, one parked; each where it should stand."""
    names = [LedgerName("lead", f"jira:BENCH-{number}") for number in range(LEDGERS)]
    create_ledgers(rig.database, names)
    with rig.database.transaction() as connection:
        heads = lock_free_ledgers(connection, names)
        rows = (_run(number, heads[names[number % LEDGERS]]) for number in range(RECORDS))
        copy_rows(connection, target=RUNS, rows=rows)
    for first in range(0, RECORDS, PAGE):
        _seed_records(rig, range(first, first + PAGE), names=names, heads=heads)


def _run(number: int, head: Head) -> tuple[object, ...]:
    ended = (time_text(_STARTED_AT_MS), "completed") if _state(number) == "committed" else (None, None)
    return (_turn_id(number), head.ledger_id, "", time_text(int(time.time() * 1_000)), *ended)


def _state(number: int) -> str:
    """By the number within its ledger, so that every ledger has turns of each state."""
    return ("completed", "running", "parked")[kind] if (kind := number // LEDGERS % 10) < 3 else "committed"


def _turn_id(number: int) -> str:
    return f"bench-{number:08d}"


def _seed_records(
    rig: Rig, numbers: Sequence[int], *, names: Sequence[LedgerName], heads: dict[LedgerName, Head]
) -> None:
    keys, now_ms = rig.records.keys, int(time.time() * 1_000)
    with rig.redis.pipeline(transaction=False) as pipeline:
        for number in numbers:
            name, turn_id, state = names[number % LEDGERS], _turn_id(number), _state(number)
            fields = _fields(number, name, head=heads[name], state=state, now_ms=now_ms)
            pipeline.hset(keys.record(turn_id), mapping=fields)
            pipeline.rpush(keys.steps(turn_id), "step one", "step two")
            if state != "committed":
                pipeline.zadd(keys.turns, {turn_id: now_ms})
            if state == "completed":
                pipeline.rpush(keys.pending(name), turn_id)
                pipeline.zadd(keys.backlog, {turn_id: now_ms})
                pipeline.hset(keys.job(turn_id), "status", "queued")
                pipeline.rpush(keys.queue, job_id(turn_id))
            elif state != "committed":
                pipeline.sadd(keys.open(name), turn_id)
        pipeline.execute()


def _fields(number: int, name: LedgerName, *, head: Head, state: str, now_ms: int) -> dict[Any, Any]:
    return {
        "format": RECORD_FORMAT,
        "state": state,
        "owner": f"{number:032x}",
        "revision": 3,
        "epoch": 1,
        "slice": 1,
        "lease_until": _FAR_MS if state == "running" else 0,
        "touched_at": now_ms,
        "started_at": time_text(now_ms),
        "ledger": encode_ledger(name),
        "work_key": "",
        "recorded": "1",
        "entry_id": f"{number:032x}",
        "cursor": Cursor(head.ledger_id, 0, -1, None).encode(),
        "earlier": "What was said before. " * 200,
        "completed_at": now_ms + 600_000,
        "completion_no": number // LEDGERS + 1,
        "kept_steps": 2,
        "entry": "{}" * 500,
    }


def _lapse(rig: Rig) -> int:
    running = [number for number in range(RECORDS) if _state(number) == "running"]
    with rig.redis.pipeline(transaction=False) as pipeline:
        for number in running:
            pipeline.hset(rig.records.keys.record(_turn_id(number)), "lease_until", 1)
        pipeline.execute()
    return len(running)


def _sweep(rig: Rig, *, parked: int) -> None:
    reconciler = Reconciler(records=rig.records, database=rig.database, settings=WorkerSettings())
    report = reconciler.sweep()
    reconciler.close()
    assert report.done == ({"park": parked} if parked else {}), f"the sweep found something else: {report}"
    assert report.examined >= RECORDS


def _bare_scan(rig: Rig) -> None:
    """What reading the same fields costs without looking at anything else."""
    cursor, pattern, page = 0, f"{rig.records.keys.turn_prefix}*", WorkerSettings().reconcile_page
    while True:
        answer: Any = rig.redis.scan(cursor, match=pattern, count=page)
        cursor, keys = answer
        with rig.redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                if not key.endswith(":steps"):
                    pipeline.hmget(key, FIELDS)
            pipeline.execute()
        if not cursor:
            return


def _watched(rig: Rig, action: Callable[[], None]) -> tuple[float, Waits]:
    """Seconds of the action, and how another process that asks all the time was served meanwhile."""
    pinger = subprocess.Popen(
        [sys.executable, "-c", _PINGER, rig.redis_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert pinger.stdout is not None
    assert pinger.stdout.readline() == "ready\n"
    rig.redis.config_resetstat()
    seconds = seconds_of(action)
    said, _ = pinger.communicate()
    return seconds, Waits(*json.loads(said))


_HOW = (
    f"{RECORDS:,} records of {LEDGERS:,} ledgers, 5 KB each: seven of ten committed, the rest pending, running and "
    "parked in equal parts. One pass of the reconciler looks at each turn in Redis (record, lists, job) and in "
    "Postgres, beside it a pass of SCAN and HMGET of the same fields by the same client. `Redis itself` is by its own "
    "account: one look at one record, during which it serves nobody else. Meanwhile another process asks for a key, "
    "waits half a millisecond, and asks again; the longest wait also counts whatever else the machine does, so one is "
    "measured without any sweep."
)
