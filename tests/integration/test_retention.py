"""What is older than the configuration allows is deleted, and nothing that anybody needs."""

import re
import threading
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.configuring import write_config
from tests.stores import LEAD, TABLES, Stores, assistant, begin, contents, user
from turnledger.checkpoint import AlreadyHandled, Turn, TurnBlocked, Turns
from turnledger.store import CorruptData, Database, InvalidInput, LedgerName, Message, NoReplyOwed, Replied
from turnledger.store.accounts import find_account, save_account
from turnledger.store.activity import message_updated, messages_summarized
from turnledger.store.block import Account
from turnledger.store.database import driver_text
from turnledger.store.history import replay
from turnledger.store.ledger import find_runs, lock_ledger
from turnledger.store.retention import Removed, Retention, RetentionTotals, read_totals
from turnledger.store.standing import lose_run
from turnledger.store.transcript import Transcript, transcript

OTHER = LedgerName("lead", "jira:POC-8")
NOTHING = Removed()
EVENTS = 7  # of one turn: message, start, two steps, reply, handled, end


def sweep(stores: Stores, *, batch_rows: int = 1_000, least_age_s: float = 900, **section: object) -> Removed:
    database = Database.from_settings(database_url=stores.database_url, **stores.section(**section))
    try:
        return Retention(database, least_age_s=least_age_s, batch_rows=batch_rows).sweep(stopped=lambda: False)
    finally:
        database.close()


def finished(node: Turns, text: str = "Ask", **given: Any) -> Turn:
    turn = begin(node, text, messages=[Message(f"m:{text}", text)], **given)
    turn.complete(reply=Replied(f"Answer to {text}"), steps=[user(text), assistant(f"Answer to {text}")])
    return turn


def age(stores: Stores, days: float, *turns: Turn) -> None:
    """As if these turns had ended so many days ago; without turns all that have ended."""
    ids = [turn.turn_id for turn in turns] or [row[0] for row in stores.rows("SELECT turn_id FROM ledger_turn")]
    past = timedelta(days=days)
    stores.execute("UPDATE ledger_entry SET completed_at = now() - %s WHERE turn_id = ANY (%s)", past, ids)
    stores.execute(
        "UPDATE ledger_turn SET ended_at = now() - %s WHERE turn_id = ANY (%s) AND ended_at IS NOT NULL", past, ids
    )


def totals(stores: Stores) -> RetentionTotals:
    with stores.database.transaction() as connection:
        return read_totals(connection)


def ordinals(stores: Stores) -> list[int]:
    return [row[0] for row in stores.rows("SELECT ordinal FROM ledger_entry ORDER BY ledger_id, ordinal")]


def seqs_of(stores: Stores, turn: Turn) -> list[int]:
    return [row[0] for row in stores.rows("SELECT seq FROM ledger_event WHERE turn_id = %s ORDER BY 1", turn.turn_id)]


def replayed(stores: Stores, *, version: int | None = None, ledger: LedgerName = LEAD) -> list[str]:
    with stores.database.transaction() as connection:
        return contents(replay(connection, stores.head(ledger), version=version))


def shown(stores: Stores) -> Transcript:
    with stores.database.transaction() as connection:
        return transcript(connection, stores.head())


# Entries


def test_entries_strictly_older_are_deleted_and_the_block_counts_them(stores: Stores, node: Turns) -> None:
    """Those of exactly the age and younger ones stay; ordinals go on (RT-4, BL-5, EN-11)."""
    turns = [finished(node, f"Ask {number}") for number in range(5)]
    stores.drain()
    for turn, days in zip(turns, (40, 30.01, 29.99, 3, 0), strict=True):
        age(stores, days, turn)
    assert sweep(stores) == Removed(entries=2)
    assert ordinals(stores) == [3, 4, 5]
    block = begin(node).earlier
    assert "(2 earlier turns are no longer stored.)" in block
    finished(node, "Ask 5")
    stores.drain()
    assert ordinals(stores) == [3, 4, 5, 6]
    assert sweep(stores) == NOTHING


