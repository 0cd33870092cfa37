"""Logs name turns and never quote them: a mark in every text of many turns' lives is in no line that is logged."""

import json
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.endpoint import raw, saying, served
from tests.processes import Processes
from tests.stores import LEAD, Stores
from turnledger.checkpoint import Turn, Turns
from turnledger.store import (
    CallRecord,
    LedgerName,
    Message,
    Replied,
    Step,
    TurnledgerError,
    Undelivered,
    openai_step,
)
from turnledger.store.activity import tool_ended, tool_started
from turnledger.store.rewriting import Rewriting
from turnledger.workers.committer import Committer
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.rewriting import Fitter, OpenAIRewriter, RewriteSettings
from turnledger.workers.rewriting.asking import RewriterFor
from turnledger.workers.settings import WorkerSettings

MARK = "MARKED"
LONG = f"{MARK} " * 60
NOWHERE: dict[str, Any] = {"redis_url": "redis://127.0.0.1:1/0", "redis_connect_timeout_s": 0.2, "redis_retries": 0}
NO_POSTGRES: dict[str, Any] = {"database_url": "postgresql://nobody@127.0.0.1:1/none", "database_connect_timeout_s": 2}
# What a line is about where it is not one turn: all of a process, or a whole sweep.
OF_A_PROCESS = {
    "sweep_done",
    "invalidation_done",
    "leases_not_renewed",
    "revision_not_checked",
    "spool_not_replayed",
    "spool_of_another_deployment",
}


class Logged:
    """Everything that was logged, ours and that of libraries."""

    def __init__(self, lines: list[Any], caplog: pytest.LogCaptureFixture) -> None:
        self.lines, self._caplog = lines, caplog

    @property
    def text(self) -> str:
        return "\n".join([*map(repr, self.lines), self._caplog.text])

    @property
    def events(self) -> set[str]:
        return {str(line["event"]) for line in self.lines}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Logged]:
    """At every level."""
    caplog.set_level(logging.DEBUG)
    for library in ("openai", "httpx", "httpcore"):
        caplog.set_level(logging.WARNING, library)  # as the command line, which alone uses them, sets every library
    with capture_logs([merge_contextvars]) as lines:
        yield Logged(lines, caplog)


def start(node: Turns, number: int = 1, *, ledger: LedgerName = LEAD, work_key: str = "") -> Turn:
    return node.start(
        agent=ledger.agent,
        conversation=ledger.conversation,
        work_key=work_key,
        triggered_by=f"{MARK} ask",
        messages=[Message(f"m{number}", f"{MARK} message {number}", f"{MARK} sender")],
    )


def steps(call_id: str = "c1") -> list[Step]:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": json.dumps({MARK: LONG})}}
    return [
        openai_step({"role": "user", "content": f"{MARK} ask"}),
        openai_step({"role": "assistant", "content": f"{MARK} thought", "tool_calls": [call]}),
        openai_step({"role": "tool", "tool_call_id": call_id, "content": f"{MARK} result"}, error=LONG),
    ]


def complete(turn: Turn) -> None:
    turn.complete(
        reply=Replied(f"{MARK} reply"),
        steps=[openai_step({"role": "assistant", "content": f"{MARK} reply"})],
        set_out_to=f"{MARK} plan",
        reviewer=f"{MARK} review",
        outcome="blocked",
        blocked_on=f"{MARK} evidence",
    )


def raise_marked() -> str:
    raise ValueError(f"{MARK} vendor error")


def success(stores: Stores, node: Turns) -> None:
    turn = start(node)
    turn.save(steps=steps(), bootstrap={"text": MARK})
    turn.record(
        tool_started(turn.turn_id, call_id="c1", name="look"),
        tool_ended(turn.turn_id, call_id="c1", name="look", outcome="error"),
    )
    turn.park(reason="authorization", bootstrap={"text": MARK})
    complete(stores.node().resume(turn.turn_id))
    stores.drain()
    assert MARK in start(stores.node(), 2).earlier


