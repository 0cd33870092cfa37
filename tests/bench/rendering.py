"""What a block costs beside the read of its entries."""

from sqlalchemy import Connection

from tests.bench.payload import sample_turns
from tests.bench.results import Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import seed_committed
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.checkpoint.earlier import earlier_layout
from turnledger.store.block import render_layout
from turnledger.store.ledger import Beginning, Head, StoredEntry, read_head, recent_entries

ENTRIES, ROUNDS = 20, 500
ROOM = 1_000_000  # all of them whole


def measure(rig: Rig) -> Report:
    """Decoding and rendering 20 entries, against the SQL statement that reads them."""
    rig.empty()
    history = sample_turns(ENTRIES, ledgers=1)
    seed_committed(rig, history)
    with rig.database.snapshot() as connection:
        head = read_head(connection, history[0].ledger)
        assert head is not None
        entries = _read(connection, head)
        rendered = len(_block(head, entries).encode())
        sides = [
            lambda: seconds_of(lambda: _block(head, entries)),
            lambda: seconds_of(lambda: _read(connection, head)),
        ]
        ours, read = (median(side) * 1_000 for side in in_turns(*sides, rounds=ROUNDS))
    result = Result(f"rendering {ENTRIES} entries", ours, "ms", "reading them by SQL", read)
    how = f"The block has {rendered:,} bytes. Decoding, merging and rendering, medians of {ROUNDS} rounds in turns."
    return Report("l. Rendering a block", how, [result])


def _read(connection: Connection, head: Head) -> tuple[StoredEntry, ...]:
    return recent_entries(connection, head.ledger_id, most=ENTRIES)


def _block(head: Head, entries: tuple[StoredEntry, ...]) -> str:
    beginning = Beginning(head, entries, frozenset(), None, {})
    layout = earlier_layout(beginning, uncommitted=(), most_entries=ENTRIES, budget_bytes=ROOM)
    return render_layout(layout, account=None)
