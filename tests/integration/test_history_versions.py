"""Reading history back: older versions, events nobody knows, rollbacks, and what a read costs."""

import json

import pytest

from tests.processes import Processes
from tests.stores import LEAD, Stores, assistant, begin, user
from turnledger.checkpoint.replacing import ReplaceableHistory
from turnledger.store import InvalidInput, Replied, UnsupportedEvent
from turnledger.store.activity import ROLLBACK, RollbackPayload
from turnledger.store.events import event_row
from turnledger.store.history import events, replay
from turnledger.store.ledger import append, lock_ledger


def talk(stores: Stores, *words: str) -> None:
    turn = begin(stores.node(), words[0])
    turn.complete(reply=Replied(words[-1]), steps=[user(words[0]), *map(assistant, words[1:])])
    stores.drain()


def compact(stores: Stores) -> None:
    turn = begin(stores.node())
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m-1")
    turn.abandon()


def texts(stores: Stores, *, version: int | None = None) -> list[str]:
    with stores.database.transaction() as connection:
        return [str(step.value["content"]) for step in replay(connection, stores.head(), version=version)]


def insert_unknown(stores: Stores) -> int:
    """An event of a release to come, at the head."""
    head = stores.head()
    stores.execute(
        "INSERT INTO ledger_event (ledger_id, seq, history_version, type, schema_version, payload, occurred_at)"
        " VALUES (%s, %s, %s, 'thought', 7, '{\"deep\": true}', now())",
        head.ledger_id,
        head.next_seq,
        head.history_version,
    )
    stores.execute("UPDATE ledger SET next_seq = next_seq + 1")
    return head.next_seq


def test_older_versions_stay_readable(stores: Stores, processes: Processes) -> None:
    """By version, also from the command line (HV-10)."""
    talk(stores, "q1", "a1")
    compact(stores)
    talk(stores, "q2", "a2")
    assert texts(stores, version=0) == ["q1", "a1"]
    assert texts(stores) == texts(stores, version=1) == ["summary", "q2", "a2"]
    with pytest.raises(InvalidInput, match="0 to 1"):
        texts(stores, version=2)
    environment = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    arguments = ("show", LEAD.agent, LEAD.conversation, "--version", "0", "--json")
    process = processes.command(*arguments, environment=environment)
    assert process.wait() == 0
    assert [step["content"]["content"] for step in json.loads(process.output)["steps"]] == ["q1", "a1"]


def test_an_unknown_event_of_the_current_version_stops_replay_and_no_start(stores: Stores) -> None:
    """Replay names seq and type; the block is there and the turn runs (EV-7)."""
    talk(stores, "q1", "a1")
    seq = insert_unknown(stores)
    turn = begin(stores.node())
    assert turn.earlier.count("### ") == 1
    with pytest.raises(UnsupportedEvent) as refused:
        turn.history()
    assert (refused.value.seq, refused.value.type) == (seq, "thought")
    (event,) = [event for event in stores.events() if event.type == "unknown"]
    assert (event.stored_type, event.payload) == ("thought", {"deep": True})


def test_an_unknown_event_of_a_superseded_version_blocks_nothing(stores: Stores) -> None:
    """A replacement leaves it behind (EV-7)."""
    talk(stores, "q1", "a1")
    head = stores.head()
    insert_unknown(stores)
    turn = begin(stores.node())
    turn.compact(ReplaceableHistory(0, head.next_seq - 1, ()), steps=[user("summary")], model="m-1")
    talk(stores, "q2", "a2")
    assert texts(stores) == ["summary", "q2", "a2"]


def test_a_rollback_drops_the_steps_after_the_seq_it_names(stores: Stores) -> None:
    """And none that come after it (EV-14)."""
    talk(stores, "q1", "a1", "a2")
    kept = next(event.seq for event in stores.events() if event.content == '{"role":"assistant","content":"a1"}')
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        now = "2026-11-30T12:00:00.000Z"
        row = event_row(ROLLBACK, RollbackPayload(to_seq=kept), key="rollback:1", occurred_at=now)
        append(connection, head, [row], turn_id=None)
    talk(stores, "q2", "a3")
    assert texts(stores) == ["q1", "a1", "q2", "a3"]


def test_a_bounded_read_decodes_nothing_past_its_bound(stores: Stores) -> None:
    """A row that cannot be decoded does no harm behind the bound (EV-9)."""
    talk(stores, "q1", "a1")
    stores.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
    stores.execute("UPDATE ledger_event SET payload = '{\"broken\": 1}' WHERE seq >= 2")
    with stores.database.transaction() as connection:
        assert [event.seq for event in events(connection, stores.head(), most=1)] == [0]
        with pytest.raises(Exception, match="malformed"):
            events(connection, stores.head(), most=3)


def test_replay_reads_the_rows_of_its_version_only(stores: Stores) -> None:
    """What lies behind a replacement is not even decoded (EV-9)."""
    talk(stores, "q1", "a1")
    compact(stores)
    stores.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
    stores.execute("UPDATE ledger_event SET payload = '{\"broken\": 1}' WHERE history_version = 0")
    assert texts(stores) == ["summary"]
