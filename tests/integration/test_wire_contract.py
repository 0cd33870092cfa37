"""An engine without the library (tests/wire) beside nodes with it, on the same turns, over real servers.

It knows what docs/reference/wire-contract.md says: the statements are the page's own text, the scripts those that
`turnledger wire` prints, and all calls are compared with the page's tables.
"""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.access import postgres_login, redis_user
from tests.ledger_checks import check_at_rest, wait_until
from tests.processes import Processes
from tests.reconciling import lapse, sweep
from tests.stores import LEAD, Stores, begin, contents, user
from tests.wire import page
from tests.wire.engine import Engine, Refused, Turn, completion_fields
from tests.wire.forms import step_text
from tests.wire.servers import Servers
from tests.wire.watching import Calls
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, StaleTurn, TurnEnded, Turns
from turnledger.checkpoint.preview import next_block
from turnledger.checkpoint.wire import wire_contract
from turnledger.store import LedgerName, Message, Replied, Step
from turnledger.store.migrate import make_roles
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL
from turnledger.workers.doctor import CHECKS, Verdict, examine, gather
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.redis_rights import acl_line

LEDGER = ("lead", "jira:POC-7")
NO_PROCESS_RUNS = {"clock", "workers"}
ASK = "Please fix it"
SAID = {"kind": "replied", "text": "Fixed.", "receipt": "post-1"}


@pytest.fixture
def contract(stores: Stores) -> dict[str, Any]:
    return dict(wire_contract(stores.records.settings))


@contextmanager
def engine_over(stores: Stores, contract: dict[str, Any], **urls: str) -> Iterator[Engine]:
    """The engine without the library; it gets its blocks as the command `block` does, without the second that takes."""

    def block(agent: str, conversation: str) -> str:
        ledger = LedgerName(agent, conversation)
        return next_block(stores.database, ledger=ledger, view=stores.records.look(ledger, turn_id="-"))

    places = {"redis_url": stores.redis_url, "database_url": stores.database_url, **urls}
    servers = Servers(contract, statements=page.statements(), **places)
    try:
        yield Engine(servers, block=block)
    finally:
        servers.close()


@pytest.fixture
def raw(stores: Stores, contract: dict[str, Any]) -> Iterator[Engine]:
    with engine_over(stores, contract) as engine:
        yield engine


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    """A step as the page has it: payload, arguments, content."""
    payload = {"role": role, **more}
    content = f'{{"role": "{role}",  "content": {json.dumps(text)}}}'
    return {"payload": payload, "arguments": ["{}"] * len(more.get("calls", ())), "content": content}


def steps_of(node: Turns, ledger: LedgerName = LEAD) -> list[str]:
    """The contents of the replayable history that a turn beginning now is given."""
    turn = begin(node, ledger=ledger)
    found: list[Step] = turn.history()
    turn.abandon()
    return contents(found)


