"""The log of a ledger: dense, append-only, each keyed event once."""

import re
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from tests.stores import LEAD, Stores, begin
from turnledger.checkpoint import Turns
from turnledger.store import LedgerName, Message, Replied, StoreMisconfigured
from turnledger.store.database import statement
from turnledger.store.events import EventRow, completed_event, failed_event, handled_event, message_event, started_event
from turnledger.store.ledger import (
    AppendResult,
    Run,
    append,
    create_ledgers,
    end_run,
    find_answered,
    lock_free_ledgers,
    lock_ledger,
    raise_epoch,
    read_head,
    recent_entries,
)

NOW = "2026-11-30T16:20:16.123Z"
OTHER = LedgerName("reviewer", "jira:POC-7")


def message(name: str, text: str = "Hello", **given: Any) -> EventRow:
    return message_event(Message(name, text, **given), now=NOW)


def appended(stores: Stores, *rows: EventRow, ledger: LedgerName = LEAD) -> AppendResult:
    create_ledgers(stores.database, [ledger])
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, ledger)
        assert head is not None
        return append(connection, head, rows, turn_id="t1")


def seqs(stores: Stores, ledger: LedgerName = LEAD) -> list[int]:
    return [event.seq for event in stores.events(ledger)]


def activity(stores: Stores) -> datetime:
    ((moment,),) = stores.rows("SELECT active_at FROM ledger")
    assert isinstance(moment, datetime)
    return moment


def test_events_are_numbered_densely_from_zero(stores: Stores) -> None:
    """Per ledger; the head knows the next number (EV-4)."""
    appended(stores, message("m1"), message("m2"))
    result = appended(stores, message("m3"))
    appended(stores, message("m1"), ledger=OTHER)
    assert seqs(stores) == [0, 1, 2]
    assert seqs(stores, OTHER) == [0]
    assert result.head == stores.head() == result.head.__class__(stores.head().ledger_id, 0, 3, 0)


def test_a_keyed_event_lands_once_and_the_first_stays(stores: Stores) -> None:
    """Also inside one batch; numbers stay dense, and the conflict is returned (EV-4, EV-5, EV-2)."""
    appended(stores, message("m1", "First"))
    result = appended(
        stores, message("m1", "Second"), message("m2"), message("m2"), message("m3", "One"), message("m3", "Other")
    )
    assert result.conflicts == ("message:m1", "message:m3")
    assert (stores.texts(), seqs(stores)) == (["First", "Hello", "One"], [0, 1, 2])


@pytest.mark.parametrize(
    "other",
    [
        message("m1", "Hello", sender="bob"),
        message("m1", "Hello", sender="ann", role="assistant"),
        message("m1", "Hello"),
        handled_event("m1", now=NOW)._replace(key="message:m1"),
    ],
    ids=["sender", "role", "a member less", "type"],
)
def test_whatever_differs_is_a_conflict(stores: Stores, other: EventRow) -> None:
    """Type, payload or content (EV-5)."""
    appended(stores, message("m1", "Hello", sender="ann"))
    assert appended(stores, other).conflicts == ("message:m1",)


def test_the_same_event_again_is_no_conflict(stores: Stores) -> None:
    """Whatever its texts hold, and at whatever time it comes (EV-5, EV-10)."""
    torture = "\x00 \ud800 𝄞 \\u0000 \x1a \u202e"
    row = message("m1" + torture, torture, sender=torture)
    appended(stores, row)
    later = row._replace(occurred_at="2027-01-01T00:00:00.000Z")
    assert appended(stores, later) == AppendResult(stores.head(), ())


def test_an_append_that_brings_nothing_new_changes_nothing(stores: Stores) -> None:
    """Activity time included (EV-4)."""
    appended(stores, message("m1"), message("m2"))
    before = stores.rows("SELECT * FROM ledger, ledger_event")
    time.sleep(0.002)
    appended(stores, message("m2"), message("m1"))
    appended(stores)
    assert stores.rows("SELECT * FROM ledger, ledger_event") == before
    appended(stores, message("m3"))
    assert activity(stores) > before[0][9]


def test_activity_time_never_moves_back(stores: Stores) -> None:
    """Whatever the clock of the server does (EV-4)."""
    appended(stores, message("m1"))
    stores.execute("UPDATE ledger SET active_at = '2100-01-01'")
    appended(stores, message("m2"))
    assert activity(stores).year == 2100


def test_writers_of_one_ledger_keep_its_numbers_dense(stores: Stores) -> None:
    """Eight at once, who bring the same keys in part (EV-4, EV-5)."""
    create_ledgers(stores.database, [LEAD])
    failures: list[Exception] = []

    def write(writer: int) -> None:
        try:
            for number in range(15):
                appended(stores, message(f"shared-{number}"), message(f"own-{writer}-{number}"))
        except Exception as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    run_at_once([lambda w=writer: write(w) for writer in range(8)])
    assert failures == []
    assert seqs(stores) == list(range(15 + 8 * 15))
    assert stores.head().next_seq == 15 + 8 * 15
    assert len(set(stores.rows("SELECT idempotency_key FROM ledger_event"))) == 15 + 8 * 15