def test_the_days_in_force_are_those_of_the_file_at_that_moment(stores: Stores, node: Turns, tmp_path: Path) -> None:
    """Changed alone, seen at the next sweep of the same process (RT-1, RT-2, RT-4)."""
    turns = [finished(node, f"Ask {number}") for number in range(3)]
    stores.drain()
    for turn, days in zip(turns, (25, 15, 5), strict=True):
        age(stores, days, turn)
    config = write_config(tmp_path)
    database = Database.from_settings(database_url=stores.database_url, config=config)
    retention = Retention(database, least_age_s=900, batch_rows=10)
    left = []
    for days in (30, 20, 10, 6):
        write_config(tmp_path, retention_days=days)
        retention.sweep(stopped=lambda: False)
        left.append(len(ordinals(stores)))
    database.close()
    assert left == [3, 2, 1, 1]


def test_an_age_below_the_interval_is_raised_to_it(stores: Stores, node: Turns) -> None:
    """Nothing is deleted that no sweep has seen young (RT-4)."""
    turns = [finished(node, f"Ask {number}") for number in range(2)]
    stores.drain()
    for turn, days in zip(turns, (3, 1.5), strict=True):
        age(stores, days, turn)
    assert sweep(stores, retention_days=1, event_retention_days=1, least_age_s=2 * 86_400).entries == 1
    assert ordinals(stores) == [2]
    assert (seqs_of(stores, turns[0]), len(seqs_of(stores, turns[1]))) == ([], EVENTS)


def test_entries_of_many_ledgers_go_in_batches(stores: Stores, node: Turns) -> None:
    """The last one small or empty; all are counted (RT-4)."""
    before = totals(stores)
    for number in range(7):
        finished(node, ledger=LedgerName("lead", f"jira:POC-{number % 3}"))
    stores.drain()
    age(stores, 31)
    assert sweep(stores, batch_rows=3) == Removed(entries=7)
    after = totals(stores)
    assert after.entries - before.entries == 7
    assert after.since is not None
    assert after.swept_at is not None
    assert timedelta(0) <= datetime.now(tz=UTC) - after.swept_at < timedelta(minutes=1)


def test_an_account_goes_with_an_entry_that_it_stands_for(stores: Stores, node: Turns) -> None:
    """It tells what was in it (RT-4)."""
    old, young = finished(node, "Old"), finished(node, "Young", ledger=OTHER)
    stores.drain()
    age(stores, 31, old)
    with stores.database.transaction() as connection:
        ledgers = {turn: stores.head(turn.ledger).ledger_id for turn in (old, young)}
        for turn, ledger_id in ledgers.items():
            save_account(connection, Account(frozenset({turn.entry_id}), "In short"), ledger_id=ledger_id)
    sweep(stores)
    with stores.database.transaction() as connection:
        assert [find_account(connection, ledgers[turn]) is None for turn in (old, young)] == [True, False]


def test_an_account_goes_with_an_entry_that_is_trimmed(stores: Stores, node: Turns) -> None:
    """In the commit that trims it; an account of what stays does not (RT-3)."""
    turns = [finished(node, f"Ask {number}", ledger=ledger) for ledger in (LEAD, OTHER) for number in range(3)]
    stores.drain()
    ledgers = {ledger: stores.head(ledger).ledger_id for ledger in (LEAD, OTHER)}
    with stores.database.transaction() as connection:
        for turn in (turns[0], turns[5]):
            save_account(connection, Account(frozenset({turn.entry_id}), "In short"), ledger_id=ledgers[turn.ledger])
    for ledger in (LEAD, OTHER):
        finished(node, "One more", ledger=ledger)
    stores.drain(max_entries=2)
    with stores.database.transaction() as connection:
        assert [find_account(connection, ledgers[ledger]) is None for ledger in (LEAD, OTHER)] == [True, False]


