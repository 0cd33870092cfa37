"""`turnledger status` over real servers: every figure with its right value."""

from collections.abc import Callable

import pytest

from tests.commands import Printed
from tests.ledger_checks import wait_until
from tests.processes import Processes
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import CallRecord, LedgerName, Replied
from turnledger.store.retention import Retention
from turnledger.workers.cli import counting, figures
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.cli.status import run_status
from turnledger.workers.clock import CLOCK_LOCK

pytestmark = pytest.mark.usefixtures("named_servers")


def _start(node: Turns, number: int, *, ledger: LedgerName = LEAD) -> Turn:
    return begin(node, f"ask {number}", work_key=f"k{number}", ledger=ledger)


def _complete(node: Turns, number: int, *, ledger: LedgerName = LEAD) -> Turn:
    turn = _start(node, number, ledger=ledger)
    turn.complete(reply=Replied("Fixed"), steps=[user(f"ask {number}")], decision="done")
    return turn


def _park(node: Turns, number: int) -> Turn:
    turn = _start(node, number)
    turn.park(reason="authorization")
    return turn


def _set(stores: Stores, turn: Turn, **fields: str | int) -> None:
    stores.redis.hset(stores.keys.record(turn.turn_id), mapping=fields)  # type: ignore[arg-type]  # its names are texts


def test_what_retention_has_removed_is_counted(stores: Stores, node: Turns, printed: Printed) -> None:
    """In all, and since when (RT-4, OP-2)."""
    _complete(node, 1)
    stores.drain()
    stores.execute("UPDATE ledger_entry SET completed_at = now() - interval '31 days'")
    for _ in range(2):
        Retention(stores.database, least_age_s=1, batch_rows=10).sweep(stopped=lambda: False)
    run_status(output="json")
    status = printed()
    assert (status["swept_entries"], status["swept_events"]) == (1, 0)
    assert status["swept_since"] < status["swept_at"]
    run_status(output="text")


