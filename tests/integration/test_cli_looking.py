"""show and requeue, over real servers."""

import pytest

from tests.commands import Printed
from tests.stores import LEAD, Stores, assistant, begin, calling, result, user
from turnledger.checkpoint import Turn, TurnNotFound, Turns
from turnledger.store import InvalidInput, Message, NoReplyOwed, Replied
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.requeue import run_requeue
from turnledger.workers.cli.servers import REDIS_URL
from turnledger.workers.cli.show import show_ledger, show_turn

pytestmark = pytest.mark.usefixtures("named_servers")


def _complete(node: Turns, number: int = 1, *, reply: str = "Fixed") -> Turn:
    turn = begin(node, f"ask {number}", work_key=f"k{number}", messages=[Message(f"m{number}", f"ask {number}")])
    turn.save(steps=[user(f"ask {number}"), calling("c1"), result("c1")])
    turn.complete(reply=Replied(reply, f"r{number}"), steps=[assistant(reply)], decision="done")
    return turn


def _reject(stores: Stores, turn: Turn) -> None:
    stores.records.reject(turn.turn_id, ledger=LEAD, reason="a byte that Postgres cannot hold")


def test_show_gives_entries_and_events_of_a_ledger(stores: Stores, node: Turns, printed: Printed) -> None:
    """OP-2"""
    turn = _complete(node)
    stores.drain()
    show_ledger(LEAD.agent, conversation=LEAD.conversation, last=100, output="json")
    shown = printed()
    assert [entry["turn_id"] for entry in shown["entries"]] == [turn.turn_id]
    assert shown["entries"][0]["reply"] == {"kind": "replied", "text": "Fixed", "receipt": "r1"}
    assert [event["seq"] for event in shown["events"]] == list(range(stores.head().next_seq))
    assert shown["events"][-1]["type"] == "turn_completed"
    assert shown["uncommitted"] == shown["open"] == []


def test_show_bounds_the_events_to_the_newest(stores: Stores, node: Turns, printed: Printed) -> None:
    _complete(node)
    stores.drain()
    show_ledger(LEAD.agent, conversation=LEAD.conversation, last=2, output="json")
    last = stores.head().next_seq - 1
    assert [event["seq"] for event in printed()["events"]] == [last - 1, last]


def test_show_names_turns_on_their_way(stores: Stores, node: Turns, printed: Printed) -> None:
    pending, rejected = _complete(node), _complete(node, 2)
    running = begin(node, "third", work_key="k3")
    _reject(stores, rejected)
    show_ledger(LEAD.agent, conversation=LEAD.conversation, last=100, output="json")
    shown = printed()
    assert shown["uncommitted"] == [
        {"turn_id": pending.turn_id, "state": "completed"},
        {"turn_id": rejected.turn_id, "state": "rejected"},
    ]
    assert shown["open"] == [{"turn_id": running.turn_id, "state": "running"}]
    running.abandon()


def test_show_works_without_redis_and_says_so(
    stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _complete(node)
    stores.drain()
    monkeypatch.setenv(REDIS_URL, "redis://127.0.0.1:1/0")
    show_ledger(LEAD.agent, conversation=LEAD.conversation, last=100, output="text")
    shown = capsys.readouterr()
    assert "You replied: Fixed" in shown.out
    assert "Turns on their way are not shown" in shown.err


def test_what_show_prints_cannot_steer_the_terminal(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = begin(
        node, "\x1b[2J \x07 \ud800 [bold]x", work_key="k", messages=[Message("m", "\x1b[2J \x07 \ud800 [bold]x")]
    )
    turn.complete(reply=Replied("\x1b]0;gone\x07"), steps=[user("\x1b[2J"), assistant("\x1b]0;gone\x07")])
    stores.drain()
    show_ledger(LEAD.agent, conversation=LEAD.conversation, last=100, output="text")
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert not set(shown) & {"\x1b", "\x07", "\ud800"}
    assert "\\x1b[2J \\x07 \\ud800 [bold]x" in shown


def test_a_turn_is_shown_whole_wherever_it_is_known(stores: Stores, node: Turns, printed: Printed) -> None:
    """OP-2: the run that a block names."""
    turn = _complete(node)
    show_turn(turn.turn_id, output="json")
    pending = printed()
    assert (pending["state"], pending["stored"]["outcome"], len(pending["saved_steps"])) == ("completed", None, 4)
    stores.drain()
    stores.redis.delete(stores.keys.record(turn.turn_id), stores.keys.steps(turn.turn_id))
    show_turn(turn.turn_id, output="json")
    committed = printed()
    assert (committed["state"], committed["stored"]["outcome"]) == (None, "completed")
    assert committed["stored"]["entry"]["ordinal"] == 1
    steps = [event["content"]["role"] for event in committed["stored"]["events"] if event["type"] == "agent_step"]
    assert steps == ["user", "assistant", "tool", "assistant"]


def test_a_rejected_turn_says_why(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """QU-6"""
    turn = _complete(node)
    _reject(stores, turn)
    show_turn(turn.turn_id, output="text")
    assert "It was refused: a byte that Postgres cannot hold" in capsys.readouterr().out


def test_what_is_not_there_is_not_shown(stores: Stores) -> None:
    with pytest.raises(NotThere, match="no ledger of agent 'nobody'"):
        show_ledger("nobody", conversation="jira:POC-7", last=1, output="text")
    with pytest.raises(NotThere, match="there is no turn t1"):
        show_turn("t1", output="text")
    with pytest.raises(InvalidInput, match="turn_id"):
        show_turn("no id", output="text")


def test_requeue_gives_a_rejected_turn_another_try(stores: Stores, node: Turns, printed: Printed) -> None:
    """QU-6: also after RQ's failed job has gone."""
    turn = _complete(node)
    _reject(stores, turn)
    stores.redis.delete(stores.keys.job(turn.turn_id), stores.keys.queue)
    run_requeue(turn.turn_id, output="json")
    assert printed() == {"turn_id": turn.turn_id, "was": "rejected", "queued": True}
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def test_requeue_gives_a_pending_turn_the_job_it_lost(stores: Stores, node: Turns) -> None:
    turn = _complete(node)
    stores.redis.delete(stores.keys.job(turn.turn_id), stores.keys.queue)
    run_requeue(turn.turn_id, output="text")
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def test_requeue_refuses_what_needs_no_commit(stores: Stores, node: Turns) -> None:
    turn = _complete(node)
    stores.drain()
    with pytest.raises(NotThere, match="is committed; only a rejected or a pending turn"):
        run_requeue(turn.turn_id, output="text")
    running = begin(node, "second", work_key="k2")
    with pytest.raises(NotThere, match="is running"):
        run_requeue(running.turn_id, output="text")
    running.complete(reply=NoReplyOwed())
    with pytest.raises(TurnNotFound):
        run_requeue("unknown", output="text")