@pytest.mark.parametrize("what", ["entry", "events", "both"])
def test_a_late_duplicate_of_a_swept_turn_is_still_a_duplicate(stores: Stores, node: Turns, what: str) -> None:
    """Its row is the memory: a start is refused, a completion adds nothing (RT-5, ST-3, ST-5)."""
    late = begin(node, "Late", work_key="k")
    stores.redis.delete(stores.keys.open(LEAD))
    first = finished(node, "Ask", work_key="k")
    stores.drain()
    age(stores, 31, first)
    section = {
        "entry": {},
        "events": {"retention_days": 99, "event_retention_days": 1},
        "both": {"event_retention_days": 1},
    }
    sweep(stores, **section[what])
    stores.redis.flushall()
    with pytest.raises(AlreadyHandled) as refused:
        begin(node, "Ask", work_key="k")
    assert refused.value.turn_id == first.turn_id
    answer = late.complete(reply=Replied("Again"), steps=[user("Again")])
    assert (answer.turn_id, answer.duplicate) == (first.turn_id, True)
    assert stores.types(late.turn_id)[-1] == "turn_duplicate"
    assert len(ordinals(stores)) == (1 if what == "events" else 0)
    assert stores.head().turn_count == 1


# Events


def test_events_stay_unless_the_configuration_gives_them_an_age(stores: Stores, node: Turns) -> None:
    """The default is none (RT-1, RT-4)."""
    turn = finished(node)
    stores.drain()
    age(stores, 10_000)
    assert sweep(stores) == Removed(entries=1)
    assert len(seqs_of(stores, turn)) == EVENTS


def test_the_events_of_whole_turns_are_deleted(stores: Stores, node: Turns) -> None:
    """Every one, of turns that ran one in another too; numbers go on densely for new rows (RT-4, EV-4)."""
    outer = begin(node, "Outer", messages=[Message("o", "Outer")])
    old = finished(node, "Old")
    failed = begin(node, "Failed")
    failed.fail("agent_run_failed")
    stores.drain()
    outer.record(message_updated("o", state={"seen": True}, update_id="u"))
    outer.complete(reply=NoReplyOwed(), steps=[user("Outer"), assistant("Done")])
    stores.drain()
    age(stores, 11, old, failed)
    kept, head = seqs_of(stores, outer), stores.head()
    removed = sweep(stores, event_retention_days=10)
    assert removed == Removed(turns=2, events=EVENTS + 2)
    assert (seqs_of(stores, old), seqs_of(stores, failed), seqs_of(stores, outer)) == ([], [], kept)
    assert stores.head() == head
    assert replayed(stores) == contents([user("Outer"), assistant("Done")])
    after = finished(node, "New")
    stores.drain()
    assert seqs_of(stores, after) == list(range(head.next_seq, head.next_seq + EVENTS))
    assert sweep(stores, event_retention_days=10) == NOTHING


def test_a_turn_that_is_not_ended_keeps_its_events_however_old(stores: Stores, node: Turns) -> None:
    """Running or parked: it may be resumed and completed (RT-4, CK-6)."""
    running, parked = begin(node, "Running"), begin(node, "Parked")
    parked.park(reason="waiting", steps=[user("Parked")])
    stores.execute("UPDATE ledger_turn SET started_at = now() - interval '400 days'")
    age(stores, 400)
    assert sweep(stores, event_retention_days=1) == NOTHING
    running.complete(reply=NoReplyOwed())
    node.resume(parked.turn_id).complete(reply=NoReplyOwed())
    stores.drain()
    assert stores.head().turn_count == 2