def refused_input(stores: Stores, node: Turns) -> None:
    turn = start(node)
    for call in (
        lambda: turn.complete(reply=Replied(MARK), outcome=f"{MARK} outcome", blocked_on=MARK),
        lambda: turn.complete(reply=Replied(MARK), decision=MARK),
        lambda: turn.save(steps=steps()[:2]),
        lambda: turn.save(bootstrap={MARK: float("nan")}),
        lambda: turn.fail(MARK),
    ):
        with pytest.raises(TurnledgerError):
            call()


def same_message_with_other_words(stores: Stores, node: Turns) -> None:
    start(node)
    node.start(
        agent=LEAD.agent,
        conversation=LEAD.conversation,
        triggered_by=MARK,
        messages=[Message("m1", f"{MARK} other words")],
    )


def failure(stores: Stores, node: Turns) -> None:
    with pytest.raises(ValueError, match=MARK):
        start(node, 1).deliver(raise_marked, reply=f"{MARK} reply")
    with pytest.raises(ValueError, match=MARK):
        start(node, 2).fail("model_execution_failed", failure_id="f-1", notify=raise_marked)
    start(node, 3).deliver(lambda: MARK * 200, reply=f"{MARK} reply")  # a receipt that can name no message
    start(node, 4).abandon()
    stores.drain()


def compaction(stores: Stores, node: Turns) -> None:
    other = start(node, 1)
    turn = start(node, 2)
    turn.save(steps=steps())
    summary = [openai_step({"role": "user", "content": f"{MARK} summary"})]
    turn.compact(turn.history_to_replace(), steps=summary, model="m-1")
    child = turn.open_child("helper", steps=summary, model="m-1")
    turn.end_child(child, outcome="done")
    complete(turn)
    complete(other)
    stores.drain()


def rejection(stores: Stores, node: Turns) -> None:
    damages: list[dict[str, str]] = [
        {"entry": f'{{"turn_id": "{MARK}"'},
        {"entry": f'{{"a": "{MARK}\x00"}}'},
        {"entry": f'{{"reply": "{MARK}"}}', "fitting": "names"},
        {"events": f'["{MARK}"]'},
        {"entry_id": MARK},
        {"completed_at": MARK},
    ]
    turns = [start(node, number) for number in range(len(damages))]
    for turn, damage in zip(turns, damages, strict=True):
        complete(turn)
        stores.redis.hset(stores.keys.record(turn.turn_id), mapping=damage)  # type: ignore[arg-type]  # texts
    committer = Committer(records=stores.records, database=stores.database, settings=WorkerSettings())
    while (job := stores.redis.lpop(stores.keys.queue)) is not None:
        with suppress(TurnledgerError):
            committer.persist(str(job).removeprefix("turn-"))
    assert stores.redis.llen(stores.keys.rejected(LEAD)) == len(damages)


def stored_damage(stores: Stores, node: Turns) -> None:
    members: dict[str, object] = {"turn_id": "t", "entry_id": "e", "reply": {"kind": "no_reply_owed"}}
    damages: list[dict[str, object]] = [
        {"reply": {"kind": MARK}},
        {"outcome": MARK, "blocked_on": MARK},
        {"decision": f"{MARK} {MARK}"},
        {"calls": [{"name": MARK, "arguments": {}, "outcome": MARK}]},
        {"completed_at": MARK},
    ]
    for number, damage in enumerate(damages):
        complete(start(node, number))
        stores.drain()
        damaged = json.dumps({**members, **damage})
        stores.execute("UPDATE ledger_entry SET entry = %s WHERE ordinal = %s", damaged, number + 1)
    assert "(5 earlier turns are stored but could not be read.)" in start(node, 9).earlier


