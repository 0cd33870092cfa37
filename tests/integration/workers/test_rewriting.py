"""A turn with something over-long in it, from completion to commit: accounts where there are any, else names."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.endpoint import DEFAULT_TOKENS, Endpoint, Handler, closing_in_the_middle, computing, raw, saying, served
from tests.engine import Engine, within
from tests.failover import fail_over, replica_of
from tests.ledger_checks import wait_for, wait_until
from tests.processes import PATIENCE_S, Processes
from tests.proxy import Proxy
from tests.rewriting import ACCOUNT, ANOTHER, LONG, Fitting, answering, complete_long, entries, lose_job, named, sent
from turnledger.checkpoint import CheckpointSettings, CheckpointUnavailable
from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.records import Records
from turnledger.store import CallRecord, NoReplyOwed
from turnledger.store.fitting import name_payload
from turnledger.store.rewriting import Rewriter, Rewriting
from turnledger.workers.draining import drain
from turnledger.workers.errors import RewritingPostponed
from turnledger.workers.reconciler import Finding, Reconciler
from turnledger.workers.rewriting import Fitter
from turnledger.workers.rewriting.time_left import TimeLeft
from turnledger.workers.settings import WorkerSettings

RQ = "import sys; sys.argv[0] = 'rq'; sys.path.insert(0, ''); from rq.cli import main; sys.exit(main())"


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    """A deployment that rewrites."""
    return {"rewriting": "on"}


@pytest.fixture
def fitting(engine: Engine, endpoint: Endpoint) -> Fitting:
    return Fitting(engine, endpoint)


@pytest.fixture
def reconciler(engine: Engine) -> Iterator[Reconciler]:
    made = Reconciler(records=engine.records, database=engine.database, settings=WorkerSettings(overdue_s=1e-9))
    yield made
    made.close()


def spent(engine: Engine) -> int:
    return Budgets(engine.records).balances().deployment.spent


def test_an_over_long_argument_is_committed_as_its_account(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """All else is as it was, numbers as numbers; nothing is committed before (RW-1, RW-5)."""
    turn = complete_long(engine)
    assert (fitting.queued(), engine.queued()) == ([f"fit-{turn.turn_id}"], [])
    fitting.run_all()
    assert (fitting.queued(), engine.queued()) == ([], [f"turn-{turn.turn_id}"])
    engine.commit_all()
    (call,) = entries(engine)[turn.turn_id]["calls"]
    assert call["arguments"] == {"text": ACCOUNT, "copies": 3}
    assert endpoint.texts == [LONG]
    assert engine.redis.keys("rq:*") == ["rq:queues"]


def test_only_what_is_over_long_is_sent_and_a_repeated_piece_once(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """An object is one piece, a failed call's error another; short values go nowhere (RW-1)."""
    turn = engine.start()
    calls = (
        CallRecord("send", {"text": LONG, "again": LONG, "to": "me"}, "success"),
        CallRecord("save", {"data": {"text": LONG}, "count": 10**300}, "error", ANOTHER),
    )
    turn.complete(reply=NoReplyOwed(), calls=calls, set_out_to=LONG)
    fitting.run_all()
    engine.commit_all()
    assert endpoint.texts == [LONG, json.dumps({"text": LONG}, separators=(",", ":")), ANOTHER]
    assert "what went wrong" in endpoint.asked[2].instructions
    first, second = entries(engine)[turn.turn_id]["calls"]
    assert first["arguments"] == {"text": ACCOUNT, "again": ACCOUNT, "to": "me"}
    assert (second["arguments"], second["error"]) == ({"data": ACCOUNT, "count": 10**300}, ACCOUNT)
    assert entries(engine)[turn.turn_id]["set_out_to"] == LONG


