"""`turnledger show --events` and `show --turn`, over real servers."""

from typing import Any

import pytest

from tests.commands import Printed
from tests.stores import LEAD, Stores, assistant, begin, calling, result, user
from turnledger.checkpoint import CheckpointUnavailable, Turn, Turns
from turnledger.store import Message, Replied
from turnledger.store.activity import tool_started
from turnledger.store.ledger import lock_ledger
from turnledger.store.standing import lose_run
from turnledger.workers.cli.event_log import show_events
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.servers import REDIS_URL
from turnledger.workers.cli.show import show_turn

LONG = "a very long word " * 1_000


@pytest.fixture(autouse=True)
def _environment(named_servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def _complete(node: Turns, number: int = 1, *, text: str = "Fixed") -> Turn:
    turn = begin(node, f"ask {number}", work_key=f"k{number}", messages=[Message(f"m{number}", text, "ann")])
    turn.save(steps=[user(f"ask {number}"), calling("c1"), result("c1")])
    turn.complete(reply=Replied("Fixed", f"r{number}"), steps=[assistant("Fixed")], decision="done")
    return turn


def _events(*, last: int = 100, before: int | None = None, output: Any = "text") -> None:
    show_events(LEAD.agent, conversation=LEAD.conversation, last=last, before=before, output=output)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    shown = capsys.readouterr().out.splitlines()
    return shown[next(place for place, line in enumerate(shown) if line.split()[:2] == ["seq", "time"]) + 1 :]


def test_events_are_shown_in_order_a_line_each(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """Seq, time, type, version, turn, bytes of content and what the payload says (OP-2)."""
    turn = _complete(node)
    stores.drain()
    _events()
    lines, events = _lines(capsys), stores.events()
    assert [int(line.split()[0]) for line in lines] == [event.seq for event in events] == list(range(len(events)))
    assert [line.split()[2:5] for line in lines] == [[event.type, "0", turn.turn_id] for event in events]
    assert "m1 of ann" in lines[0]
    assert any("assistant → look" in line for line in lines)
    assert "ordinal 1, decision done" in lines[-1]


def test_no_event_is_wider_than_its_columns_however_much_it_holds(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a content is read or shown, only its size (OP-2)."""
    _complete(node, text=LONG)
    turn = begin(node, "more", work_key="k2")
    turn.record(tool_started(turn.turn_id, call_id="c9", name="look " * 1_000))
    turn.complete(reply=Replied(LONG), decision="done")
    stores.drain()
    _events()
    lines = _lines(capsys)
    assert len(LONG) > 10_000
    assert max(map(len, lines)) < 250
    assert "a very long" not in "".join(lines)
    assert f"{len(LONG) + 2:,}" in lines[0]


def test_events_go_back_page_by_page_to_the_first(stores: Stores, node: Turns, printed: Printed) -> None:
    """`before` of one page asks for the next; the last page has none (OP-2)."""
    for number in range(1, 4):
        _complete(node, number)
    stores.drain()
    seqs: list[int] = []
    before = None
    while True:
        _events(last=5, before=before, output="json")
        page = printed()
        seqs = [event["seq"] for event in page["events"]] + seqs
        assert len(page["events"]) <= 5
        before = page["before"]
        if before is None:
            break
    assert seqs == list(range(stores.head().next_seq))


def test_a_page_of_events_has_these_members(stores: Stores, node: Turns, printed: Printed) -> None:
    """What scripts may rely on (OP-2)."""
    turn = _complete(node)
    stores.drain()
    _events(last=2, output="json")
    page = printed()
    assert {name: page[name] for name in page if name != "events"} == {
        "agent": "lead",
        "conversation": "jira:POC-7",
        "ledger_id": stores.head().ledger_id,
        "history_version": 0,
        "events_ever": stores.head().next_seq,
        "before": stores.head().next_seq - 2,
    }
    last = page["events"][-1]
    assert (last["type"], last["turn_id"], last["payload"]["ordinal"]) == ("turn_completed", turn.turn_id, 1)
    assert (last["content_bytes"], "content" in last) == (None, False)


def test_a_replaced_history_shows_its_versions(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """HV-10: rows of the old version stay, the replacement names what it covers."""
    _complete(node)
    turn = begin(node, "shorten", work_key="k2")
    replaced = turn.history_to_replace()
    turn.compact(replaced, steps=[user("in short")], model="m-2")
    _events()
    (line,) = [line for line in _lines(capsys) if " compaction " in line]
    assert line.split()[3] == "1"
    assert f"1 step for what came through seq {replaced.through_seq}, for m-2" in line
    turn.abandon()


def test_events_of_no_ledger(stores: Stores) -> None:
    with pytest.raises(NotThere, match="Postgres has no ledger of agent 'lead'"):
        _events()


def test_a_type_from_the_future_is_shown_as_it_is_stored(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    """EV-7: it reads as unknown, and looking at the others goes on."""
    _complete(node)
    stores.drain()
    head = stores.head()
    stores.execute(
        "INSERT INTO ledger_event (ledger_id, seq, history_version, type, schema_version, payload, occurred_at)"
        " VALUES (%s, %s, 0, 'hologram', 7, '{}', now())",
        head.ledger_id,
        head.next_seq,
    )
    stores.execute("UPDATE ledger SET next_seq = next_seq + 1")
    _events(last=1)
    assert "unknown" in (line := _lines(capsys)[0])
    assert "hologram, schema version 7" in line


def test_a_running_and_a_parked_turn(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-2"""
    turn = begin(node, "later", work_key="k1")
    turn.save(steps=[user("later")])
    show_turn(turn.turn_id, output="text")
    assert "In Redis: running, lead · jira:POC-7, 1 step saved" in (shown := capsys.readouterr().out)
    assert "In Postgres: not ended" in shown
    turn.park(reason="authorization")
    show_turn(turn.turn_id, output="text")
    assert "In Redis: parked (authorization)" in capsys.readouterr().out


def test_a_blocked_and_a_replaced_turn_say_so(stores: Stores, node: Turns, printed: Printed) -> None:
    """OP-2"""
    turn = begin(node, "later", work_key="k1")
    turn.park(reason="waiting")
    stores.redis.hset(stores.keys.record(turn.turn_id), mapping={"blocked": "cursor_ahead", "replaced_by": 2})
    show_turn(turn.turn_id, output="json")
    shown = printed()
    assert (shown["state"], shown["reason"]) == ("parked", "waiting")
    assert (shown["blocked"], shown["replaced_by"]) == ("cursor_ahead", 2)


def test_a_blocked_turn_says_what_that_means(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    turn = begin(node, "later", work_key="k1")
    turn.park(reason="waiting")
    stores.redis.hset(stores.keys.record(turn.turn_id), mapping={"blocked": "cursor_ahead", "replaced_by": 2})
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert "It is blocked (cursor_ahead): nobody may resume it" in shown
    assert "Its history was replaced by version 2" in shown


def test_a_lost_turn(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """EV-6: provisional, and called that."""
    turn = begin(node, "later", work_key="k1")
    stores.redis.flushall()
    _lose(stores, turn)
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert "In Postgres: lost (a completion that arrives later overrules that)" in shown
    assert "session_lost" in shown


def test_a_turn_in_quarantine(stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    """RC-11"""
    turn = begin(node, "later", work_key="k1")
    keys = stores.keys
    stores.redis.rename(keys.record(turn.turn_id), keys.quarantine(turn.turn_id))
    stores.redis.zadd(keys.quarantined, {turn.turn_id: 1})
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert f"could not be read: it lies under {keys.quarantine(turn.turn_id)}" in shown
    assert "In Postgres: not ended" in shown


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("format", "9", "has format '9'"), ("revision", "many", "cannot be read"), ("cursor", "[", "cannot be read")],
)
def test_a_record_that_cannot_be_read_hides_nothing_else(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str], field: str, value: str, said: str
) -> None:
    """OP-2"""
    turn = begin(node, "later", work_key="k1")
    stores.redis.hset(stores.keys.record(turn.turn_id), field, value)
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert said in shown
    assert "In Postgres: not ended" in shown


def test_without_redis_a_turn_that_postgres_does_not_know_is_not_called_unknown(
    stores: Stores, node: Turns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OP-2"""
    turn = _complete(node)
    stores.drain()
    monkeypatch.setenv(REDIS_URL, "redis://127.0.0.1:1/0")
    show_turn(turn.turn_id, output="text")
    shown = capsys.readouterr().out
    assert "In Redis: Redis does not answer at 127.0.0.1:1" in shown
    assert "In Postgres: completed" in shown
    with pytest.raises(CheckpointUnavailable):
        show_turn("unknown", output="text")


def _lose(stores: Stores, turn: Turn) -> None:
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        assert lose_run(connection, head, turn.turn_id, code="session_lost", now="2026-11-30T00:00:00.000Z")