def reconciliation(stores: Stores, node: Turns) -> None:
    turns = [start(node, number) for number in range(4)]
    for turn in turns:
        turn.save(steps=steps())
    complete(turns[0])
    complete(turns[1])
    stores.redis.hset(stores.keys.record(turns[1].turn_id), "cursor", MARK)
    stores.redis.hset(stores.keys.record(turns[2].turn_id), "triggered_by", MARK)
    stores.redis.hset(stores.keys.record(turns[3].turn_id), mapping={"ledger": MARK, "message_ids": MARK})
    stores.redis.delete(stores.keys.queue)
    reconciler = Reconciler(records=stores.records, database=stores.database, settings=WorkerSettings())
    reconciler.sweep()
    reconciler.close()


def no_redis(stores: Stores, node: Turns) -> None:
    turn = start(stores.node(**NOWHERE))
    turn.save(steps=steps())
    complete(turn)
    assert len(stores.entries()) == 1


def spool(stores: Stores, node: Turns) -> None:
    turn = start(stores.node(store=NO_POSTGRES, **NOWHERE))
    turn.save(steps=steps())
    complete(turn)
    assert turn.spooled is not None
    assert MARK in turn.spooled.read_text()
    node.recover()  # of a place that this node does not work at
    ours = turn.spooled.rename(turn.spooled.with_name(f"{turn.turn_id}.1.{stores.deployment_id}.turn.json"))
    ours.write_text(f'{{"{MARK}": "{MARK}"}}')
    start(stores.node(), 2)


def no_postgres(stores: Stores, node: Turns) -> None:
    turn = start(stores.node(store=NO_POSTGRES))
    assert turn.history_error is not None
    turn.complete(reply=Undelivered(MARK), calls=[CallRecord(MARK, {"x": LONG}, "error", LONG)])
    stores.drain()


def rewriting(stores: Stores, node: Turns) -> None:
    engine = stores.node(rewriting="on")
    answers = [
        saying(f"{MARK} account"),
        saying(f"{MARK} " * 200),
        raw(f'{{"error": {{"message": "{MARK}"}}}}'.encode(), status=400),
        raw(f"{MARK} is no JSON".encode()),
    ]
    with served() as endpoint:
        settings = RewriteSettings(rewrite_base_url=endpoint.url, rewrite_model="small", rewrite_key=SecretStr(MARK))
        rewriter = OpenAIRewriter(settings)
        for number, answer in enumerate(answers):
            endpoint.says(answer)
            turn = start(engine, number)
            turn.complete(reply=Replied(MARK), calls=[CallRecord("send", {MARK: f"{number} {LONG}"}, "success")])
            _fit(stores, turn, rewriter.within)
    turn = start(engine, 9)
    turn.complete(reply=Replied(MARK), calls=[CallRecord("send", {MARK: LONG}, "success")])
    _fit(stores, turn, lambda _: nullcontext(_Raising()))


class _Raising:
    """A rewriter of a deployment's own."""

    def rewrite(self, text: str, *, question: str, budget_bytes: int, agent: str) -> Rewriting:
        raise ValueError(f"{text} cannot be rewritten")


def _fit(stores: Stores, turn: Turn, rewriter: RewriterFor) -> None:
    fitter = Fitter(
        records=stores.records, rewriter=rewriter, within_s=30.0, settings=WorkerSettings(), stopped=lambda: False
    )
    fitter.fit(turn.turn_id)
    stores.drain()


LIVES: dict[str, tuple[Callable[[Stores, Turns], None], set[str]]] = {
    "success": (success, {"prompt.size", "turn_decided"}),
    "refused input": (refused_input, set()),
    "another text of a message": (same_message_with_other_words, {"event_key_conflict"}),
    "failure": (failure, {"receipt_not_usable"}),
    "compaction": (compaction, {"history_replaced"}),
    "rejection": (rejection, {"turn_rejected", "commit_refused"}),
    "damage in Postgres": (stored_damage, {"entry_unreadable"}),
    "reconciliation": (reconciliation, {"turn_reconciled"}),
    "rewriting": (rewriting, {"turn_rewritten", "rewrite_call_failed", "rewrite_answer_unusable", "rewriter_failed"}),
    "no Redis": (no_redis, {"turn_unsaved", "save_failed", "turn_not_queued"}),
    "spool": (spool, {"turn_spooled", "spool_of_another_deployment", "spool_not_replayed", "history_not_read"}),
    "no Postgres": (no_postgres, {"start_not_recorded", "history_not_read"}),
}