def test_a_turn_is_never_swept_in_part(stores: Stores, node: Turns) -> None:
    """However few rows a batch may have; each batch is one transaction (RT-4)."""
    turns = [finished(node, f"Ask {number}") for number in range(4)]
    stores.drain()
    age(stores, 11)
    database = Database.from_settings(database_url=stores.database_url, **stores.section(event_retention_days=10))
    retention = Retention(database, least_age_s=900, batch_rows=EVENTS + 1)
    left, looks = [], iter(range(100))

    def stopped() -> bool:
        left.append([len(seqs_of(stores, turn)) for turn in turns])
        return next(looks) == 1

    assert retention.sweep(stopped=stopped) == Removed(turns=2, events=2 * EVENTS, whole=False)
    database.close()
    assert sorted(left[-1]) == [0, 0, EVENTS, EVENTS]
    assert {count for each in left for count in each} == {0, EVENTS}
    assert sweep(stores, event_retention_days=10) == Removed(turns=2, events=2 * EVENTS)


def replace(turn: Turn, text: str) -> None:
    turn.compact(turn.history_to_replace(), steps=[assistant(text)], model="m")


def test_the_turn_that_the_history_in_force_begins_with_stays_whole(stores: Stores, node: Turns) -> None:
    """And goes once another replacement has taken its place; the replay is the same before and after (RT-4, HV-4)."""
    old = finished(node, "Old")
    stores.drain()
    first = begin(node, "First")
    first.save(steps=[user("First")])
    replace(first, "In short")
    first.complete(reply=NoReplyOwed(), steps=[assistant("First done")])
    finished(node, "Later")
    stores.drain()
    age(stores, 11)
    sweep(stores, event_retention_days=10)
    assert (seqs_of(stores, old), len(seqs_of(stores, first))) == ([], 5)
    assert replayed(stores) == contents([assistant("In short"), assistant("First done")])
    second = begin(node, "Second")
    replace(second, "Shorter")
    second.complete(reply=NoReplyOwed())
    stores.drain()
    age(stores, 11, first)
    assert sweep(stores, event_retention_days=10).turns == 1
    assert seqs_of(stores, first) == []
    assert replayed(stores) == contents([assistant("Shorter")])
    for version in (0, 1):
        if version:
            with pytest.raises(InvalidInput, match="history version 1 is stored no longer"):
                replayed(stores, version=version)
        else:
            assert replayed(stores, version=version) == []


def test_an_older_version_that_is_stored_reads_as_before_although_the_next_begins_with_nothing(
    stores: Stores, node: Turns
) -> None:
    """HV-10."""
    young = finished(node, "Young")
    stores.drain()
    for name in ("First", "Second"):
        turn = begin(node, name)
        replace(turn, name)
        turn.complete(reply=NoReplyOwed())
        stores.drain()
        age(stores, 11, turn)
    before = replayed(stores, version=0)
    assert sweep(stores, event_retention_days=10).turns == 1
    assert replayed(stores, version=0) == before == contents([user("Young"), assistant("Answer to Young")])
    assert len(seqs_of(stores, young)) == EVENTS


def test_a_child_ledger_keeps_its_first_history_and_loses_it_with_the_next(stores: Stores, node: Turns) -> None:
    """Its event names a turn of the parent, which may be swept long before (RT-4, HV-7)."""
    parent = begin(node, "Parent")
    child = parent.open_child("helper", steps=[user("Take over")], model="m")
    parent.complete(reply=NoReplyOwed())
    one = finished(node, "Help", ledger=child)
    stores.drain()
    age(stores, 11)
    stores.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
    stores.execute("UPDATE ledger_event SET recorded_at = recorded_at - interval '11 days'")
    stores.execute("ALTER TABLE ledger_event ENABLE TRIGGER ALL")
    sweep(stores, event_retention_days=10)
    assert (len(seqs_of(stores, parent)), seqs_of(stores, one)) == (1, [])
    assert replayed(stores, ledger=child) == contents([user("Take over")])
    two = begin(node, "More", ledger=child)
    replace(two, "In short")
    two.complete(reply=NoReplyOwed())
    three = finished(node, "Last", ledger=child)
    stores.drain()
    age(stores, 11, three)
    sweep(stores, event_retention_days=10)
    assert seqs_of(stores, parent) == []
    assert replayed(stores, ledger=child) == contents([assistant("In short")])