def test_every_figure_has_its_value(stores: Stores, node: Turns, printed: Printed) -> None:
    """Two ledgers with turns in every state (OP-2)."""
    other = LedgerName("lead", "jira:POC-8")
    for number in range(3):
        _complete(node, number)
    _complete(node, 3, ledger=other)
    stores.drain()
    pending = [_complete(node, number) for number in (10, 11)]
    running = [_start(node, number) for number in (20, 21, 22)]
    parked = [_park(node, number) for number in range(30, 34)]
    rejected = _complete(node, 40)
    stores.records.reject(rejected.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")
    _set(stores, running[0], blocked="cursor_ahead")
    _set(stores, parked[0], blocked="delivery_unknown")
    for turn in (running[1], parked[1], parked[2]):
        _set(stores, turn, replaced_by=1)
    _set(stores, pending[0], blocked="of no account once it is completed", replaced_by=1)
    stores.redis.zadd(stores.keys.quarantined, {"broken": 1})
    stores.redis.zincrby(stores.keys.backlog, -20_000, pending[0].turn_id)
    assert run_status(output="json") == 1
    status = printed()
    assert 20 <= status.pop("oldest_pending_s") < 50
    assert status.pop("redis_memory_bytes") > 100_000
    assert set(status.pop("blocked_turns")) == {running[0].turn_id, parked[0].turn_id}
    assert len(status.pop("attention")) == 3
    assert status == {
        "running": 3,
        "parked": 4,
        "blocked": 2,
        "replaced": 3,
        "pending": 2,
        "pending_limit": 100_000,
        "rejected": 1,
        "rejected_turns": [rejected.turn_id],
        "quarantined": 1,
        "quarantined_turns": ["broken"],
        "queued_jobs": 3,
        "queued_rewrites": 0,
        "failed_jobs": 0,
        "failed_turns": [],
        "redis_memory_share": None,
        "redis_memory_share_limit": 0.85,
        "late_commit": False,
        "late_rewriting": False,
        "workers": 0,
        "rewriters": 0,
        "upkeep": 0,
        "clock": False,
        "ledgers": 2,
        "turns": 4,
        "events": stores.head().next_seq + stores.head(other).next_seq,
        "estimated": False,
        "swept_entries": 0,
        "swept_events": 0,
        "swept_since": None,
        "swept_at": None,
    }
    for turn in running:
        turn.abandon()


def test_status_of_empty_servers_is_all_nothing(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-2"""
    assert run_status(output="text") == 0
    shown = capsys.readouterr().out
    assert "Nothing needs a person." in shown
    assert "it has no limit" in shown


def test_the_text_says_what_the_object_says(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-2"""
    _complete(node, 1)
    _park(node, 2)
    assert run_status(output="text") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for row in (
        "running turns 0 an engine",
        "parked turns 1 they wait",
        "pending turns 1 the oldest for",
        "queued jobs 1",
    ):
        assert row in shown


def test_many_turns_are_counted_step_by_step(
    stores: Stores, node: Turns, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one step holds, an index that names what is gone, a record that is none (OP-2)."""
    monkeypatch.setattr(counting, "READ_AT_ONCE", 10)
    parked = _park(node, 1)
    fields = stores.redis.hgetall(stores.keys.record(parked.turn_id))
    for number in range(300):
        turn_id = f"many-{number}"
        stores.redis.hset(stores.keys.record(turn_id), mapping=fields)  # type: ignore[arg-type]  # never awaited
        stores.redis.zadd(stores.keys.turns, {turn_id: number})
    stores.redis.zadd(stores.keys.turns, {"gone": 1, "no-hash": 2})
    stores.redis.set(stores.keys.record("no-hash"), "x")
    run_status(output="json")
    status = printed()
    assert (status["parked"], status["running"], status["blocked"]) == (301, 0, 0)


def test_a_rejected_turn_needs_a_person_and_is_named(stores: Stores, node: Turns, printed: Printed) -> None:
    """QU-6"""
    turn = _complete(node, 1)
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")
    assert run_status(output="json") == 1
    (sentence,) = printed()["attention"]
    assert f"1 turn rejected at the commit ({turn.turn_id})" in sentence
    assert "turnledger requeue" in sentence


def test_of_many_rejected_turns_ten_are_named(stores: Stores, node: Turns, printed: Printed) -> None:
    """QU-6"""
    for number in range(12):
        turn = _complete(node, number)
        stores.records.reject(turn.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")
    assert run_status(output="json") == 1
    status = printed()
    assert (status["rejected"], len(set(status["rejected_turns"]))) == (12, 10)
    assert "12 turns rejected" in status["attention"][0]
    assert "and 2 more" in status["attention"][0]


def test_a_blocked_turn_needs_a_person(stores: Stores, node: Turns, printed: Printed) -> None:
    """RC-3, RC-4"""
    turn = _park(node, 1)
    _set(stores, turn, blocked="delivery_unknown")
    assert run_status(output="json") == 1
    assert f"1 turn blocked for resume ({turn.turn_id})" in printed()["attention"][0]


def test_a_record_in_quarantine_needs_a_person(stores: Stores, printed: Printed) -> None:
    """RC-11"""
    stores.redis.zadd(stores.keys.quarantined, {"broken": 1})
    assert run_status(output="json") == 1
    assert "1 record unreadable and in quarantine (broken)" in printed()["attention"][0]


def test_a_turn_that_waits_for_too_long_needs_a_person(stores: Stores, node: Turns, printed: Printed) -> None:
    """FL-7"""
    turn = _complete(node, 1)
    stores.redis.zincrby(stores.keys.backlog, -61_000, turn.turn_id)
    assert run_status(output="json") == 1
    assert "no worker is alive" in printed()["attention"][0]


def test_a_turn_that_waits_for_its_rewriting_needs_a_person_where_nobody_rewrites(
    stores: Stores, printed: Printed
) -> None:
    """One that waits behind it is not late for itself (RW-5, OP-2)."""
    rewriting = stores.node(rewriting="on")
    turn, after = begin(rewriting), _start(rewriting, 2)
    turn.complete(reply=Replied("Done"), calls=[CallRecord("send", {"text": "x" * 500})])
    after.complete(reply=Replied("Done"))
    stores.records.stand(after.turn_id, ledger=LEAD)
    for each in (turn, after):
        stores.redis.zincrby(stores.keys.backlog, -61_000, each.turn_id)
    assert run_status(output="json") == 1
    status = printed()
    assert (status["queued_rewrites"], status["late_rewriting"], status["late_commit"]) == (1, True, False)
    (sentence,) = status["attention"]
    assert "turnledger worker --queue rewrites" in sentence


def test_a_queue_at_its_bound_is_warned_about(
    stores: Stores, node: Turns, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QU-14: at the very number from which a node commits directly."""
    monkeypatch.setenv("TURNLEDGER_PENDING_TURNS", "2")
    _complete(node, 1)
    assert run_status(output="json") == 0
    assert printed()["pending"] == 1
    _complete(node, 2)
    assert run_status(output="json") == 1
    assert "2 turns pending, and from 2 on engine nodes commit directly" in printed()["attention"][0]


def test_a_redis_that_fills_up_is_warned_about(stores: Stores, printed: Printed) -> None:
    """QU-14"""
    used = int(stores.redis.info("memory")["used_memory"])
    try:
        stores.redis.config_set("maxmemory", round(used / 0.5))
        assert run_status(output="json") == 0
        assert 0.3 < printed()["redis_memory_share"] < 0.7
        stores.redis.config_set("maxmemory", round(used / 0.9))
        assert run_status(output="json") == 1
    finally:
        stores.redis.config_set("maxmemory", 0)
    assert "of its memory limit, and beyond 85% engine nodes commit directly" in printed()["attention"][0]


def test_who_works_is_counted_by_office(stores: Stores, processes: Processes, printed: Printed) -> None:
    """A worker, an upkeep and no clock; then a clock (OP-2)."""
    environment = {DATABASE_URL: stores.database_url, REDIS_URL: stores.redis_url}
    for office in ("worker", "worker", "upkeep"):
        processes.command(office, environment=environment)
    _wait_until(lambda: stores.redis.scard("rq:workers") == 3)
    run_status(output="json")
    status = printed()
    assert (status["workers"], status["upkeep"], status["clock"]) == (2, 1, False)
    with stores.connection() as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [CLOCK_LOCK])
        run_status(output="json")
        assert printed()["clock"] is True


def test_a_large_table_of_ledgers_is_sampled(
    stores: Stores, printed: Printed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a look costs is bounded, and a figure that is an estimate is called that (OP-2)."""
    stores.execute(
        "INSERT INTO ledger (agent, conversation_key, next_seq, turn_count, history_version, visibility)"
        " SELECT 'lead', 'jira:' || number, 10, 2, 0, 'private' FROM generate_series(1, 5000) AS number"
    )
    assert run_status(output="json") == 0
    exact = printed()
    assert (exact["ledgers"], exact["turns"], exact["events"]) == (5_000, 10_000, 50_000)
    ((pages,),) = stores.rows("SELECT pg_relation_size('ledger') / current_setting('block_size')::bigint")
    assert pages > 40
    monkeypatch.setattr(figures, "MOST_PAGES", pages // 2)
    run_status(output="json")
    status = printed()
    assert status["estimated"]
    assert 1_000 < status["ledgers"] < 9_000
    assert status["events"] == pytest.approx(10 * status["ledgers"], abs=20)
    run_status(output="text")
    assert "about " in capsys.readouterr().out


def _wait_until(condition: Callable[[], bool]) -> None:
    wait_until(lambda: _assert(condition))


def _assert(condition: Callable[[], bool]) -> None:
    assert condition()
