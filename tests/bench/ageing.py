"""What a start costs by the age of its ledger: the same newest entries, with more and more turns before them."""

from collections.abc import Iterator
from itertools import islice

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import GROUP, STARTED_AT_MS, start
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.store import Entry, LedgerName
from turnledger.store.commit import CompletedTurn, commit_turns
from turnledger.store.entry import calls_of, encode_entry
from turnledger.store.identity import new_entry_id
from turnledger.store.ledger import create_ledgers, lock_free_ledgers
from turnledger.store.steps import encode_step
from turnledger.store.times import time_text

AGES = (10, 1_000, 100_000)  # turns that the ledger has received
ENTRIES = 10  # as many as the youngest ledger has
WORDINGS, ROUNDS = 200, 200
FLAT = 1.2
_NEW = 60_000_000  # where the numbers of the turns begin that are started here


def measure(rig: Rig) -> Report:
    """`Turns.start` on three ledgers that show the same number of entries, in turns; each start is abandoned again."""
    rig.empty()
    names = [_seed(rig, turns=turns) for turns in AGES]
    rig.vacuum()
    numbers = iter(range(_NEW, _NEW + len(AGES) * ROUNDS))
    sides = [lambda name=name: _started(rig, SampleTurn(next(numbers), name)) for name in names]
    young, *old = (median(side) * 1_000 for side in in_turns(*sides, rounds=ROUNDS))
    results = [
        Result(f"start, {turns:,} turns", p50, "ms", f"{AGES[0]} turns", young, Goal("at most", FLAT))
        for turns, p50 in zip(AGES[1:], old, strict=True)
    ]
    return Report("k. Starting on old ledgers", _how(), results)


def _started(rig: Rig, sample: SampleTurn) -> float:
    begun = []
    seconds = seconds_of(lambda: begun.append(start(rig.turns, sample)))
    begun[0].abandon()
    return seconds


def _seed(rig: Rig, *, turns: int) -> LedgerName:
    name = LedgerName("lead", f"bench:age-{turns}")
    create_ledgers(rig.database, [name])
    completed = _completed(name, turns=turns)
    while group := list(islice(completed, GROUP)):
        with rig.database.transaction() as connection:
            heads = lock_free_ledgers(connection, [name])
            commit_turns(connection, heads=heads, turns=group, most_entries=ENTRIES)
    return name


def _completed(name: LedgerName, *, turns: int) -> Iterator[CompletedTurn]:
    samples = sample_turns(WORDINGS, ledgers=1)
    for number in range(turns):
        sample, turn_id = samples[number % WORDINGS], f"old-{turns}-{number}"
        entry = Entry(turn_id, new_entry_id(), sample.reply, calls=calls_of(sample.steps), set_out_to=sample.set_out_to)
        now = time_text(STARTED_AT_MS + number)
        yield CompletedTurn(
            turn_id=turn_id,
            ledger=name,
            work_key=turn_id,
            epoch=1,
            started_at=now,
            completed_at=now,
            entry_id=entry.entry_id,
            entry=encode_entry(entry),
            decision="done",
            steps=tuple(encode_step(step) for step in sample.steps),
        )


def _how() -> str:
    ages = ", ".join(f"{age:,}" for age in AGES)
    return (
        f"Three ledgers that have received {ages} turns and keep {ENTRIES} entries each. One start is all that an "
        f"engine waits for, record and block included; it is abandoned afterwards. Medians of {ROUNDS} rounds in turns."
    )