@pytest.mark.parametrize("state", ["parked", "running"])
def test_a_turn_whose_cursor_names_a_swept_event_goes_on(stores: Stores, node: Turns, state: str) -> None:
    """Retention is no restored backup: it blocks nobody (CK-9, RT-4)."""
    old = finished(node, "Old")
    stores.drain()
    turn = begin(node, "New", turn_id="t-new")
    turn.park(reason="waiting", steps=[user("New")])
    name_in_cursor(stores, turn, old)
    age(stores, 11, old)
    assert sweep(stores, event_retention_days=10).turns == 1
    again = stores.node().resume(turn.turn_id)
    if state == "running":
        again.save(steps=[assistant("Well")])
    again.complete(reply=NoReplyOwed())
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def name_in_cursor(stores: Stores, turn: Turn, old: Turn) -> None:
    """As a turn that began where Postgres could not be written has it: built on the last event before it."""
    cursor = changed(turn.cursor, seq=seqs_of(stores, old)[-1], seq_turn_id=old.turn_id)
    stores.redis.hset(stores.keys.record(turn.turn_id), "cursor", cursor.encode())


def test_an_event_that_is_missing_for_another_reason_still_blocks(stores: Stores, node: Turns) -> None:
    """Only what retention removed may be missing (CK-9)."""
    old, older = finished(node, "Old"), finished(node, "Other", ledger=OTHER)
    stores.drain()
    turn = begin(node, "New")
    turn.park(reason="waiting")
    name_in_cursor(stores, turn, old)
    age(stores, 11, older)
    sweep(stores, event_retention_days=10)
    stores.execute("ALTER TABLE ledger_event DISABLE TRIGGER ALL")
    stores.execute("DELETE FROM ledger_event WHERE turn_id = %s", old.turn_id)
    with pytest.raises(TurnBlocked, match="other_history"):
        stores.node().resume(turn.turn_id)


def test_a_lost_turn_that_comes_back_after_its_events_were_swept_keeps_what_it_writes(
    stores: Stores, node: Turns
) -> None:
    """Its completion is recorded as ever, and not taken for a remainder (EV-6, RT-4)."""
    turn = begin(node, "Lost", messages=[Message("m", "Lost")])
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        lose_run(connection, head, turn.turn_id, code="session_lost", now="2026-01-01T00:00:00.000Z")
    assert sweep(stores, event_retention_days=10) == Removed(turns=1, events=3)
    turn.complete(reply=Replied("Here"), steps=[user("Lost"), assistant("Here")])
    stores.drain()
    other = finished(node, "Other")
    stores.drain()
    age(stores, 11, other)
    assert sweep(stores, event_retention_days=10).turns == 1
    assert stores.types(turn.turn_id)[-1] == "turn_completed"
    assert replayed(stores) == contents([user("Lost"), assistant("Here")])


def test_a_lost_turn_whose_own_steps_are_in_the_log_keeps_them(stores: Stores, node: Turns) -> None:
    """Whoever comes back for it has forgotten them, perhaps (RT-4, HV-8)."""
    turn = begin(node, "Lost")
    turn.save(steps=[user("Lost")])
    replace(turn, "In short")
    other = begin(node, "Other")
    replace(other, "Shorter")
    other.complete(reply=NoReplyOwed())
    stores.drain()
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        lose_run(connection, head, turn.turn_id, code="session_lost", now="2026-01-01T00:00:00.000Z")
    before = seqs_of(stores, turn)
    assert sweep(stores, event_retention_days=10) == NOTHING
    assert seqs_of(stores, turn) == before


