"""A refresh of the dashboard with nothing pending and with 100,000 pending turns: it should not tell them apart."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from flask.testing import FlaskClient

from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.timing import seconds_of
from turnledger.checkpoint.keys import encode_ledger
from turnledger.store import LedgerName
from turnledger.workers.dashboard.app import create_app
from turnledger.workers.dashboard.settings import DashboardSettings
from turnledger.workers.dashboard.survey import Surveyor
from turnledger.workers.worker import rq_connection

PENDING, LEDGERS, PAGE = 100_000, 2_000, 1_000
REFRESHES = 300
FLAT = Goal("at most", 1.5)


def measure(rig: Rig) -> Report:
    """The same page, asked for again and again; beside it the count of turns by state, which does grow."""
    rig.empty()
    empty = _refreshes(rig)
    began_at_ms = round(time.time() * 1_000)
    for first in range(0, PENDING, PAGE):
        _seed(rig, range(first, first + PAGE), completed_at_ms=began_at_ms)
    full = _refreshes(rig)
    results = (
        Result("refresh, 100,000 pending", full.at_rest_ms, "ms", "none pending", empty.at_rest_ms, FLAT),
        Result("the same, while counting", full.counting_ms, "ms", "none pending", empty.at_rest_ms),
        Result("a count of 100,000 turns", full.count_s, "s", "none pending", empty.count_s),
    )
    return Report("n. The dashboard", _HOW, results)


@dataclass(frozen=True, slots=True)
class _Refreshes:
    """Medians of a refresh between two counts and while one is under way, and how long a count took."""

    at_rest_ms: float
    counting_ms: float
    count_s: float


def _refreshes(rig: Rig) -> _Refreshes:
    surveyor = Surveyor(rig.records, pause_s=3_600.0)
    rq = rq_connection(rig.records.settings)
    app = create_app(DashboardSettings(), records=rig.records, database=rig.database, rq=rq, surveyor=surveyor)
    count_s = seconds_of(surveyor.look)
    client = app.test_client()
    _refresh(client)  # connections are open and scripts loaded
    at_rest_ms = median(_refresh(client) for _ in range(REFRESHES))
    surveyor.start()
    counting_ms = median(_refresh(client) for _ in range(max(3, round(count_s * 10))))
    rq.close()
    return _Refreshes(at_rest_ms, counting_ms, count_s)


def _refresh(client: FlaskClient) -> float:
    began = time.perf_counter()
    answer = client.get("/figures")
    assert answer.status_code == 200
    return (time.perf_counter() - began) * 1_000


def _seed(rig: Rig, numbers: range, *, completed_at_ms: int) -> None:
    """Pending turns as `complete` leaves them, as far as a look at them goes."""
    keys = rig.records.keys
    with rig.redis.pipeline(transaction=False) as pipeline:
        for number in numbers:
            turn_id, ledger = f"bench-{number}", LedgerName("lead", f"jira:BENCH-{number % LEDGERS}")
            fields: dict[Any, Any] = {
                "state": "completed",
                "ledger": encode_ledger(ledger),
                "completed_at": completed_at_ms,
            }
            pipeline.hset(keys.record(turn_id), mapping={**fields, "entry": "x" * 500})
            pipeline.rpush(keys.pending(ledger), turn_id)
            pipeline.rpush(keys.queue, f"turn-{turn_id}")
            for index in (keys.turns, keys.backlog):
                pipeline.zadd(index, {turn_id: completed_at_ms})
        pipeline.execute()


_HOW = (
    f"The figures of the page, {REFRESHES} times, median. Turns by state are counted in the background, in the same "
    "process: that grows with the turns on their way, and takes a quarter of the time at most."
)