def test_an_account_of_200_bytes_with_its_prefix_fits_and_no_more(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """(RW-1)"""
    endpoint.says(computing(lambda asked: "é" * 94 if asked.text == LONG else "é" * 94 + "x"))
    turn = complete_long(engine, LONG, ANOTHER)
    fitting.run_all()
    engine.commit_all()
    fits, misses = sent(engine, turn)
    assert len(fits.encode()) == 200
    assert misses == name_payload(ANOTHER)


TROUBLE: dict[str, Handler] = {
    "it fails": raw(b"", status=500),
    "it has nothing to say": saying("  "),
    "it says too much, twice": saying("x" * 300),
    "it speaks no UTF-8": raw(b"\xff\xfe"),
    "it sends us elsewhere": raw(b"", status=302, headers={"Location": "http://127.0.0.1:1/"}),
    "it hangs up": closing_in_the_middle,
}


@pytest.mark.parametrize("what", TROUBLE)
def test_whatever_the_model_does_the_entry_is_written_with_names(
    engine: Engine, endpoint: Endpoint, fitting: Fitting, what: str
) -> None:
    """Nothing is asked again and again, no content or key is logged, and the budget is drawn upon (RW-3, RW-4)."""
    endpoint.says(TROUBLE[what])
    turn = complete_long(engine)
    with capture_logs() as logs:
        fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)
    assert len(endpoint.asked) == (2 if "twice" in what else 1)
    assert "letter" not in json.dumps(logs)
    assert "sk-1" not in json.dumps(logs)
    assert (spent(engine) == 0) == (what in ("it fails", "it sends us elsewhere"))


def test_without_a_rewriter_a_turn_has_names(engine: Engine) -> None:
    """Also where only the engine nodes were told that there is one (RW-3)."""
    turn = complete_long(engine)
    Fitting(engine, None).run_all()
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)


def _raises() -> Rewriting:
    raise RuntimeError(LONG)


@pytest.mark.parametrize(
    "does",
    [_raises, lambda: Rewriting("x" * 189, 5), lambda: Rewriting("\ud800", 5), lambda: Rewriting(" ", 5)],
    ids=["raises", "says too much", "says no text", "says nothing"],
)
def test_a_rewriter_that_breaks_the_protocol_gives_names(engine: Engine, does: Callable[[], Rewriting]) -> None:
    """And what it says it spent is spent (RW-2, RW-3, RW-4)."""
    turn = complete_long(engine)
    with capture_logs() as logs:
        _fitter(engine, answering(does)).fit(turn.turn_id)
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)
    assert spent(engine) == (0 if does is _raises else 5)
    assert "letter" not in json.dumps(logs)


def test_a_rewriter_that_cannot_be_made_gives_names(engine: Engine) -> None:
    """A broken installation holds up no turn (RW-3)."""
    turn = complete_long(engine)

    def broken(_: object) -> AbstractContextManager[Rewriter]:
        raise ImportError("no such client")

    _fitter(engine, broken).fit(turn.turn_id)
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)


def _fitter(engine: Engine, rewriter: Callable[[TimeLeft], AbstractContextManager[Rewriter]]) -> Fitter:
    settings = WorkerSettings()
    return Fitter(records=engine.records, rewriter=rewriter, within_s=30, settings=settings, stopped=lambda: False)


def test_a_damaged_record_is_left_to_the_commit(engine: Engine, endpoint: Endpoint, fitting: Fitting) -> None:
    """Which sets it aside with its reason, as ever (QU-6)."""
    turn = complete_long(engine)
    engine.redis.hset(engine.keys.record(turn.turn_id), "entry", "not json")
    fitting.run_all()
    assert engine.queued() == [f"turn-{turn.turn_id}"]
    assert endpoint.asked == []
    with pytest.raises(Exception, match="was refused"):
        engine.commit_all()
    assert engine.state(turn.turn_id) == "rejected"


