"""Starting a turn: what it is shown, what it is refused, and what is there when `start` returns."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.processes import Processes
from tests.stores import LEAD, NOTHING, Stores, assistant, begin, calling, contents, result, user
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, Turn, TurnEnded, Turns
from turnledger.checkpoint.starting import begin as really_begin
from turnledger.store import (
    CorruptData,
    InvalidInput,
    LedgerName,
    Message,
    NoReplyOwed,
    Replied,
    Undelivered,
    openai_step,
)

OTHER = LedgerName("reviewer", "jira:POC-7")
ELSEWHERE = LedgerName("lead", "jira:POC-8")


def finished(node: Turns, text: str = "Please fix it", *, reply: str = "Done", **given: Any) -> Turn:
    turn = begin(node, text, **given)
    turn.complete(reply=Replied(reply), steps=[assistant(reply)])
    return turn


def test_when_start_returns_messages_and_start_are_in_postgres(stores: Stores, node: Turns) -> None:
    """And the record is in Redis (ST-2)."""
    turn = begin(node, work_key="k", messages=[Message("m1", "Hello", "ann"), Message("m2", "Hello?")])
    assert [(event.seq, event.type, event.turn_id) for event in stores.events()] == [
        (0, "message", turn.turn_id),
        (1, "message", turn.turn_id),
        (2, "turn_started", turn.turn_id),
    ]
    assert stores.texts() == ["Hello", "Hello?"]
    assert stores.rows("SELECT turn_id, work_key, epoch, outcome FROM ledger_turn") == [(turn.turn_id, "k", 1, None)]
    assert stores.state(turn.turn_id) == "running"


def test_messages_that_can_be_walked_only_once_are_all_recorded(stores: Stores, node: Turns) -> None:
    """A generator was walked by the check, and nothing was left to write (ST-2)."""
    begin(node, messages=(Message(each, each) for each in ("m1", "m2")))
    assert stores.texts() == ["m1", "m2"]


START = """
import sys
from turnledger.checkpoint import Turns
from turnledger.store import Message
Turns.from_settings().start(agent="lead", conversation="jira:POC-7", triggered_by="Please fix it", work_key="k",
    messages=[Message("m1", "Hello")], turn_id="t-1")
