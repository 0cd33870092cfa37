"""What a replay of a ledger costs by its age: the same history behind a compaction, with more and more before it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from sqlalchemy import Connection

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import EVENT_COLUMNS
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.store import LedgerName, Message
from turnledger.store.database import copy_rows
from turnledger.store.events import EventRow, completed_event, message_event, started_event, step_row
from turnledger.store.history import replay
from turnledger.store.ledger import (
    Head,
    Run,
    advance_heads,
    create_ledgers,
    insert_events,
    insert_run,
    lock_ledger,
    read_head,
)
from turnledger.store.replacement import Replacement, replace_history
from turnledger.store.steps import encode_step
from turnledger.store.times import time_text

AGES = (10, 1_000, 100_000)  # events before the compaction
REPLACED_BY, TURNS_AFTER, WORDINGS, ROUNDS = 20, 12, 200, 200
FLAT = 1.3
_NOW = time_text(1_780_000_000_000)


def measure(rig: Rig) -> Report:
    """`replay` of three ledgers that differ in nothing but the events before their compaction, in turns."""
    rig.empty()
    names = [_seed(rig, older=older) for older in AGES]
    rig.vacuum()
    steps = {_replayed(rig, name) for name in names}
    assert len(steps) == 1, f"the ledgers replay {steps} steps: they are not alike"
    sides = [lambda name=name: seconds_of(lambda: _replayed(rig, name)) for name in names]
    young, *old = (median(side) * 1_000 for side in in_turns(*sides, rounds=ROUNDS))
    results = [
        Result(f"replay, {older:,} older events", p50, "ms", f"{AGES[0]} older events", young, Goal("at most", FLAT))
        for older, p50 in zip(AGES[1:], old, strict=True)
    ]
    return Report("g. Replaying old ledgers", _how(*steps), results)


def _replayed(rig: Rig, name: LedgerName) -> int:
    """How many steps the current history has, read as every caller reads it."""
    with rig.database.snapshot() as connection:
        head = read_head(connection, name)
        assert head is not None
        return len(replay(connection, head))


def _seed(rig: Rig, *, older: int) -> LedgerName:
    """So many events of version 0, a compaction, and then the same few turns whatever came before."""
    name = LedgerName("lead", f"bench:replay-{older}")
    samples = sample_turns(WORDINGS, ledgers=1)
    create_ledgers(rig.database, [name])
    with rig.database.transaction() as connection:
        head = lock_ledger(connection, name)
        assert head is not None
        head = _copy_older(connection, head, samples, older=older)
        head = _compact(connection, head, samples[0])
        for number in range(TURNS_AFTER):
            rows = _turn_rows(samples[number], number=older + number)
            insert_events(connection, head, rows, turn_id=f"after-{older}-{number}")
            head = replace(head, next_seq=head.next_seq + len(rows))
        advance_heads(connection, [head])
    return name


def _copy_older(connection: Connection, head: Head, samples: Sequence[SampleTurn], *, older: int) -> Head:
    rows = enumerate(islice(_all_rows(samples), older))
    copied = ((head.ledger_id, seq, 0, f"before-{older}-{number}", *row) for seq, (number, row) in rows)
    copy_rows(connection, target=EVENT_COLUMNS, rows=copied)
    return replace(head, next_seq=older)


def _all_rows(samples: Sequence[SampleTurn]) -> Iterator[tuple[int, EventRow]]:
    number = 0
    while True:
        yield from ((number, row) for row in _turn_rows(samples[number % WORDINGS], number=number))
        number += 1


def _turn_rows(sample: SampleTurn, *, number: int) -> list[EventRow]:
    """The eight events of a turn; the words come again, the ids do not."""
    turn_id = f"{number}-{sample.turn_id}"
    return [
        message_event(Message(f"m-{number}", sample.message.text), now=_NOW),
        started_event(turn_id, work_key=sample.work_key, now=_NOW),
        *(step_row(encode_step(step), now=_NOW) for step in sample.steps),
        completed_event(turn_id, entry_id=f"{number:032x}", ordinal=number + 1, decision="done", now=_NOW),
    ]


def _compact(connection: Connection, head: Head, sample: SampleTurn) -> Head:
    turn_id = f"compacts-{head.ledger_id}"
    insert_run(connection, Run(turn_id, head.ledger_id, turn_id, 1, 0, None, None), started_at=_NOW)
    steps = [sample.steps[0], sample.steps[-1]] * (REPLACED_BY // 2)
    replacement = Replacement(
        turn_id=turn_id,
        epoch=1,
        version=head.history_version,
        through_seq=head.next_seq - 1,
        steps=tuple(steps),
        covered=(),
        model="bench",
    )
    return replace_history(connection, head, replacement, now=_NOW)


def _how(steps: int) -> str:
    ages = ", ".join(f"{age:,}" for age in AGES)
    return (
        f"Three ledgers with {ages} events of the version before, then one compaction to {REPLACED_BY} steps and "
        f"{TURNS_AFTER} turns of eight events; each replays the same {steps} steps. One replay is one snapshot: the "
        f"head, the replacement, what follows it, all decoded. Medians of {ROUNDS} rounds in turns."
    )