@pytest.mark.parametrize("whose", ["the agent's", "the deployment's"])
def test_without_budget_no_call_is_made(engine: Engine, endpoint: Endpoint, fitting: Fitting, whose: str) -> None:
    """Spend counts whole, past the ceiling; the next piece then has its name (RW-4)."""
    budgets = Budgets(engine.records)
    budgets.set_limit(1, agent="lead" if whose == "the agent's" else None)
    turn = complete_long(engine, LONG, ANOTHER)
    fitting.run_all()
    later = complete_long(engine)
    fitting.run_all()
    engine.commit_all()
    assert len(endpoint.asked) == 1
    assert sent(engine, turn) == [ACCOUNT, *named(ANOTHER)]
    assert sent(engine, later) == named(LONG)
    assert budgets.balances().agents["lead"].spent == DEFAULT_TOKENS


def test_a_budget_that_cannot_be_read_counts_as_room(engine: Engine, endpoint: Endpoint, fitting: Fitting) -> None:
    """And one that cannot be written stops nothing (RW-4)."""
    engine.redis.set(f"{engine.settings.prefix}:budgets", "of another type")
    Budgets(engine.records).spend(agent="lead", tokens=1)
    for key in engine.redis.keys("{turnledger}:spend:[0-9]*"):
        engine.redis.delete(key)
        engine.redis.set(key, "of another type")
    turn = complete_long(engine)
    fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]
    assert len(endpoint.asked) == 1


def test_an_engines_own_spending_is_drawn_from_the_same_budget(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """(RW-4)"""
    engine.turns.budgets.set_limit(1_000, agent="lead")
    engine.turns.budgets.spend(agent="lead", tokens=1_000)
    complete_long(engine)
    fitting.run_all()
    assert endpoint.asked == []


def test_a_completion_that_a_budget_ended_has_names_at_once(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """No call, no wait (RW-4)."""
    turn = complete_long(engine, fitting="names")
    assert (fitting.queued(), engine.queued()) == ([], [f"turn-{turn.turn_id}"])
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)
    assert endpoint.asked == []


def test_where_rewriting_is_off_a_turn_has_names_at_once(database_url: str, redis_url: str) -> None:
    """As by default (RW-3)."""
    engine = Engine(database_url, redis_url)
    turn = complete_long(engine)
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)
    engine.close()


def test_a_turn_with_nothing_over_long_waits_for_nobody(engine: Engine, fitting: Fitting) -> None:
    """A rewriter is asked only when something needs rewriting (RW-4)."""
    turn = complete_long(engine, "short enough")
    assert fitting.queued() == []
    engine.commit_all()
    assert sent(engine, turn) == ["short enough"]


def test_only_that_ledgers_later_turns_wait(engine: Engine, fitting: Fitting) -> None:
    """Their jobs end at once, neither failed nor spinning; then all are committed in order (RW-5, QU-3)."""
    before = engine.play()
    long = complete_long(engine)
    after = [engine.play() for _ in range(3)]
    other = engine.play("jira:OTHER-1")
    with within():
        engine.commit_all()
    assert set(entries(engine)) == {before.turn_id, other.turn_id}
    assert engine.pending(long.ledger) == [long.turn_id, *(turn.turn_id for turn in after)]
    assert engine.redis.hget(engine.keys.record(after[0].turn_id), "attempts") == "0"
    fitting.run_all()
    assert engine.queued() == [f"turn-{long.turn_id}"]
    engine.commit_all()
    lead = [turn_id for turn_id in entries(engine) if turn_id != other.turn_id]
    assert lead == [before.turn_id, long.turn_id, *(turn.turn_id for turn in after)]
    assert sent(engine, long) == [ACCOUNT]


def test_two_that_wait_in_one_ledger_are_waited_for_in_turn(engine: Engine, fitting: Fitting) -> None:
    """What stands between them is committed with the first (RW-5, QU-3)."""
    first = complete_long(engine)
    between = engine.play()
    second = complete_long(engine)
    last = engine.play()
    engine.commit_all()
    assert entries(engine) == {}
    fitting.fitter().fit(first.turn_id)
    engine.commit_all()
    assert list(entries(engine)) == [first.turn_id, between.turn_id]
    fitting.fitter().fit(second.turn_id)
    engine.commit_all()
    assert list(entries(engine)) == [first.turn_id, between.turn_id, second.turn_id, last.turn_id]