def test_a_lost_turn_that_comes_back_to_replace_the_history_keeps_the_replacement(stores: Stores, node: Turns) -> None:
    """Although its other events were swept meanwhile (RT-4, HV-2)."""
    turn = begin(node, "Lost", messages=[Message("m", "Lost")])
    with stores.database.transaction() as connection:
        head = lock_ledger(connection, LEAD)
        assert head is not None
        lose_run(connection, head, turn.turn_id, code="session_lost", now="2026-01-01T00:00:00.000Z")
    assert sweep(stores, event_retention_days=10).turns == 1
    replace(turn, "In short")
    other = finished(node, "Other")
    stores.drain()
    age(stores, 11, other)
    assert sweep(stores, event_retention_days=10) == Removed(turns=1, events=EVENTS)
    assert replayed(stores) == contents([assistant("In short")])


def test_what_a_swept_turn_writes_after_its_end_goes_with_the_next_batch(stores: Stores, node: Turns) -> None:
    """No remainder stays for ever (RT-4)."""
    turn = finished(node, "Old")
    stores.drain()
    age(stores, 11)
    sweep(stores, event_retention_days=10)
    turn.record(message_updated("m:Old", state={"seen": True}, update_id="u"))
    other = finished(node, "Other")
    stores.drain()
    age(stores, 11, other)
    assert sweep(stores, event_retention_days=10) == Removed(turns=1, events=EVENTS + 1)
    assert seqs_of(stores, turn) == []


# Transcript


def test_a_later_state_of_a_swept_message_is_no_error(stores: Stores, node: Turns) -> None:
    """In a ledger of which nothing was swept it is one (EV-2, EV-8)."""
    old, keeper = finished(node, "Old"), begin(node, "Keeper", messages=[Message("k", "Keeper")])
    stores.drain()
    keeper.record(message_updated("m:Old", state={"seen": True}, update_id="u1"))
    keeper.record(message_updated("k", state={"seen": True}, update_id="u2"))
    age(stores, 11, old)
    sweep(stores, event_retention_days=10)
    messages = shown(stores).messages
    assert [(message.text, message.states) for message in messages] == [("Keeper", ({"seen": True},))]
    assert finished(node, "Old", ledger=OTHER).record(message_updated("nobody", state={}, update_id="u3")) is not None
    with stores.database.transaction() as connection, pytest.raises(CorruptData, match="which is not recorded"):
        transcript(connection, stores.head(OTHER))


def test_a_summary_outlives_the_message_that_it_begins_with(stores: Stores, node: Turns) -> None:
    """What it stands for stays out of sight, what came later stays in it (EV-8, RT-4)."""
    keeper = begin(node, "Keeper", messages=[Message("first", "First")])
    old = finished(node, "Old")
    stores.drain()
    summary = messages_summarized("In short", message_ids=["first"], first_live_message_id="m:Old")
    keeper.record(summary, message_updated("first", state={"seen": True}, update_id="u"))
    young = finished(node, "Young")
    stores.drain()
    age(stores, 11, old)
    assert [message.text for message in shown(stores).messages] == ["Old", "Answer to Old", "Young", "Answer to Young"]
    sweep(stores, event_retention_days=10)
    after = shown(stores)
    assert (after.summary, after.summarized) == ("In short", 1)
    assert [message.text for message in after.messages] == ["Young", "Answer to Young"]
    assert young.turn_id


def test_a_message_that_comes_again_after_its_sweep_is_recorded_again(stores: Stores, node: Turns) -> None:
    """Once: the transcript shows one (EV-2)."""
    finished(node, "Old")
    stores.drain()
    age(stores, 11)
    sweep(stores, event_retention_days=10)
    finished(node, "Old")
    stores.drain()
    assert [message.text for message in shown(stores).messages] == ["Old", "Answer to Old"]


# Side by side