def run_at_once(calls: Sequence[Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_processes_that_make_the_same_ledgers_at_once_never_meet_in_a_circle(stores: Stores) -> None:
    """Sorted, and each is made once (ID-7)."""
    names = [LedgerName("lead", f"jira:{number}") for number in range(40)]
    failures: list[Exception] = []

    def make(order: list[LedgerName]) -> None:
        try:
            create_ledgers(stores.database, order)
        except Exception as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    run_at_once([lambda o=order: make(o) for order in (names, names[::-1], names[10:], names[::2])])
    assert failures == []
    assert stores.rows("SELECT count(*) FROM ledger") == [(40,)]


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE ledger_event SET turn_id = 'x'",
        "UPDATE ledger_event SET turn_id = 'x' WHERE false",
        "DELETE FROM ledger_event",
        "TRUNCATE ledger_event",
    ],
)
def test_an_event_is_never_changed_or_removed(stores: Stores, command: str) -> None:
    """Except by a maintenance function that says its name, for its transaction (EV-2, DESIGN 4)."""
    appended(stores, message("m1"))
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        stores.execute(command)
    for name in ("", "anything", "Redaction"):
        with stores.connection() as connection:
            connection.execute("SELECT set_config('turnledger.maintenance', %s, true)", [name])
            with pytest.raises(psycopg.errors.RestrictViolation):
                connection.execute(command.encode())
    assert seqs(stores) == [0]
    for name in ("redaction", "renumbering", "retention"):
        with stores.connection() as connection:
            connection.execute("SELECT set_config('turnledger.maintenance', %s, true)", [name])
            connection.execute(command.encode())
            connection.rollback()
    with pytest.raises(psycopg.errors.RestrictViolation):
        stores.execute(command)


def test_a_refused_change_is_not_laid_at_the_door_of_the_data(stores: Stores) -> None:
    """A program that changes events has to be repaired; nothing is rejected for it (QU-7)."""
    with pytest.raises(StoreMisconfigured, match="append-only"), stores.database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM ledger_event")


def test_a_run_has_one_terminal(stores: Stores) -> None:
    """Whoever races; the first stands (EV-6)."""
    appended(stores, started_event("t1", work_key="", now=NOW))
    answers = [
        ended(stores, "failed", failed_event("t1", code="slice_limit", now=NOW)),
        ended(stores, "abandoned", failed_event("t1", code="agent_run_failed", now=NOW)),
        ended(stores, "completed", completed_event("t1", entry_id="e", ordinal=1, decision=None, now=NOW)),
    ]
    assert [answer.outcome for answer in answers] == ["failed"] * 3
    assert stores.types("t1") == ["turn_started", "turn_failed"]


def test_session_lost_is_overruled(stores: Stores) -> None:
    """By whatever end comes later, once (EV-6)."""
    appended(stores, started_event("t1", work_key="", now=NOW))
    answers = [
        ended(stores, "lost", failed_event("t1", code="session_lost", now=NOW)),
        ended(stores, "failed", failed_event("t1", code="slice_limit", now=NOW)),
        ended(stores, "lost", failed_event("t1", code="session_lost", now=NOW)),
    ]
    assert [answer.outcome for answer in answers] == ["lost", "failed", "failed"]
    assert stores.types("t1") == ["turn_started", "turn_failed", "turn_failed"]


def ended(stores: Stores, outcome: Any, row: EventRow) -> Run:
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        run = Run("t1", head.ledger_id, "", 1, 0, None, None)
        return end_run(connection, head, run=run, outcome=outcome, started_at=NOW, row=row)


def test_a_held_ledger_is_passed_over_by_who_does_not_wait(stores: Stores) -> None:
    """One locked ledger does not hold up the others of a group (QU-13)."""
    create_ledgers(stores.database, [LEAD, OTHER])
    with stores.connection() as holder:
        holder.execute("SELECT 1 FROM ledger WHERE agent = 'lead' FOR UPDATE")
        with stores.database.transaction() as connection:  # whoever waits here waits until it is refused
            held = lock_free_ledgers(connection, [LEAD, OTHER, LedgerName("nobody", "jira:1")])
            holder.execute("SELECT 1 FROM ledger WHERE agent = 'lead' FOR UPDATE")
    assert set(held) == {OTHER}


def test_of_the_ledgers_asked_for_the_first_ones_are_held(stores: Stores) -> None:
    """A group takes them in the order of the queue (QU-13)."""
    create_ledgers(stores.database, [LEAD, OTHER])
    for first, second in ((LEAD, OTHER), (OTHER, LEAD)):
        with stores.database.transaction() as connection:
            assert set(lock_free_ledgers(connection, [first, second], most=1)) == {first}


def test_what_is_looked_up_after_the_lock_is_what_its_holder_left(stores: Stores) -> None:
    """READ COMMITTED, with the lock in a statement of its own (EV-4)."""
    create_ledgers(stores.database, [LEAD])
    heads = []
    with stores.database.transaction() as first:
        head = lock_ledger(first, LEAD)
        assert head is not None
        waiting = threading.Thread(target=lambda: heads.append(appended(stores, message("m2")).head))
        waiting.start()
        time.sleep(0.1)
        append(first, head, [message("m1")], turn_id=None)
    waiting.join()
    assert [head.next_seq for head in heads] == [2]
    assert seqs(stores) == [0, 1]


