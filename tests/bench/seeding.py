"""Brings turns to where a measurement begins, by the product's own code where it is quick enough.

Only the start is done in bulk in Postgres: started one by one, 10,000 turns would take minutes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.bench.payload import SampleTurn
from tests.bench.rig import Rig
from turnledger.checkpoint import Turns
from turnledger.checkpoint.loading import load_turns
from turnledger.checkpoint.record import LedgerView, decode_record
from turnledger.checkpoint.records import Claim, Records, new_token
from turnledger.checkpoint.starting import FIRST_REVISION, StartRequest, recorded_fields
from turnledger.checkpoint.turn import Turn
from turnledger.store import Database, LedgerName
from turnledger.store.commit import CompletedTurn, commit_turns
from turnledger.store.database import copy_rows
from turnledger.store.events import message_event, started_event
from turnledger.store.ledger import Beginning, Head, Run, advance_heads, create_ledgers, lock_free_ledgers
from turnledger.store.times import time_text

STARTED_AT_MS = 1_780_000_000_000
EVENT_COLUMNS = (
    "ledger_event (ledger_id, seq, history_version, turn_id, type, schema_version, idempotency_key, payload,"
    " content, search_text, occurred_at)"
)
RUN_COLUMNS = "ledger_turn (turn_id, ledger_id, work_key, started_at)"
GROUP = 200


Heads = dict[LedgerName, Head]


def seed_started(database: Database, samples: Sequence[SampleTurn]) -> Heads:
    """What `Turns.start` writes into Postgres; the heads after it."""
    names = list(dict.fromkeys(sample.ledger for sample in samples))
    create_ledgers(database, names)
    with database.transaction() as connection:
        heads = lock_free_ledgers(connection, names)
        events: list[Sequence[object]] = []
        for sample in samples:
            events += _start_rows(sample, heads)
        now = time_text(STARTED_AT_MS)
        runs = [(sample.turn_id, heads[sample.ledger].ledger_id, sample.work_key, now) for sample in samples]
        copy_rows(connection, target=EVENT_COLUMNS, rows=events)
        copy_rows(connection, target=RUN_COLUMNS, rows=runs)
        advance_heads(connection, list(heads.values()))
    return heads


def _start_rows(sample: SampleTurn, heads: Heads) -> list[Sequence[object]]:
    now, head = time_text(STARTED_AT_MS), heads[sample.ledger]
    rows = (
        message_event(sample.message, now=now),
        started_event(sample.turn_id, work_key=sample.work_key, now=now),
    )
    heads[sample.ledger] = replace(head, next_seq=head.next_seq + len(rows))
    return [
        (head.ledger_id, seq, head.history_version, sample.turn_id, *row) for seq, row in enumerate(rows, head.next_seq)
    ]


def open_turn(turns: Turns, records: Records, sample: SampleTurn, *, head: Head) -> Turn:
    """The record that a start makes, and the handle that it gives."""
    claim = Claim(sample.turn_id, new_token(), FIRST_REVISION)
    run = Run(sample.turn_id, head.ledger_id, sample.work_key, 1, 0, None, None)
    fields = recorded_fields(
        StartRequest(sample.turn_id, sample.ledger, sample.work_key, sample.message.text, (sample.message,)),
        LedgerView(STARTED_AT_MS, 0, None, (), (), ()),
        Beginning(head, (), frozenset(), None, {sample.turn_id: run}),
        block="",
    )
    records.open(claim, ledger=sample.ledger, work_key=sample.work_key, fields=fields)
    owned = {**fields, "owner": claim.owner, "revision": claim.revision}
    record = decode_record(claim.turn_id, {name: str(value) for name, value in owned.items()})
    return Turn(turns._services, record=record)


def start(turns: Turns, sample: SampleTurn) -> Turn:
    """Begin the turn as its engine does."""
    return turns.start(
        agent=sample.ledger.agent,
        conversation=sample.ledger.conversation,
        triggered_by=sample.message.text,
        work_key=sample.work_key,
        messages=[sample.message],
        turn_id=sample.turn_id,
    )


def complete(turn: Turn, sample: SampleTurn) -> None:
    """End the turn as its engine does."""
    turn.complete(reply=sample.reply, steps=sample.steps, set_out_to=sample.set_out_to, decision="done")


def open_turns(rig: Rig, samples: Sequence[SampleTurn]) -> list[Turn]:
    """Turns that run, each with nothing saved yet."""
    heads = seed_started(rig.database, samples)
    return [open_turn(rig.turns, rig.records, sample, head=heads[sample.ledger]) for sample in samples]


def seed_completed(rig: Rig, samples: Sequence[SampleTurn]) -> Heads:
    """Turns that are completed and queued, none committed; the heads before their commit."""
    heads = seed_started(rig.database, samples)
    for sample in samples:
        complete(open_turn(rig.turns, rig.records, sample, head=heads[sample.ledger]), sample)
        rig.redis.lmove(rig.records.keys.pending(sample.ledger), _aside(sample.ledger), "RIGHT", "RIGHT")
    for ledger in heads:
        rig.redis.rename(_aside(ledger), rig.records.keys.pending(ledger))
    return heads


def _aside(ledger: LedgerName) -> str:
    """Where the pending turns of a ledger wait while more are seeded: every start looks through all that is pending."""
    return f"bench:aside:{ledger.conversation}"


def seed_committed(rig: Rig, samples: Sequence[SampleTurn]) -> None:
    """Turns that are history; Redis forgets them."""
    records, database = rig.records, rig.database
    seed_completed(rig, samples)
    for group in groups_of(load_turns(records, [sample.turn_id for sample in samples])):
        with database.transaction() as connection:
            heads = lock_free_ledgers(connection, list({turn.ledger for turn in group}))
            commit_turns(connection, heads=heads, turns=group, most_entries=database.config.current().max_entries)
    records.redis.flushdb()


def groups_of(turns: Sequence[CompletedTurn]) -> Iterable[Sequence[CompletedTurn]]:
    """The turns in the groups in which they are committed."""
    return (turns[first : first + GROUP] for first in range(0, len(turns), GROUP))