def test_a_turn_of_another_engine_is_history_like_any_other(
    stores: Stores, raw: Engine, node: Turns, reconciler: Reconciler, processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Started, saved, parked, given a message, resumed, completed; committed by a real worker; found to be in order."""
    calls = [{"id": "c1", "name": "look", "kind": "read"}]
    turn = raw.start(LEDGER, ask=ASK, work_key="k1", messages={"m-1": "Hello\x00"})
    raw.save(turn, steps=[said("user", ASK), said("assistant", "", calls=calls)], fields={"bootstrap": '{"at":1}'})
    raw.park(turn, reason="question", steps=[said("tool", "fine", answers=[{"call_id": "c1", "outcome": "success"}])])
    assert raw.append_input(turn.turn_id, message_id="m-2", text="Go on", step=said("user", "Go on")) == "taken"
    assert raw.append_input(turn.turn_id, message_id="m-2", text="Go on", step=said("user", "Go on")) == "again"
    turn = raw.resume(turn.turn_id)
    assert raw.renew(turn)
    listed = [{"name": "look", "arguments": {}, "outcome": "success", "kind": "read", "call_id": "c1"}]
    raw.complete(turn, steps=[said("assistant", "Fixed.")], reply=SAID, calls=listed, decision="done")

    pending = begin(node)
    environment = {DATABASE_URL: stores.database_url, REDIS_URL: stores.redis_url}
    worker = processes.command("worker", "--burst", environment=environment)
    assert worker.wait() == 0, worker.output
    committed = begin(node)

    assert stores.state(turn.turn_id) == "committed"
    assert pending.earlier.splitlines()[5:] == committed.earlier.splitlines()[5:] == [
        f"Triggered by: {ASK}", "You called:", "- look() → success (read)", "You replied: Fixed.",
    ]  # fmt: skip
    assert contents(committed.history()) == [step.split("\n", 2)[2] for step in turn.steps]
    assert stores.texts() == ["Hello\x00", "Go on", "Fixed."]
    assert stores.types(turn.turn_id)[-1] == "turn_completed"
    pending.abandon()
    committed.abandon()
    assert sweep(reconciler, stores) == {}
    check_at_rest(stores.redis_url)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    faults = {
        result.check for result in examine(gather(role="worker"), checks=CHECKS) if result.verdict is Verdict.WRONG
    }
    assert faults <= NO_PROCESS_RUNS


def test_the_block_that_the_command_prints_is_the_one_that_a_start_of_the_library_has(
    stores: Stores, raw: Engine, node: Turns
) -> None:
    turn = raw.start(LEDGER, ask=ASK)
    raw.complete(turn, reply=SAID)
    command = [sys.executable, "-m", "turnledger.workers", "block", *LEDGER]
    environment = {DATABASE_URL: stores.database_url, REDIS_URL: stores.redis_url}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode()
    assert printed == begin(node).earlier != ""
    assert raw.start(LEDGER, ask="Again").earlier == printed


def test_all_calls_of_both_kinds_are_as_the_page_has_them(
    stores: Stores, contract: dict[str, Any], raw: Engine, node: Turns
) -> None:
    calls = Calls(contract)
    with calls.watched(stores.redis_url):
        theirs = begin(node, work_key="k1", messages=[Message("m-1", "Hello")])
        theirs.save(steps=[user(ASK), user("é\x00")], bootstrap={"at": 1})
        theirs.park(reason="question")
        node.append_input(theirs.turn_id, message=Message("m-2", "Go on"), step=user("Go on"))
        node.resume(theirs.turn_id).deliver(lambda: "post-1", reply="Fixed.", steps=[user("done")])
        begin(node, work_key="k2").fail("agent_run_failed")
        node.abandon(_parked(node))
        stores.records.renew([begin(node).claim])
        stores.records.block(theirs.turn_id, reason="other_history")
        ours = raw.start(LEDGER, ask=ASK, work_key="k3", messages={"m-3": "Hello"})
        raw.save(ours, steps=[said("user", ASK)])
        raw.park(ours, reason="question")
        raw.append_input(ours.turn_id, message_id="m-4", text="Go on", step=said("user", "Go on"))
        ours = raw.resume(ours.turn_id)
        raw.renew(ours)
        raw.complete(ours, reply=SAID)
        raw.end(raw.start(LEDGER, ask=ASK), state="failed", code="agent_run_failed")
    assert calls.wrong() == []
    assert {name for name, _, _ in calls.seen} == set(contract["scripts"])


def test_the_rights_of_an_engine_are_enough(database_url: str, redis_url: str) -> None:
    """In both servers (OP, CK-14)."""
    with ExitStack() as stack:
        stores = Stores(database_url=database_url, redis_url=redis_url)
        stack.callback(stores.close)
        make_roles(stores.database)
        rules = acl_line("engine", settings=stores.records.settings)
        urls = {
            "redis_url": stack.enter_context(redis_user(redis_url, rules)),
            "database_url": stack.enter_context(postgres_login(database_url, role="turnledger_engine")),
        }
        raw = stack.enter_context(engine_over(stores, dict(wire_contract(stores.records.settings)), **urls))
        turn = raw.start(LEDGER, ask=ASK, work_key="k1", messages={"m-1": "Hello"})
        raw.park(turn, reason="question", steps=[said("user", ASK)])
        raw.append_input(turn.turn_id, message_id="m-2", text="Go on", step=said("user", "Go on"))
        turn = raw.resume(turn.turn_id)
        assert raw.renew(turn)
        raw.complete(turn, reply=SAID)
        raw.end(raw.start(LEDGER, ask=ASK), state="abandoned", code="agent_run_failed")
        stores.drain()
        assert stores.run(turn.turn_id) == "completed"


def _parked(node: Turns) -> str:
    turn = begin(node)
    turn.park(reason="question")
    return turn.turn_id


def test_a_node_takes_over_from_the_other_engine_which_is_refused_from_then_on(
    stores: Stores, raw: Engine, node: Turns, tmp_path: Path
) -> None:
    """Also past Redis: what it spools is set aside (CK-2)."""
    lost = raw.start(LEDGER, ask=ASK)
    raw.save(lost, steps=[said("user", ASK)])
    with pytest.raises(AlreadyRunning):
        node.resume(lost.turn_id)
    lapse(stores, lost.turn_id)
    taken = node.resume(lost.turn_id)
    assert contents(taken.steps) == ['{"role": "user",  "content": "Please fix it"}']
    for write in (lambda: raw.save(lost, steps=[said("user", "late")]), lambda: raw.complete(lost, reply=SAID)):
        with pytest.raises(Refused, match="stale"):
            write()
    assert not raw.renew(lost)
    taken.complete(reply=Replied("By the node."))
    path = raw.spool(lost, tmp_path, completed_at="2026-11-30T16:20:16.123Z", reply=SAID)
    assert stores.node(spool_folder=tmp_path).recover() == 0
    stores.drain()
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["By the node."]
    assert path.with_name(f"{path.name}.refused").exists()


def test_a_revision_that_comes_again_does_not_let_a_former_holder_write(
    stores: Stores, raw: Engine, node: Turns
) -> None:
    """A failover that lost writes brings it back; the owner decides (CK-2, FL-8)."""
    lost = raw.start(LEDGER, ask=ASK)
    lapse(stores, lost.turn_id)
    taken = node.resume(lost.turn_id)
    stores.redis.hset(stores.keys.record(lost.turn_id), "revision", lost.revision)
    for write in (lambda: raw.save(lost), lambda: raw.complete(lost, reply=SAID)):
        with pytest.raises(Refused, match="stale"):
            write()
    assert stores.redis.hget(stores.keys.record(lost.turn_id), "owner") == taken.claim.owner


def test_the_other_engine_takes_over_from_a_node_which_is_refused_from_then_on(
    stores: Stores, raw: Engine, node: Turns
) -> None:
    """(CK-2)"""
    lost = begin(node, work_key="k1")
    lost.save(steps=[user(ASK)])
    with pytest.raises(Refused, match="running"):
        raw.resume(lost.turn_id)
    lapse(stores, lost.turn_id)
    taken = raw.resume(lost.turn_id)
    with pytest.raises(StaleTurn):
        lost.save(steps=[user("late")])
    with pytest.raises(StaleTurn):
        lost.complete(reply=Replied("late"))
    raw.complete(taken, steps=[said("assistant", "Fixed.")], reply=SAID)
    stores.drain()
    assert stores.rows("SELECT epoch, outcome FROM ledger_turn WHERE turn_id = %s", taken.turn_id) == [(2, "completed")]
    assert [step.split("\n", 2)[2] for step in taken.steps] == steps_of(node)


def test_a_write_that_is_repeated_gets_its_first_answer(stores: Stores, raw: Engine, node: Turns) -> None:
    """(CK-2, CK-5)"""
    turn = raw.start(LEDGER, ask=ASK, work_key="k1")
    turn.steps += [step_text(said("user", ASK))]
    for _ in range(2):
        raw.send_save(turn, operation="operation-number-one")
    turn.sent, turn.fields = 1, {**turn.fields, "revision": "2"}
    fields, operation = completion_fields(turn, reply=SAID), uuid.uuid4().hex
    for _ in range(2):
        assert raw.send_completion(turn, operation=operation, fields=fields) == ""
    assert stores.pending() == [turn.turn_id]
    assert stores.redis.llen(stores.keys.steps(turn.turn_id)) == 1
    with pytest.raises(Refused, match="conflict"):
        raw.send_completion(turn, operation=operation, fields={**fields, "entry": "{}"})


def test_work_is_done_once_whoever_does_it(stores: Stores, raw: Engine, node: Turns) -> None:
    """Running, pending, committed: each kind sees what the other has (ST-3, ST-4)."""
    theirs = begin(node, work_key="theirs")
    ours = raw.start(LEDGER, ask=ASK, work_key="ours")
    with pytest.raises(Refused, match="running"):
        raw.start(LEDGER, ask=ASK, work_key="theirs")
    with pytest.raises(AlreadyRunning):
        begin(node, work_key="ours")
    theirs.complete(reply=Replied("Done."))
    raw.complete(ours, reply=SAID)
    for _ in range(2):
        with pytest.raises(Refused, match="handled"):
            raw.start(LEDGER, ask=ASK, work_key="theirs")
        with pytest.raises(AlreadyHandled) as told:
            begin(node, work_key="ours")
        assert told.value.turn_id == ours.turn_id
        stores.drain()
    assert len(stores.entries()) == 2


@pytest.mark.parametrize("how", ["pending", "committed"])
def test_work_that_is_completed_while_a_start_is_on_its_way_is_not_done_again(
    stores: Stores, raw: Engine, node: Turns, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start has told Postgres, and its record is not made yet (ST-3)."""

    def done_meanwhile(*_: str) -> str:
        begin(node, work_key="k1").complete(reply=Replied("Done."))
        if how == "committed":
            stores.drain()
        return ""

    monkeypatch.setattr(raw, "_block", done_meanwhile)
    with pytest.raises(Refused, match="handled"):
        raw.start(LEDGER, ask=ASK, work_key="k1")
    assert stores.redis.smembers(stores.keys.open(LEAD)) == set()
    stores.drain()
    assert [entry["reply"]["text"] for entry in stores.entries()] == ["Done."]


def test_of_two_completions_of_one_work_the_first_stands(stores: Stores, raw: Engine, node: Turns) -> None:
    """(ST-5)"""
    first = begin(node, work_key="k1")
    stores.redis.delete(stores.keys.open(LEAD))  # the index, which would have told
    second = raw.start(LEDGER, ask=ASK, work_key="k1")
    stores.redis.sadd(stores.keys.open(LEAD), first.turn_id)
    first.complete(reply=Replied("First."))
    told = raw.complete(second, reply=SAID)
    assert told == f"{first.turn_id} {first.entry_id}"
    stores.drain()
    assert stores.run(second.turn_id) == "duplicate"
    assert len(stores.entries()) == 1


def test_messages_are_recorded_once_and_known_to_be_handled(stores: Stores, raw: Engine, node: Turns) -> None:
    """Pending and committed, of either kind (ST-7, EV-2)."""
    theirs = begin(node, messages=[Message("m-1", "Hello")])
    theirs.complete(reply=Replied("Hi."))
    turn = raw.start(LEDGER, ask=ASK, messages={"m-1": "Hello", "m-2": "Anybody?"})
    assert turn.fields["handled"] == '["m-1"]'
    stores.drain()
    raw.complete(turn, reply=SAID)
    again = raw.start(LEDGER, ask=ASK, messages={"m-1": "Hello"})
    assert again.fields["handled"] == '["m-1"]'
    assert begin(node, messages=[Message("m-2", "Anybody?")]).handled == ("m-2",)
    assert stores.texts() == ["Hello", "Anybody?", "Hi."]


def test_a_turn_that_postgres_was_not_told_of_brings_its_messages_along(
    stores: Stores, raw: Engine, node: Turns, reconciler: Reconciler
) -> None:
    """(FL-1)"""
    begin(node, "First").complete(reply=Replied("Hi."))
    turn = raw.start_unannounced(LEDGER, ask=ASK, messages={"m-1": "Hello"})
    raw.save(turn, steps=[said("user", ASK)])
    raw.complete(turn, steps=[said("assistant", "Fixed.")], reply=SAID)
    stores.drain()
    assert stores.texts() == ["Hi.", "Hello", "Fixed."]
    assert stores.types(turn.turn_id) == [
        "message", "turn_started", "agent_step", "agent_step", "message", "message_handled", "turn_completed",
    ]  # fmt: skip
    assert sweep(reconciler, stores) == {}


def test_a_turn_that_postgres_was_not_told_of_can_be_taken_over(stores: Stores, raw: Engine, node: Turns) -> None:
    """(CK-9)"""
    turn = raw.start_unannounced(LEDGER, ask=ASK, messages={"m-1": "Hello"})
    raw.park(turn, reason="question")
    taken = raw.resume(turn.turn_id)
    assert taken.cursor[0] is not None
    raw.park(taken, reason="question")
    node.resume(turn.turn_id).complete(reply=Replied("By the node."))
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
    assert stores.texts() == ["Hello", "By the node."]


def test_what_is_spooled_is_committed_once(stores: Stores, raw: Engine, node: Turns, tmp_path: Path) -> None:
    """Redis has lost the record (FL-4)."""
    turn = raw.start(LEDGER, ask=ASK, work_key="k1", messages={"m-1": "Hello"})
    raw.save(turn, steps=[said("user", ASK)])
    stores.redis.flushall()
    with pytest.raises(Refused, match="missing"):
        raw.complete(turn, steps=[said("assistant", "Fixed.")], reply=SAID, decision="done")
    for recovered in (1, 1, 0):
        if recovered:
            raw.spool(turn, tmp_path, completed_at="2026-11-30T16:20:16.123Z", reply=SAID, decision="done")
        assert stores.node(spool_folder=tmp_path).recover() == recovered
    assert [entry["decision"] for entry in stores.entries()] == ["done"]
    assert steps_of(node) == [step.split("\n", 2)[2] for step in turn.steps]


def test_a_turn_that_met_no_redis_at_its_start_becomes_history(stores: Stores, raw: Engine, tmp_path: Path) -> None:
    """(FL-2, FL-4)"""
    turn = raw.start_unannounced(LEDGER, ask=ASK, messages={"m-1": "Hello"})
    stores.redis.flushall()
    turn.steps.append(step_text(said("user", ASK)))
    raw.spool(turn, tmp_path, completed_at="2026-11-30T16:20:16.123Z", reply=SAID)
    assert stores.node(spool_folder=tmp_path).recover() == 1
    assert stores.run(turn.turn_id) == "completed"
    assert stores.texts() == ["Hello", "Fixed."]


def test_a_turn_without_a_durable_conversation_leaves_nothing_behind(
    stores: Stores, raw: Engine, node: Turns, reconciler: Reconciler
) -> None:
    """Parked by one engine, resumed by the other, and ended (ID-4)."""
    ledger = (LEDGER[0], "event:1f0c")
    turn = raw.start_unrecorded(ledger, ask=ASK)
    raw.park(turn, reason="question", steps=[said("user", ASK)])
    node.resume(turn.turn_id).park(reason="question")
    taken = raw.resume(turn.turn_id)
    assert len(taken.steps) == 1
    raw.end(taken, state="committed", outcome="not recorded")
    assert sweep(reconciler, stores) == {}
    assert stores.rows("SELECT * FROM ledger") == []


def test_a_claim_that_is_lost_before_postgres_is_told_fences_off_nobody(
    stores: Stores, raw: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(CK-11)"""
    turn = raw.start(LEDGER, ask=ASK)
    raw.park(turn, reason="question")
    monkeypatch.setattr(raw, "renew", lambda _: False)  # another process has claimed it meanwhile
    with pytest.raises(Refused, match="stale"):
        raw.resume(turn.turn_id)
    assert stores.rows("SELECT epoch FROM ledger_turn") == [(1,)]


def test_a_failure_frees_its_work_and_the_reconciler_writes_it_down(
    stores: Stores, raw: Engine, node: Turns, reconciler: Reconciler
) -> None:
    """(RC-10)"""
    turn = raw.start(LEDGER, ask=ASK, work_key="k1")
    raw.end(turn, state="failed", code="model_execution_failed")
    begin(node, work_key="k1").complete(reply=Replied("Done."))
    stores.drain()
    assert list(sweep(reconciler, stores)) == [turn.turn_id]
    assert stores.run(turn.turn_id) == "failed"
    assert stores.types(turn.turn_id) == ["turn_started", "turn_failed"]


def test_a_turn_whose_reply_may_have_gone_out_is_taken_over_by_nobody(stores: Stores, raw: Engine, node: Turns) -> None:
    """(DL-5)"""
    turn = raw.start(LEDGER, ask=ASK)
    raw.save(turn, fields={"delivery": "delivering"})
    lapse(stores, turn.turn_id)
    with pytest.raises(Refused, match="delivery_unknown"):
        raw.resume(turn.turn_id)
    raw.complete(turn, reply=SAID)
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


@pytest.mark.parametrize("how", ["work done by another run", "committed past Redis", "ended in Postgres"])
def test_a_take_over_that_comes_to_nothing_is_put_back_for_the_reconciler(
    stores: Stores, raw: Engine, node: Turns, reconciler: Reconciler, how: str
) -> None:
    """(RC-5)"""
    turn = begin(node, work_key="k1")
    turn.save(steps=[user(ASK)])
    parked: Any = stores.redis.hgetall(stores.keys.record(turn.turn_id))
    if how == "work done by another run":
        stores.redis.delete(stores.keys.open(LEAD))
        begin(node, work_key="k1").complete(reply=Replied("Done."))
        stores.drain()
    elif how == "committed past Redis":
        turn.complete(reply=Replied("Done."))
        stores.drain()
    else:
        turn.fail("agent_run_failed")
    stores.redis.delete(stores.keys.record(turn.turn_id))
    stores.redis.hset(stores.keys.record(turn.turn_id), mapping={**parked, "lease_until": 1})
    with pytest.raises(Refused, match=r"handled|ended"):
        raw.resume(turn.turn_id)
    assert stores.state(turn.turn_id) == "parked"
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "slice") == "1"
    sweep(reconciler, stores)
    assert stores.state(turn.turn_id) in ("abandoned", "committed", "failed")
    with pytest.raises((TurnEnded, AlreadyHandled)):
        node.resume(turn.turn_id)


def test_a_take_over_follows_a_history_that_was_replaced_meanwhile(stores: Stores, raw: Engine, node: Turns) -> None:
    """Cursor and version move, the bootstrap goes, covered steps are not repeated (CK-7, HV-8)."""
    ours = raw.start(LEDGER, ask="Ours")
    raw.park(ours, reason="question", steps=[said("user", "Ours")], bootstrap={"at": 1})
    theirs = begin(node, "Theirs")
    theirs.save(steps=[user("covered"), user("not covered")])
    theirs.compact(theirs.history_to_replace(), steps=[user("summary")], model="m", covers=1)
    theirs.park(reason="question")
    for turn_id, covered in ((ours.turn_id, "0"), (theirs.turn_id, "1")):
        taken = raw.resume(turn_id)
        assert taken.cursor[1] == 1
        assert taken.fields["covered"] == covered
        assert not taken.fields.get("bootstrap")
        raw.complete(taken, reply={"kind": "no_reply_owed"})
    stores.drain()
    said_by = [json.loads(content)["content"] for content in steps_of(node)]
    assert said_by == ["summary", "Ours", "not covered"]


def test_a_turn_whose_history_is_gone_is_blocked(stores: Stores, raw: Engine) -> None:
    """(CK-9)"""
    turn = raw.start(LEDGER, ask=ASK)
    raw.park(turn, reason="question")
    stores.redis.hset(stores.keys.record(turn.turn_id), "cursor", f"[{turn.cursor[0]},0,99,null,[]]")
    with pytest.raises(Refused, match="cursor_ahead"):
        raw.resume(turn.turn_id)
    assert stores.redis.hget(stores.keys.record(turn.turn_id), "blocked") == "cursor_ahead"
    assert stores.state(turn.turn_id) == "parked"


def test_what_does_not_fit_together_is_refused(stores: Stores, raw: Engine, contract: dict[str, Any]) -> None:
    """A record of another format, a turn id that is taken, another schema (CK-15)."""
    turn = raw.start(LEDGER, ask=ASK)
    raw.park(turn, reason="question")
    with pytest.raises(Refused, match="exists"):
        raw._open(Turn(turn.turn_id, LEDGER, {**turn.fields, "owner": uuid.uuid4().hex}))
    stores.redis.hset(stores.keys.record(turn.turn_id), "format", "9")
    with pytest.raises(Refused, match="format"):
        raw.resume(turn.turn_id)
    with pytest.raises(Refused, match="missing"):
        raw.resume("no-such-turn")
    other = {**contract, "schema_revision": "9999"}
    with pytest.raises(Refused, match="schema"), engine_over(stores, other):
        pass


def test_a_queue_that_is_full_takes_no_turn(stores: Stores, contract: dict[str, Any]) -> None:
    """And has written nothing; the turn is spooled (QU-14)."""
    with engine_over(stores, {**contract, "pending_turns": 0}) as raw:
        turn = raw.start(LEDGER, ask=ASK)
        with pytest.raises(Refused, match="full"):
            raw.complete(turn, reply=SAID)
    assert stores.pending() == []


def test_an_engine_that_renders_the_block_itself_finds_the_entries(stores: Stores, raw: Engine, node: Turns) -> None:
    """Those that are stored, and which of those on their way are stored by now (ST-1)."""
    first, second = (raw.start(LEDGER, ask=ask) for ask in ("First", "Second"))
    raw.complete(first, reply=SAID)
    view = raw._look(LEDGER)
    assert [(turn[0], json.loads(turn[4])["triggered_by"]) for turn in view.uncommitted] == [(first.turn_id, "First")]
    stores.drain()
    raw.complete(second, reply=SAID)
    ((ledger_id, *_),) = raw._servers.query("read_head", agent=LEDGER[0], conversation=LEDGER[1])
    ((ordinal, _, entry),) = raw._servers.query("recent_entries", ledger_id=ledger_id, most=20)
    assert (ordinal, json.loads(entry)["turn_id"]) == (1, first.turn_id)
    runs = raw._servers.query("find_runs", turn_ids=[first.turn_id, second.turn_id])
    assert {run[0]: run[5] for run in runs} == {first.turn_id: "completed", second.turn_id: None}


def test_a_completion_that_is_acknowledged_is_watched_until_it_is_history(stores: Stores, raw: Engine) -> None:
    turn = raw.start(LEDGER, ask=ASK)
    raw.complete(turn, reply={"kind": "undelivered", "text": ""}, failure="slice_limit", decision="failed")
    assert stores.state(turn.turn_id) == "completed"
    stores.drain()
    wait_until(lambda: _is("committed", stores.state(turn.turn_id)))
    assert stores.run(turn.turn_id) == "failed"
    assert stores.entries()[0]["reply"] == {"kind": "undelivered", "text": ""}


def _is(wanted: str, state: str | None) -> None:
    assert state == wanted