def test_a_ledger_that_is_not_there_has_no_head(stores: Stores) -> None:
    """Nothing is made by looking (ST-1)."""
    with stores.database.transaction() as connection:
        assert read_head(connection, LEAD) is None
        assert lock_ledger(connection, LEAD) is None
        assert lock_free_ledgers(connection, [LEAD]) == {}
        assert find_answered(connection, [(1, "k"), (1, "")]) == {}
        assert raise_epoch(connection, "t1", known=1) is None
    assert stores.rows("SELECT count(*) FROM ledger") == [(0,)]


def test_recent_entries_are_the_newest_in_order(stores: Stores, node: Turns) -> None:
    """By ordinal, no more than asked for (BL-9)."""
    for number in range(4):
        begin(node).complete(reply=Replied(str(number)))
    stores.drain()
    with stores.database.transaction() as connection:
        found = recent_entries(connection, stores.head().ledger_id, most=3)
    assert [entry.ordinal for entry in found] == [2, 3, 4]


def test_a_message_that_comes_again_with_another_text_is_reported(
    stores: Stores, node: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also at a start; the first text stays (EV-2, EV-5)."""
    begin(node, messages=[Message("m1", "First")])
    begin(node, messages=[Message("m1", "First"), Message("m2", "x")])
    assert "event_key_conflict" not in capsys.readouterr().err
    begin(node, messages=[Message("m1", "Second"), Message("m3", "x")])
    begin(node, messages=[Message("m4", "One"), Message("m4", "Other")])
    assert capsys.readouterr().err.count("event_key_conflict") == 2
    assert stores.texts() == ["First", "x", "x", "One"]


STATEMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ledger_name": ("lock_ledger", {"agent": "a7", "conversation": "jira:7"}),
    "ledger_turn_pkey": ("find_runs", {"turn_ids": ["t7", "t8"]}),
    "ledger_turn_work": ("find_answered", {"ledger_ids": [7], "work_keys": ["k7"]}),
    "ledger_event_key": ("find_keys", {"ledger_ids": [7], "keys": ["k7"]}),
    "ledger_event_pkey": ("turn_at", {"ledger_id": 7, "seq": 7}),
    "ledger_entry_pkey": ("recent_entries", {"ledger_id": 7, "most": 20}),
    "ledger_entry_turn": ("find_answered", {"ledger_ids": [7], "work_keys": ["k7"]}),
}
QUERIES = {
    "ledger_turn_open": "SELECT 1 FROM ledger_turn WHERE ended_at IS NULL AND started_at < now() - interval '1 day'",
    "ledger_event_version": "SELECT seq FROM ledger_event WHERE ledger_id = 7 AND history_version = 3 ORDER BY seq",
    "ledger_event_type": "SELECT seq FROM ledger_event WHERE ledger_id = 7 AND type = 'message' ORDER BY seq",
    "ledger_event_search": "SELECT seq FROM ledger_event WHERE type = 'message'"
    " AND to_tsvector('simple', search_text) @@ websearch_to_tsquery('simple', 'w7')",
    "ledger_entry_completed": "SELECT 1 FROM ledger_entry WHERE completed_at < now() - interval '30 days'",
}
FILL = """
INSERT INTO ledger (agent, conversation_key) SELECT 'a' || n, 'jira:' || n FROM generate_series(1, 3000) n;
INSERT INTO ledger_turn (turn_id, ledger_id, work_key, started_at, ended_at, outcome)
    SELECT 't' || n, 1 + n % 3000, 'k' || n, now(), CASE WHEN n % 1000 > 0 THEN now() END,
    CASE WHEN n % 1000 > 0 THEN 'completed' END FROM generate_series(1, 6000) n;
INSERT INTO ledger_event SELECT n % 20, n, n % 50, CASE WHEN n % 9 = 0 THEN 'message' ELSE 'agent_step' END, 1, NULL,
    'k' || n, '{}', NULL, CASE WHEN n % 9 = 0 THEN 'w' || n END, now(), now() FROM generate_series(1, 20000) n;
INSERT INTO ledger_entry SELECT n % 300, n, gen_random_uuid(), 't' || n, '', now(), '{}'
    FROM generate_series(1, 6000) n;
ANALYZE
"""


def test_lookups_use_their_indexes(stores: Stores) -> None:
    """Each index is there for a query, and that query uses it (PR-5)."""
    stores.execute(FILL)
    with stores.database.transaction() as connection:
        for index, (name, parameters) in STATEMENTS.items():
            explained = text("EXPLAIN " + re.sub("--.*", "", str(statement(name))))
            assert_uses(index, connection.execute(explained, parameters).scalars().all())
        for index, query in QUERIES.items():
            assert_uses(index, connection.exec_driver_sql(f"EXPLAIN {query}").scalars().all())


def assert_uses(index: str, plan: Sequence[str]) -> None:
    assert index in "\n".join(plan), "\n".join(plan)