def test_the_next_turn_sees_one_that_waits_by_names(engine: Engine, endpoint: Endpoint) -> None:
    """A start asks no model (BL-9, RW-5)."""
    complete_long(engine)
    block = engine.start().earlier
    assert name_payload(LONG) in block
    assert "a long letter" not in block
    assert endpoint.asked == []


def test_a_node_that_brings_pending_turns_along_asks_no_model(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """They have names at once; the rewriting then finds nothing to do (RW-5)."""
    turn = complete_long(engine)
    engine.start().history_to_replace()
    assert sent(engine, turn) == named(LONG)
    fitting.run_all()
    engine.commit_all()
    assert endpoint.asked == []
    assert engine.queued() == []


def test_a_direct_commit_has_names_for_all_at_once(database_url: str, redis_url: str, endpoint: Endpoint) -> None:
    """For its own turn, and for those it was built on (RW-5, QU-14)."""
    engine = Engine(database_url, redis_url, rewriting="on", pending_turns=1)
    first = complete_long(engine)
    second = complete_long(engine, ANOTHER)
    assert list(entries(engine)) == [first.turn_id, second.turn_id]
    assert [sent(engine, turn) for turn in (first, second)] == [named(LONG), named(ANOTHER)]
    assert endpoint.asked == []
    engine.close()


def test_a_drain_has_names_for_all_at_once(engine: Engine) -> None:
    """No worker could store an account in a full Redis (FL-10, RW-5)."""
    turn, after = complete_long(engine), engine.play()
    engine.redis.config_set("maxmemory", "1")
    try:
        assert drain(records=engine.records, database=engine.database) == 2
    finally:
        engine.redis.config_set("maxmemory", "0")
    assert list(entries(engine)) == [turn.turn_id, after.turn_id]
    assert sent(engine, turn) == named(LONG)


def test_a_turn_that_nobody_begins_to_rewrite_is_waited_for_only_so_long(database_url: str, redis_url: str) -> None:
    """Then the clock commits it with names, and what waits behind it (RW-5)."""
    patient = Engine(database_url, redis_url, rewriting="on")
    engine = Engine(database_url, redis_url, rewriting="on", rewrite_wait_s=1e-3)
    waits = complete_long(patient, conversation="jira:WAITS-1")
    turn, after = complete_long(engine), engine.play()
    with within():
        while len(entries(engine)) < 2:
            engine.clock().sweep()
    assert list(entries(engine)) == [turn.turn_id, after.turn_id]
    assert sent(engine, turn) == named(LONG)
    assert engine.state(waits.turn_id) == "completed"
    for each in (patient, engine):
        each.close()


def test_a_job_of_rewriting_that_was_deleted_loses_no_turn(engine: Engine, endpoint: Endpoint) -> None:
    """The clock commits the turn with names, and those whose jobs ended behind it (QU-12)."""
    turn, after = complete_long(engine), engine.play()
    kept = complete_long(engine, conversation="jira:KEPT-1")
    engine.commit_all()
    lose_job(engine, turn)
    assert engine.clock().tick() == 2
    assert list(entries(engine)) == [turn.turn_id, after.turn_id]
    assert sent(engine, turn) == named(LONG)
    assert engine.state(kept.turn_id) == "completed"
    assert endpoint.asked == []


def swept(reconciler: Reconciler) -> list[tuple[str, str]]:
    found: list[Finding] = []
    report = reconciler.sweep(tell=found.append)
    assert (report.changed, report.postponed) == (0, 0)
    return [(finding.turn_id, finding.action.do.value) for finding in found]


def test_the_reconciler_knows_that_a_turn_may_wait(engine: Engine, fitting: Fitting, reconciler: Reconciler) -> None:
    """However long it is pending: neither it nor what stands behind it needs anything (RC-6, RC-14)."""
    complete_long(engine)
    engine.play()
    engine.commit_all()
    engine.play()
    before = engine.queued()
    assert swept(reconciler) == []
    assert engine.queued() == before
    assert len(fitting.queued()) == 1


def test_the_reconciler_makes_the_job_of_a_rewriting_again(
    engine: Engine, fitting: Fitting, reconciler: Reconciler
) -> None:
    """Once, however often it sweeps: jobs do not pile up (RC-14, QU-12)."""
    turn = complete_long(engine)
    lose_job(engine, turn)
    assert swept(reconciler) == [(turn.turn_id, "make a job")]
    assert swept(reconciler) == []
    assert (fitting.queued(), engine.queued()) == ([f"fit-{turn.turn_id}"], [])
    fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]