@pytest.mark.parametrize("life", LIVES)
def test_no_line_quotes_a_turn(stores: Stores, node: Turns, logged: Logged, life: str) -> None:
    """Whatever becomes of it; and every line says which turn or ledger it is about (OP-7)."""
    lived, expected = LIVES[life]
    lived(stores, node)
    assert expected <= logged.events
    quoting = [line for line in logged.lines if MARK in repr(line)]
    assert not quoting, "\n".join(map(repr, quoting))
    assert MARK not in logged.text
    for line in logged.lines:
        named = {"turn_id", "turn_ids", "job_id"} & line.keys()
        assert named or line["event"] in OF_A_PROCESS, line
        if "turn_id" in line:
            assert {"agent", "conversation"} <= line.keys(), line


def test_no_line_of_a_worker_process_quotes_a_turn(stores: Stores, node: Turns, processes: Processes) -> None:
    """What it prints at the level DEBUG, RQ's own lines included; its job is named (OP-7)."""
    turns = [start(node, number) for number in range(3)]
    for turn in turns:
        turn.save(steps=steps())
        complete(turn)
    stores.redis.hset(stores.keys.record(turns[1].turn_id), "entry", f'{{"turn_id": "{MARK}"')
    environment = {
        "TURNLEDGER_DATABASE_URL": stores.database_url,
        "TURNLEDGER_REDIS_URL": stores.redis_url,
        "TURNLEDGER_LOG_LEVEL": "DEBUG",
    }
    worker = processes.command("worker", "--burst", environment=environment)
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.output.splitlines()]
    assert {"turn_decided", "turn_rejected"} <= {line["event"] for line in lines}
    assert {line["job_id"] for line in lines if "turn_id" in line} == {f"turn-{turn.turn_id}" for turn in turns}
    assert MARK not in worker.output


def test_no_line_of_any_other_process_quotes_a_turn(stores: Stores, node: Turns, processes: Processes) -> None:
    """Of the clock that commits it, of upkeep that repairs it, of the dashboard, at the level DEBUG (OP-7)."""
    other = LedgerName("lead", "jira:POC-8")
    committed, broken, lost = start(node, 1), start(node, 2, ledger=other), start(node, 3)
    for turn in (committed, broken, lost):
        turn.save(steps=steps())
    complete(committed)
    complete(broken)
    lost.park(reason="authorization", bootstrap={"text": MARK})
    stores.redis.hset(stores.keys.record(broken.turn_id), "entry", f'{{"turn_id": "{MARK}"')
    stores.redis.hset(stores.keys.record(lost.turn_id), "ledger", MARK)
    stores.redis.delete(stores.keys.queue)
    environment = {
        "TURNLEDGER_DATABASE_URL": stores.database_url,
        "TURNLEDGER_REDIS_URL": stores.redis_url,
        "TURNLEDGER_LOG_LEVEL": "DEBUG",
        **{f"TURNLEDGER_{name}_S": "0.2" for name in ("OVERDUE", "SWEEP", "RECONCILE")},
    }
    commands = (["clock"], ["upkeep"], ["dashboard", "--port", "0", "--quiet"])
    started = [processes.command(*command, environment=environment) for command in commands]
    clock, upkeep, dashboard = started
    clock.wait_for_line("turn_decided")
    clock.wait_for_line("overdue_ledger_in_trouble")
    upkeep.wait_for_line("turn_reconciled")
    for process in started:
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    lines = [json.loads(line) for process in started for line in process.output.splitlines()]
    assert MARK not in str(lines)
    assert [line for line in lines if "turn_id" in line and not {"agent", "conversation"} <= line.keys()] == []
    assert dashboard.output == ""
