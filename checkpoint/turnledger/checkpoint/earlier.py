"""What a turn is shown of the earlier ones: committed entries and those still on their way, merged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from turnledger.checkpoint.record import PendingTurn
from turnledger.store import CorruptData, Entry, InvalidInput
from turnledger.store.block import Account, Layout, lay_out, render_layout
from turnledger.store.entry import decode_entry
from turnledger.store.fitting import with_names
from turnledger.store.ledger import Beginning, Run, StoredEntry
from turnledger.store.logs import get_logger
from turnledger.store.times import time_text

log = get_logger(__name__)


def earlier_block(
    beginning: Beginning,
    *,
    uncommitted: Sequence[PendingTurn],
    most_entries: int,
    budget_bytes: int,
    find_account: Callable[[], Account | None],
) -> str:
    """The block of a turn that begins: each earlier turn once, also one that was committed between the reads.

    `find_account` is asked only where entries are left out and there is room for an account of them.
    """
    layout = earlier_layout(beginning, uncommitted=uncommitted, most_entries=most_entries, budget_bytes=budget_bytes)
    return render_layout(layout, account=find_account() if layout.account_bytes else None)


def earlier_layout(
    beginning: Beginning, *, uncommitted: Sequence[PendingTurn], most_entries: int, budget_bytes: int
) -> Layout:
    """How the block of a turn that begins is laid out."""
    on_their_way = not_committed(uncommitted, beginning.runs)
    stored = [_stored(entry) for entry in beginning.entries]
    moving = [_on_its_way(turn) for turn in on_their_way]
    found = [*stored, *moving]
    readable = [entry for entry in found if entry is not None]
    return lay_out(
        sorted(readable, key=_age)[-most_entries:],
        total=beginning.head.turn_count + len(on_their_way),
        unreadable=len(found) - len(readable),
        budget_bytes=budget_bytes,
    )


def not_committed(turns: Iterable[PendingTurn], runs: Mapping[str, Run]) -> list[PendingTurn]:
    """Those that Postgres has not decided yet: its row of the run is the only evidence."""
    return [turn for turn in turns if turn.turn_id not in runs or runs[turn.turn_id].outcome in (None, "lost")]


def _age(entry: Entry) -> tuple[str, int]:
    on_its_way = 1 << 62
    return entry.completed_at or "", on_its_way if entry.ordinal is None else entry.ordinal


def _stored(stored: StoredEntry) -> Entry | None:
    try:
        entry = decode_entry(stored.text, ordinal=stored.ordinal)
    except CorruptData as error:
        log.warning("entry_unreadable", ordinal=stored.ordinal, where=error.where)
        return None
    return replace(entry, completed_at=time_text(stored.completed_at))


def _on_its_way(turn: PendingTurn) -> Entry | None:
    try:
        entry = with_names(decode_entry(turn.entry, ordinal=None))
        return replace(entry, completed_at=time_text(turn.completed_at_ms))
    except (CorruptData, InvalidInput) as error:
        log.warning("entry_unreadable", turn_id=turn.turn_id, where=error.where)
        return None