def test_a_turn_behind_one_that_was_rewritten_is_committed_by_a_sweep(
    engine: Engine, fitting: Fitting, reconciler: Reconciler
) -> None:
    """Although its own job has ended, and the commit of the first went by without it (RC-6, RC-14)."""
    turn, after = complete_long(engine), engine.play()
    engine.commit_all()
    fitting.run_all()
    engine.redis.delete(engine.keys.queue, engine.keys.job(turn.turn_id))
    assert (after.turn_id, "make a job") in swept(reconciler)
    assert list(entries(engine)) == [turn.turn_id, after.turn_id]
    assert swept(reconciler) == []


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_job_that_failed_behind_one_that_waits_is_not_made_again_and_again(
    engine: Engine, fitting: Fitting, reconciler: Reconciler, status: str
) -> None:
    """It needs none until that one is done (RC-14)."""
    complete_long(engine)
    after = engine.play()
    engine.redis.delete(engine.keys.queue)
    engine.redis.hset(engine.keys.job(after.turn_id), "status", status)
    assert swept(reconciler) == []
    fitting.run_all()
    engine.commit_all()
    assert (after.turn_id, "make a job") in swept(reconciler)
    assert after.turn_id in entries(engine)


@pytest.mark.parametrize("how", ["twice in a row", "after the commit", "by two at once"])
def test_a_rewriting_that_is_done_again_changes_nothing(
    engine: Engine, endpoint: Endpoint, fitting: Fitting, how: str
) -> None:
    """At-least-once delivery, one entry, one commit (QU-4)."""
    turn = complete_long(engine)
    if how == "by two at once":
        endpoint.says(computing(lambda _: _fit_meanwhile(fitting, endpoint, turn.turn_id)))
    fitting.fitter().fit(turn.turn_id)
    if how == "after the commit":
        engine.commit_all()
    fitting.fitter().fit(turn.turn_id)
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]
    assert engine.redis.keys("rq:job:turn-*") == []


def _fit_meanwhile(fitting: Fitting, endpoint: Endpoint, turn_id: str) -> str:
    endpoint.says(saying("short"))
    fitting.fitter().fit(turn_id)
    return "too late"


def test_a_commit_with_names_is_not_overruled_by_an_account_that_comes_later(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """The node that committed meanwhile asked nobody (RW-5)."""
    turn = complete_long(engine)

    def answer(_: object) -> str:
        engine.start().history_to_replace()
        return "short"

    endpoint.says(computing(answer))
    fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)
    assert engine.state(turn.turn_id) == "committed"


def test_a_worker_that_is_to_stop_puts_the_rewriting_back(engine: Engine, endpoint: Endpoint, fitting: Fitting) -> None:
    """After the call in hand; another worker goes on in what is left of the turn's time (OP-6, RW-5)."""
    stop = threading.Event()

    def answer(_: object) -> str:
        stop.set()
        return "short"

    endpoint.says(computing(answer))
    turn = complete_long(engine, LONG, ANOTHER)
    with pytest.raises(RewritingPostponed):
        fitting.fitter(stopped=stop.is_set).fit(turn.turn_id)
    assert engine.queued() == []
    fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT, ACCOUNT]
    assert endpoint.texts == [LONG, ANOTHER]