def test_two_sweeps_at_once_do_no_harm(stores: Stores, node: Turns) -> None:
    """What one removes the other does not count (RT-4, RC-16)."""
    before = totals(stores)
    for number in range(60):
        finished(node, f"Ask {number}", ledger=LedgerName("lead", f"jira:POC-{number % 6}"))
    stores.drain()
    age(stores, 40)
    barrier, removed = threading.Barrier(3), []

    def run() -> None:
        barrier.wait()
        removed.append(sweep(stores, batch_rows=13, event_retention_days=35))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    removed.append(sweep(stores, event_retention_days=35))
    total = sum(removed, Removed())
    assert (total.entries, total.turns, total.events) == (60, 60, 60 * EVENTS)
    after = totals(stores)
    assert (after.entries - before.entries, after.events - before.events) == (60, 60 * EVENTS)
    assert stores.rows("SELECT count(*) FROM ledger_event") == [(0,)]


def test_a_ledger_that_somebody_holds_is_left_to_the_next_sweep(stores: Stores, node: Turns) -> None:
    """It waits for nobody, and the other ledgers do not wait either (RT-4, QU-13)."""
    turn, other = finished(node, "Ask"), finished(node, "Ask", ledger=OTHER)
    stores.drain()
    age(stores, 11)
    with stores.database.transaction() as connection:
        lock_ledger(connection, LEAD)
        assert sweep(stores, event_retention_days=10).turns == 1
    assert (len(seqs_of(stores, turn)), seqs_of(stores, other)) == (EVENTS, [])
    assert sweep(stores, event_retention_days=10).turns == 1


def test_an_entry_that_somebody_holds_is_left_to_the_next_sweep(stores: Stores, node: Turns) -> None:
    """As a commit does that trims: nobody waits for the other (RT-4)."""
    turns = [finished(node, f"Ask {number}") for number in range(3)]
    stores.drain()
    age(stores, 31)
    with stores.connection() as connection:
        connection.execute("SELECT 1 FROM ledger_entry WHERE turn_id = %s FOR UPDATE", [turns[1].turn_id])
        assert sweep(stores) == Removed(entries=2)
    assert sweep(stores) == Removed(entries=1)


def test_turns_start_complete_and_commit_while_sweeps_run(stores: Stores) -> None:
    """None is lost, none waits long enough to notice (RT-4, ST-2)."""
    ended, errors = threading.Event(), []

    def sweeping() -> None:
        while not ended.is_set():
            age(stores, 40)
            try:
                sweep(stores, batch_rows=20, event_retention_days=35)
            except Exception as error:  # noqa: BLE001  # whatever it is, the test fails with it
                errors.append(error)

    thread = threading.Thread(target=sweeping)
    thread.start()
    node = stores.node()
    turns = []
    for number in range(40):
        turn = finished(node, f"Ask {number}", work_key=f"k{number}")
        assert turn.history_error is None
        turns.append(turn)
        stores.drain()
    ended.set()
    thread.join()
    assert errors == []
    with stores.database.transaction() as connection:
        runs = find_runs(connection, [turn.turn_id for turn in turns])
    assert [runs[turn.turn_id].outcome for turn in turns] == ["completed"] * 40
    assert stores.head().turn_count == 40


def test_a_sweep_that_is_stopped_does_one_batch_and_says_so(stores: Stores, node: Turns) -> None:
    """Of each kind, so that the shortest sweeps come to an end; `swept_at` is that of the last whole one (RT-4)."""
    for number in range(2):
        finished(node, f"Ask {number}")
    stores.drain()
    age(stores, 31)
    database = Database.from_settings(database_url=stores.database_url, **stores.section(event_retention_days=30))
    retention = Retention(database, least_age_s=1, batch_rows=1)
    swept_at = totals(stores).swept_at
    shares = [retention.sweep(stopped=lambda: True) for _ in range(2)]
    assert totals(stores).swept_at == swept_at
    shares.append(retention.sweep(stopped=lambda: False))
    database.close()
    one = Removed(entries=1, turns=1, events=EVENTS, whole=False)
    assert shares == [one, one, NOTHING]
    assert totals(stores).swept_at != swept_at


def test_the_log_refuses_to_lose_an_event_in_any_other_way(stores: Stores, node: Turns) -> None:
    """A sweep's permission ends with its transaction (RT-4)."""
    finished(node)
    stores.drain()
    age(stores, 11)
    sweep(stores, event_retention_days=10)
    finished(node)
    with pytest.raises(Exception, match="append-only"):
        stores.execute("DELETE FROM ledger_event")