"""


@pytest.mark.parametrize("place", ["start.recorded", "start.opened"])
def test_a_node_that_dies_while_it_starts_leaves_its_messages_readable(
    stores: Stores, processes: Processes, place: str
) -> None:
    """And the start may be repeated under its turn_id: the messages stand once (ST-2, ST-8)."""
    urls = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    assert processes.snippet(START, environment={**urls, "TURNLEDGER_CRASH_AT": place}).wait() == -9
    assert stores.texts() == ["Hello"]
    assert stores.types("t-1") == ["message", "turn_started"]
    assert stores.state("t-1") == (None if place == "start.recorded" else "running")
    turn = begin(stores.node(), turn_id="t-1", work_key="k", messages=[Message("m1", "Hello")])
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.types("t-1") == ["message", "turn_started", "message", "message_handled", "turn_completed"]
    assert stores.run("t-1") == "completed"


@pytest.mark.parametrize("entries", [1, 3])
def test_a_turn_that_commits_between_the_two_reads_is_shown_once(
    stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """Redis is read first, then Postgres, and the two are merged by what Postgres has decided (ST-1)."""
    turns = [finished(node, f"Ask {number}") for number in range(entries)]

    def commit_first(*arguments: Any) -> Any:
        stores.drain()
        return really_begin(*arguments)

    monkeypatch.setattr("turnledger.checkpoint.turns.begin", commit_first)
    turn = begin(node)
    assert stores.pending() == []
    assert [turn.earlier.count(f"(turn {each.turn_id})") for each in turns] == [1] * entries
    assert turn.earlier.count("### ") == entries
    assert "no longer stored" not in turn.earlier
    assert len(turn.history()) == entries


@pytest.mark.parametrize("state", ["pending", "rejected", "committed"])
def test_the_block_and_the_history_hold_a_turn_in_whatever_state_it_is(stores: Stores, node: Turns, state: str) -> None:
    """Read your writes, also before the commit (QU-8, BL-9)."""
    first, second = finished(node, "First", reply="One"), finished(node, "Second", reply="Two")
    if state == "committed":
        stores.drain()
    elif state == "rejected":
        stores.records.reject(first.turn_id, ledger=LEAD, reason="Postgres refused it")
    turn = begin(stores.node())
    assert turn.earlier.index(first.turn_id) < turn.earlier.index(second.turn_id)
    assert [step.value["content"] for step in turn.history()] == ["One", "Two"]
    assert turn.cursor.pending == (() if state == "committed" else (first.turn_id, second.turn_id))


def test_a_pending_turn_is_in_the_block_as_it_will_be_once_committed(stores: Stores, node: Turns) -> None:
    """Its over-long payloads as names, before the commit and after it (BL-9, RW-3)."""
    turn = begin(node, "Send it")
    long = '{"body": "' + "x" * 201 + '", "short": "' + "y" * 200 + '", "n": 1.50}'
    turn.save(steps=[calling("c1", name="send", arguments=long), result("c1", error="e" * 300)])
    turn.complete(reply=Replied("Sent"))
    pending = begin(stores.node()).earlier
    stores.drain()
    committed = begin(stores.node()).earlier
    assert pending == committed
    assert 'send({"body": "(201 bytes not shown, digest ' in pending
    assert "error: (300 bytes not shown, digest " in pending
    assert "y" * 200 in pending
    assert "x" * 20 not in pending


def test_at_most_max_entries_are_shown_counted_after_the_merge(stores: Stores) -> None:
    """The newest, with the others counted in a line (BL-9, BL-5, RT-3)."""
    node = stores.node(store=stores.section(max_entries=3))
    turns = [finished(node, f"Ask {number}") for number in range(3)]
    stores.drain(max_entries=3)
    turns += [finished(node, f"Ask {number}") for number in range(3, 5)]
    block = begin(node).earlier
    assert [each.turn_id in block for each in turns] == [False, False, True, True, True]
    assert "(2 earlier turns are no longer stored.)" in block


def test_a_ledger_without_turns_gives_an_empty_block(stores: Stores, node: Turns) -> None:
    """And a turn that failed or was abandoned leaves none (BL-4, EN-9)."""
    begin(node).fail("agent_run_failed")
    begin(node).abandon()
    turn = begin(node)
    assert (turn.earlier, turn.history(), turn.history_error) == ("", [], None)


def test_start_puts_no_history_into_the_turn_by_itself(stores: Stores, node: Turns) -> None:
    """The block is one thing, the replayable history another, read when asked for (ST-6)."""
    finished(node, reply="Only in the history")
    turn = begin(node, messages=[Message("m1", "x")])
    assert turn.steps == ()
    assert stores.redis.llen(stores.keys.steps(turn.turn_id)) == 0
    assert "You replied: Only in the history" in turn.earlier
    assert contents(turn.history()) == ['{"role":"assistant","content":"Only in the history"}']


def test_history_follows_what_happens_after_the_start(stores: Stores, node: Turns) -> None:
    """The block is frozen, the history is as of now; steps of the turn itself are in neither (ST-6, BL-6)."""
    turn = begin(node)
    turn.save(steps=[user("mine")])
    finished(stores.node(), reply="Theirs")
    assert turn.earlier == ""
    assert contents(turn.history()) == ['{"role":"assistant","content":"Theirs"}']


def reject(stores: Stores, turn: Turn) -> None:
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="Postgres refused it")


def trim(stores: Stores, _: Turn) -> None:
    finished(stores.node())
    stores.drain(max_entries=1)


def sweep(stores: Stores, _: Turn) -> None:
    stores.drain()
    stores.execute("DELETE FROM ledger_entry")
    stores.redis.flushall()


HANDLED: dict[str, Callable[[Stores, Turn], object]] = {
    "pending": lambda _, __: None,
    "rejected": reject,
    "committed": lambda stores, _: stores.drain(),
    "trimmed": trim,
    "swept": sweep,
}


@pytest.mark.parametrize("state", HANDLED)
def test_work_that_is_done_is_not_begun_again(stores: Stores, node: Turns, state: str) -> None:
    """Named by the turn that did it, with its entry while that is stored; nothing is written (ST-3, RT-5)."""
    first = finished(node, work_key="k")
    HANDLED[state](stores, first)
    before = stores.written()
    with pytest.raises(AlreadyHandled) as refused:
        begin(stores.node(), work_key="k", messages=[Message("m", "Again")])
    entry_id = None if state in ("trimmed", "swept") else first.entry_id
    assert (refused.value.turn_id, refused.value.entry_id) == (first.turn_id, entry_id)
    assert stores.written() == before


@pytest.mark.parametrize("state", ["pending", "committed"])
def test_a_late_duplicate_of_a_trimmed_turn_is_still_a_duplicate(stores: Stores, node: Turns, state: str) -> None:
    """Also when it had begun before; it takes no ordinal (RT-5, EN-11, ST-5)."""
    late = begin(node, work_key="k")
    stores.redis.srem(stores.keys.open(LEAD), late.turn_id)
    first = finished(node, work_key="k")
    trim(stores, first)
    assert stores.rows("SELECT 1 FROM ledger_entry WHERE turn_id = %s", first.turn_id) == []
    late.complete(reply=Replied("Late"))
    stores.drain()
    assert stores.types(late.turn_id) == ["turn_started", "turn_duplicate"]
    assert stores.head().turn_count == 2


@pytest.mark.parametrize("ends", [("fail",), ("abandon",), ("fail", "abandon", "fail")])
def test_work_whose_runs_all_came_to_nothing_may_begin_again(
    stores: Stores, node: Turns, ends: tuple[str, ...]
) -> None:
    """As a new run with a turn_id of its own (ST-4)."""
    ids = []
    for end in ends:
        turn = begin(node, work_key="k")
        turn.abandon() if end == "abandon" else turn.fail("agent_run_failed")
        ids.append(turn.turn_id)
    turn = begin(node, work_key="k")
    turn.complete(reply=Replied("At last"))
    stores.drain()
    assert len({*ids, turn.turn_id}) == len(ends) + 1
    assert [stores.run(turn_id) for turn_id in ids] == [{"fail": "failed"}.get(end, "abandoned") for end in ends]
    assert stores.run(turn.turn_id) == "completed"


def test_work_whose_run_redis_lost_may_begin_again(stores: Stores, node: Turns) -> None:
    """Without a record there is nothing to resume (ST-4)."""
    lost = begin(node, work_key="k")
    stores.redis.flushall()
    turn = begin(node, work_key="k")
    assert turn.turn_id != lost.turn_id
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert (stores.run(turn.turn_id), stores.run(lost.turn_id)) == ("completed", None)


@pytest.mark.parametrize("state", ["running", "parked"])
def test_work_in_progress_is_not_begun_again(stores: Stores, node: Turns, state: str) -> None:
    """Named by turn, owner and state; nothing is written (ST-4)."""
    first = begin(node, work_key="k")
    if state == "parked":
        first.park(reason="waiting")
    before = stores.written()
    with pytest.raises(AlreadyRunning) as refused:
        begin(stores.node(), work_key="k", messages=[Message("m", "Again")])
    error = refused.value
    assert (error.turn_id, error.owner, error.state) == (first.turn_id, first.claim.owner, state)
    assert stores.written() == before


def test_the_empty_work_key_merges_nothing(stores: Stores, node: Turns) -> None:
    """Turns without one run beside each other and are all recorded (ID-5, EN-9)."""
    turns = [begin(node) for _ in range(3)]
    for turn in turns:
        turn.complete(reply=NoReplyOwed())
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()] == [turn.turn_id for turn in turns]


def test_one_message_answered_by_two_agents_is_recorded_on_both_ledgers(stores: Stores, node: Turns) -> None:
    """One work key, two agents; and one agent on two conversations keeps two ledgers (ID-7)."""
    turns = [
        begin(node, ledger=ledger, work_key="k", messages=[Message("m", "Hello")])
        for ledger in (LEAD, OTHER, ELSEWHERE)
    ]
    for turn in turns:
        turn.complete(reply=Replied(f"From {turn.ledger.agent}"))
    stores.drain()
    assert len(stores.entries()) == 3
    for turn in turns:
        assert stores.types(turn.turn_id, turn.ledger)[-1] == "turn_completed"
        assert begin(node, ledger=turn.ledger).earlier.count("### ") == 1


@pytest.mark.parametrize("state", ["pending", "committed"])
def test_a_message_that_an_earlier_turn_has_handled_is_named(stores: Stores, node: Turns, state: str) -> None:
    """Also when it comes again in another mix of triggers (ST-7)."""
    first = begin(node, work_key="k1", messages=[Message("m1", "One"), Message("m2\x00", "Two")])
    first.complete(reply=Replied("Done"))
    if state == "committed":
        stores.drain()
    turn = begin(node, work_key="k2", messages=[Message("m3", "Three"), Message("m2\x00", "Two"), Message("m1", "x")])
    assert turn.handled == ("m2\x00", "m1")
    stores.drain()
    assert sorted(str(text) for text in stores.texts()) == ["Done", "One", "Three", "Two"]
    assert begin(node, ledger=OTHER, messages=[Message("m1", "One")]).handled == ()


def test_a_message_of_a_turn_that_came_to_nothing_is_not_handled(stores: Stores, node: Turns) -> None:
    """Only a completion handles (ST-7)."""
    begin(node, messages=[Message("m1", "One")]).fail("agent_run_failed")
    parked = begin(node, messages=[Message("m1", "One")])
    parked.park(reason="waiting")
    assert begin(node, messages=[Message("m1", "One")]).handled == ()
    assert stores.texts() == ["One"]


def test_start_called_again_gives_the_same_turn(stores: Stores, node: Turns) -> None:
    """Block included, although the ledger went on meanwhile (ST-8)."""
    finished(node, "Before")
    given: dict[str, Any] = {"turn_id": "t-1", "work_key": "k", "messages": [Message("m", "Hello")]}
    first = begin(node, **given)
    finished(node, "Meanwhile")
    stores.drain()
    before = stores.written()
    again = begin(stores.node(), **given)
    assert (again.turn_id, again.entry_id, again.earlier, again.handled, again.cursor) == (
        first.turn_id,
        first.entry_id,
        first.earlier,
        first.handled,
        first.cursor,
    )
    assert stores.written() == before
    again.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.run("t-1") == "completed"


OTHER_RUNS: dict[str, dict[str, Any]] = {
    "agent": {"ledger": OTHER},
    "conversation": {"ledger": ELSEWHERE},
    "work key": {"work_key": "k2"},
    "ask": {"text": "Something else"},
    "messages": {"messages": [Message("m2", "Another")]},
}


@pytest.mark.parametrize(
    ("known_to", "other"),
    [
        *(("both", other) for other in OTHER_RUNS),
        *(("Postgres", other) for other in ("agent", "conversation", "work key")),  # it knows no more of a run
    ],
)
def test_a_turn_id_that_is_used_for_another_run_is_refused(
    stores: Stores, node: Turns, known_to: str, other: str
) -> None:
    """Otherwise its ask and its messages would be lost without a word (ID-8, ST-8)."""
    first: dict[str, Any] = {"turn_id": "t-1", "work_key": "k", "messages": [Message("m", "Hello")]}
    begin(node, **first)
    if known_to == "Postgres":
        stores.redis.flushall()
    before = stores.written()
    with pytest.raises(InvalidInput, match="'t-1' belongs to another run"):
        begin(node, **{**first, **OTHER_RUNS[other]})
    assert {**stores.written(), "ledger": 1} == {**before, "ledger": 1}


def test_a_turn_that_has_saved_is_not_started_again(stores: Stores, node: Turns) -> None:
    """It is resumed (ST-8)."""
    turn = begin(node, turn_id="t-1")
    turn.save(steps=[user("x")])
    with pytest.raises(AlreadyRunning) as refused:
        begin(stores.node(), turn_id="t-1")
    assert (refused.value.turn_id, refused.value.state) == ("t-1", "running")


@pytest.mark.parametrize("forgotten", ["", "forgotten by Redis"])
@pytest.mark.parametrize("end", ["complete", "fail", "abandon"])
def test_a_turn_id_of_a_run_that_has_ended_is_refused(stores: Stores, node: Turns, end: str, forgotten: str) -> None:
    """A second run under one id would be dropped at its commit (ID-8, CK-5)."""
    turn = begin(node, turn_id="t-1")
    if end == "complete":
        turn.complete(reply=Replied("Done"))
    else:
        turn.abandon() if end == "abandon" else turn.fail("agent_run_failed")
    stores.drain()
    if forgotten:
        stores.redis.flushall()
    before = stores.written()
    with pytest.raises(AlreadyHandled if end == "complete" else TurnEnded) as refused:
        begin(stores.node(), turn_id="t-1")
    assert refused.value.turn_id == "t-1"  # type: ignore[attr-defined]  # both have it
    assert stores.written() == before


def test_of_nodes_that_begin_one_work_at_once_exactly_one_runs(stores: Stores) -> None:
    """The others are told who does it, and each run they had begun has its one terminal (ST-4, EV-6)."""
    nodes = [stores.node() for _ in range(3)]
    for seed in range(12):
        key = f"k{seed}"
        won, lost = race(nodes, key)
        assert len(won) == 1
        assert [type(error) for error in lost] == [AlreadyRunning] * 2
        assert {error.turn_id for error in lost} == {won[0].turn_id}  # type: ignore[attr-defined]  # AlreadyRunning
        won[0].complete(reply=Replied("Done"))
    stores.drain()
    runs = stores.rows("SELECT turn_id, work_key, outcome FROM ledger_turn")
    assert Counter(outcome for _, _, outcome in runs)["completed"] == 12
    assert {outcome for _, _, outcome in runs} <= {"completed", "abandoned"}
    for turn_id, _, outcome in runs:
        ended = [name for name in stores.types(turn_id) if name in ("turn_completed", "turn_failed")]
        assert ended == ["turn_completed" if outcome == "completed" else "turn_failed"]
    assert [event.seq for event in stores.events()] == list(range(stores.head().next_seq))


def race(nodes: list[Turns], key: str) -> tuple[list[Turn], list[Exception]]:
    start = threading.Barrier(len(nodes))
    won: list[Turn] = []
    lost: list[Exception] = []

    def run(node: Turns) -> None:
        start.wait()
        try:
            won.append(begin(node, work_key=key))
        except Exception as error:  # noqa: BLE001  # the test judges it
            lost.append(error)

    threads = [threading.Thread(target=run, args=[node]) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, lost


@pytest.mark.parametrize("committed", ["pending", "committed"])
def test_a_start_that_is_overtaken_by_a_completion_of_its_work_ends(
    stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch, committed: str
) -> None:
    """Between its two reads and its record, another run did the work (ST-3)."""
    first = begin(node, work_key="k")
    stores.redis.srem(stores.keys.open(LEAD), first.turn_id)

    def complete_after(*arguments: Any) -> Any:
        beginning = really_begin(*arguments)
        first.complete(reply=Replied("Done"))
        if committed == "committed":
            stores.drain()
        return beginning

    monkeypatch.setattr("turnledger.checkpoint.turns.begin", complete_after)
    with pytest.raises(AlreadyHandled) as refused:
        begin(stores.node(), work_key="k", turn_id="t-late")
    assert refused.value.turn_id == first.turn_id
    assert stores.types("t-late") == ["turn_started", "turn_failed"]
    assert (stores.state("t-late"), stores.run("t-late")) == ("abandoned", "abandoned")


def test_every_ledger_numbers_its_own_events(stores: Stores, node: Turns) -> None:
    """Dense from 0, whatever others do (EV-4)."""
    for number in range(4):
        finished(node, ledger=LEAD if number % 2 else OTHER)
    stores.drain()
    for ledger in (LEAD, OTHER):
        assert [event.seq for event in stores.events(ledger)] == list(range(stores.head(ledger).next_seq))


def test_a_long_ask_is_kept_verbatim(stores: Stores, node: Turns) -> None:
    """Nothing is trimmed on the way in; it is shown whole in the block too (EN-2, EN-8, BL-5)."""
    ask = "## not a heading\n" + "\n".join(f"line {number} \x00 \ud800 𝄞" for number in range(60_000))
    turn = begin(node, ask)
    turn.complete(reply=Undelivered(""))
    stores.drain()
    assert stores.entries()[0]["triggered_by"] == ask
    assert begin(node).earlier.count("\n> line ") == 60_000


def test_a_save_costs_what_is_new(stores: Stores, node: Turns) -> None:
    """The bytes that go over the wire do not grow with the turn (CK-1)."""
    turn = begin(node)
    costs = []
    for number in range(400):
        before = traffic(stores)
        turn.save(steps=[user("x" * 1_000)], bootstrap={"round": number})
        costs.append(traffic(stores) - before)
    assert costs[-1] < 1.2 * costs[9]
    assert len(node.read(turn.turn_id).steps) == 400


def traffic(stores: Stores) -> int:
    stats = stores.redis.info("stats")
    return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])


@pytest.mark.parametrize("call", ["save", "park", "complete", "bootstrap", "many steps"])
def test_what_is_too_big_for_one_call_is_refused_before_it_is_sent(stores: Stores, node: Turns, call: str) -> None:
    """With its size; the turn goes on (CK-13)."""
    turn = begin(node)
    big = user("é" * (8_500 * 1024))
    before = traffic(stores)
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: turn.save(steps=[big]),
        "park": lambda: turn.park(reason="waiting", steps=[big]),
        "complete": lambda: turn.complete(reply=Replied("Done"), steps=[big]),
        "bootstrap": lambda: turn.save(bootstrap=["x" * (16 * 1024 * 1024)]),
        "many steps": lambda: turn.save(steps=[user("x" * (1024 * 1024))] * 17),
    }
    with pytest.raises(InvalidInput, match=r"1[67]\d{6} bytes.*16777216"):
        calls[call]()
    assert traffic(stores) - before < 10_000
    turn.save(steps=[user("small")])
    assert len(node.read(turn.turn_id).steps) == 1


def test_a_step_of_almost_the_limit_is_kept(stores: Stores, node: Turns) -> None:
    """Byte for byte, through Redis into Postgres (CK-13, CK-6)."""
    turn = begin(node)
    step = openai_step({"role": "user", "content": "é" * (8_000 * 1024)})
    turn.save(steps=[step])
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert contents(begin(node).history()) == [step.content]


BAD_STARTS: dict[str, dict[str, Any]] = {
    "no agent": {"agent": ""},
    "agent with a control character": {"agent": "le\x00ad"},
    "agent with a lone surrogate": {"agent": "\ud800"},
    "agent of a wrong type": {"agent": None},
    "agent too long": {"agent": "a" * 201},
    "conversation without source": {"conversation": "POC-7"},
    "conversation without local part": {"conversation": "jira:"},
    "conversation of a wrong type": {"conversation": 7},
    "conversation too long": {"conversation": "jira:" + "a" * 508},
    "conversation with a line break": {"conversation": "jira:a\nb"},
    "work key with a line break": {"work_key": "a\nb"},
    "work key too long": {"work_key": "a" * 201},
    "work key of a wrong type": {"work_key": None},
    "turn_id with a space": {"turn_id": "a b"},
    "turn_id too long": {"turn_id": "a" * 65},
    "empty turn_id": {"turn_id": ""},
    "turn_id of a wrong type": {"turn_id": 5},
    "no ask": {"triggered_by": None},
    "ask in bytes": {"triggered_by": b"x"},
    "a message that is none": {"messages": ["m1"]},
    "a message in a dict": {"messages": [Message("m", "x"), {"message_id": "m1"}]},
}


@pytest.mark.parametrize("bad", BAD_STARTS.values(), ids=BAD_STARTS)
def test_a_start_with_bad_input_writes_nothing(stores: Stores, node: Turns, bad: dict[str, Any]) -> None:
    """It is refused with what is wrong, in both stores nothing (ID-1, ID-5, ID-6, ID-8)."""
    given = {"agent": "lead", "conversation": "jira:POC-7", "triggered_by": "x", "messages": [Message("m", "x")]}
    with pytest.raises(InvalidInput) as refused:
        node.start(**{**given, **bad})
    assert next(iter(bad)).replace("_", " ").split()[0] in str(refused.value).replace("_", " ")
    assert stores.written() == NOTHING


BAD_CALLS: dict[str, Callable[[Turn], object]] = {
    "save NaN": lambda turn: turn.save(steps=[user("x")], bootstrap=[float("nan")]),
    "save bytes": lambda turn: turn.save(steps=[user("x")], bootstrap={"a": b"x"}),
    "save what is no step": lambda turn: turn.save(steps=[{"role": "user"}]),  # type: ignore[list-item]
    "park without reason": lambda turn: turn.park(reason=""),
    "park with a wrong reason": lambda turn: turn.park(reason=None),  # type: ignore[arg-type]
    "park with an unprintable reason": lambda turn: turn.park(reason="\ud800"),
    "park with what is no step": lambda turn: turn.park(reason="x", steps=["x"]),  # type: ignore[list-item]
    "complete without a reply": lambda turn: turn.complete(reply=None),  # type: ignore[arg-type]
    "complete with a text": lambda turn: turn.complete(reply="Done"),  # type: ignore[arg-type]
    "complete with a wrong decision": lambda turn: turn.complete(reply=NoReplyOwed(), decision="Done!"),
    "complete with a wrong text": lambda turn: turn.complete(reply=NoReplyOwed(), reviewer=5),  # type: ignore[arg-type]
    "complete with what is no call": lambda turn: turn.complete(reply=NoReplyOwed(), calls=["x"]),  # type: ignore[list-item]
    "complete with what is no step": lambda turn: turn.complete(reply=NoReplyOwed(), steps=[5]),  # type: ignore[list-item]
    "complete with a long receipt": lambda turn: turn.complete(reply=Replied("x", "r" * 513)),
    "fail with a wrong code": lambda turn: turn.fail(None),  # type: ignore[arg-type]
    "fail with a wrong id": lambda turn: turn.fail("slice_limit", failure_id=5),  # type: ignore[arg-type]
    "fail with an unprintable id": lambda turn: turn.fail("slice_limit", failure_id="\x00"),
}


@pytest.mark.parametrize("bad", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_call_with_bad_input_writes_nothing_and_the_turn_goes_on(
    stores: Stores, node: Turns, bad: Callable[[Turn], object]
) -> None:
    """In Redis and Postgres; the handle is as good as before (CK-4, EN-3, EN-7, EV-6)."""
    turn = begin(node)
    before = (stores.redis.hgetall(stores.keys.record(turn.turn_id)), stores.written())
    with pytest.raises(InvalidInput):
        bad(turn)
    assert (stores.redis.hgetall(stores.keys.record(turn.turn_id)), stores.written()) == before
    turn.save(steps=[user("one")])
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.types(turn.turn_id) == ["turn_started", "agent_step", "message", "turn_completed"]


@pytest.mark.parametrize("turn_id", [None, "", "a b", "a:steps", "é", 5])
def test_a_turn_id_that_cannot_be_one_is_refused(stores: Stores, node: Turns, turn_id: Any) -> None:
    """By resume, read and abandon, before any key is made of it (ID-8)."""
    for call in (node.resume, node.read, node.abandon):
        with pytest.raises(InvalidInput, match="turn_id"):
            call(turn_id)
    assert stores.written() == NOTHING


@pytest.mark.parametrize("field", ["completed_at", "completion_no", "kept_steps", "message_ids"])
def test_a_pending_record_that_cannot_be_read_is_counted_and_holds_up_no_start(
    stores: Stores, node: Turns, field: str
) -> None:
    """The block says so; the history, from which its steps would be missing, is refused (BL-8)."""
    broken = finished(node, "Broken")
    finished(node, "Whole")
    stores.redis.hset(stores.keys.record(broken.turn_id), field, "no such thing")
    turn = begin(node)
    assert "(1 earlier turn is stored but could not be read.)" in turn.earlier
    assert "Triggered by: Whole" in turn.earlier
    with pytest.raises(CorruptData, match=broken.turn_id):
        turn.history()


def test_a_completed_turn_needs_no_readable_cursor(stores: Stores, node: Turns) -> None:
    """Whatever history it was built on, it is committed (CK-9)."""
    turn = finished(node)
    stores.redis.hset(stores.keys.record(turn.turn_id), "cursor", "no such thing")
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