def test_a_turns_time_is_up_whatever_becomes_of_its_worker(
    engine: Engine, endpoint: Endpoint, fitting: Fitting
) -> None:
    """Whoever commits then takes it with names; the worker that still sits there stores nothing (RW-5)."""

    committed: list[str] = []

    def sweep() -> None:
        engine.clock().sweep()
        assert entries(engine)

    def answer(_: object) -> str:
        wait_until(sweep)
        committed.extend(entries(engine))
        return "short"

    endpoint.says(computing(answer))
    turn = complete_long(engine)
    fitting.fitter(within_s=1.0).fit(turn.turn_id)
    wait_for(lambda: committed == [turn.turn_id])
    engine.commit_all()
    assert sent(engine, turn) == named(LONG)


def test_pieces_for_which_no_time_is_left_have_names(engine: Engine, endpoint: Endpoint, fitting: Fitting) -> None:
    """Those that have their accounts keep them (RW-5)."""
    released = threading.Event()
    endpoint.says(saying("short"), lambda handler, _: (released.wait(PATIENCE_S), handler.connection.close())[-1])
    turn = complete_long(engine, LONG, ANOTHER)
    fitting.fitter(within_s=4.0).fit(turn.turn_id)
    released.set()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT, *named(ANOTHER)]


def test_redis_that_goes_away_in_the_middle_loses_nothing(engine: Engine, endpoint: Endpoint, fitting: Fitting) -> None:
    """The job goes back, and what was paid for is not paid for again (RW-5, QU-7)."""
    turn = complete_long(engine)
    with Proxy(engine.redis_url) as proxy:
        settings = CheckpointSettings(redis_url=proxy.url, redis_retries=0, rewriting="on")
        records = Records.from_settings(settings)

        def answer(_: object) -> str:
            proxy.cut()
            return "short"

        endpoint.says(computing(answer))
        fitter = fitting.fitter(records=records)
        with capture_logs() as logs, pytest.raises(CheckpointUnavailable):
            fitter.fit(turn.turn_id)
        assert "spending_not_counted" in [line["event"] for line in logs]
        assert engine.queued() == []
        proxy.restore()
        fitter.fit(turn.turn_id)
        records.redis.close()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]
    assert len(endpoint.asked) == 1


def test_a_redis_that_is_full_gets_names_once_the_time_is_up(engine: Engine, fitting: Fitting) -> None:
    """No write is needed for that (FL-10, RW-5)."""
    turn = complete_long(engine)
    fitter = fitting.fitter(within_s=3.0)

    def fill(_: object) -> str:
        engine.redis.config_set("maxmemory", "1")
        return "short"

    try:
        with served() as endpoint:
            endpoint.says(computing(fill))
            full = Fitting(engine, endpoint)
            with pytest.raises(CheckpointUnavailable):
                full.fitter(within_s=3.0).fit(turn.turn_id)
            with within():
                while not entries(engine):
                    engine.committer().commit_ledger(turn.ledger)
    finally:
        engine.redis.config_set("maxmemory", "0")
    assert sent(engine, turn) == named(LONG)
    fitter.fit(turn.turn_id)


def test_stock_workers_of_rq_rewrite_too(engine: Engine, endpoint: Endpoint, processes: Processes) -> None:
    """A stock worker forks for every job, and has the same result (QU-9)."""
    turn = complete_long(engine)
    named_here = {"TURNLEDGER_REWRITE_BASE_URL": endpoint.url, "TURNLEDGER_REWRITE_MODEL": "small"}
    arguments = ["worker", "--url", engine.redis_url, "--serializer", "json", "--burst", "rewrites"]
    stock = processes.snippet(RQ, *arguments, environment=engine.environment(**named_here))
    assert stock.wait() == 0
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]


def test_a_failover_that_lost_the_account_has_it_made_again(engine: Engine, fitting: Fitting) -> None:
    """Or names: the record went back, and its job is made anew (FL-8, RC-14)."""
    turn = complete_long(engine)
    before = replica_of(engine.redis_url)
    fitting.run_all()
    fail_over(engine.redis_url, to=before)
    fitting.run_all()
    engine.commit_all()
    assert sent(engine, turn) == [ACCOUNT]