def seed_many(stores: Stores) -> None:
    """Enough for a planner to see that scanning it all is no good: 2,000 turns in 20 ledgers."""
    node = stores.node()
    for number in range(20):
        begin(node, ledger=LedgerName("lead", f"jira:POC-{number}")).abandon()
    stores.execute(
        "INSERT INTO ledger_turn (turn_id, ledger_id, work_key, started_at, ended_at, outcome)"
        " SELECT 'old-' || ledger_id || '-' || n, ledger_id, '', now(), now() - interval '60 days', 'completed'"
        " FROM ledger, generate_series(1, 100) AS n"
    )
    stores.execute(
        "INSERT INTO ledger_entry (ledger_id, ordinal, entry_id, turn_id, work_key, completed_at, entry)"
        " SELECT ledger_id, row_number() OVER (), gen_random_uuid(), turn_id, '',"
        " now() - random() * interval '60 days', json_build_object('triggered_by', repeat('word ', 100))"
        " FROM ledger_turn WHERE turn_id LIKE 'old-%'"
    )
    stores.execute(
        "INSERT INTO ledger_event"
        " (ledger_id, seq, history_version, type, schema_version, turn_id, payload, occurred_at)"
        " SELECT ledger_id, 10 + row_number() OVER (PARTITION BY ledger_id), 0, 'agent_step', 1, turn_id, '{}', now()"
        " FROM ledger_turn, generate_series(1, 4) WHERE turn_id LIKE 'old-%'"
    )
    stores.execute("ANALYZE ledger, ledger_turn, ledger_event, ledger_entry")


@pytest.mark.parametrize(
    ("statement", "index", "parameters"),
    [
        ("sweep_entries", "ledger_entry_completed", {"after": "1970-01-01", "age_s": 5_000_000.0, "most": 10}),
        (
            "lock_sweepable",
            "ledger_turn_unswept",
            {"after": "1970-01-01", "after_turn_id": "", "age_s": 86_400.0, "most": 10},
        ),
        ("look_sweepable", "ledger_event_key", {"age_s": 86_400.0, "turn_ids": ["old-1-1"]}),
        (
            "sweep_events",
            "ledger_event_pkey",
            {"age_s": 86_400.0, "ledger_ids": [1, 2], "turn_ids": ["old-1-1", "old-2-1"], "last_seqs": [20, 20]},
        ),
    ],
)
def test_a_batch_looks_things_up_and_scans_no_table(
    stores: Stores, statement: str, index: str, parameters: dict[str, object]
) -> None:
    """Whatever the planner believes of its arrays (RT-4, PR-5)."""
    seed_many(stores)
    with stores.connection() as connection:
        query = driver_text(statement)
        if statement == "sweep_events":
            query = _body_of_the_function(connection, names="|".join(parameters))
        rows = connection.execute(f"EXPLAIN {query}".encode(), parameters).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert index in plan
    scanned = {table for table in TABLES if re.search(rf"Seq Scan on {table}\b", plan)}
    assert scanned <= {"ledger", "ledger_account"}, plan


def _body_of_the_function(connection: psycopg.Connection[Any], *, names: str) -> str:
    """With its parameters as the driver takes them, and its settings in force."""
    function = "FROM pg_proc WHERE oid = 'sweep_events'::regproc"
    settings = (
        f"SELECT split_part(line, '=', 1), split_part(line, '=', 2) FROM (SELECT unnest(proconfig) AS line {function})"
    )
    for setting in connection.execute(settings.encode()).fetchall():
        connection.execute("SELECT set_config(%s, %s, true)", setting)
    ((body,),) = connection.execute(f"SELECT prosrc {function}".encode()).fetchall()
    return re.sub(rf"\b({names})\b", r"%(\1)s", str(body).partition(";")[2])
