"""What a start merges: entries from Postgres, and those of turns on their way."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.block_reader import read_block
from turnledger.checkpoint.earlier import earlier_block
from turnledger.checkpoint.record import PendingTurn
from turnledger.store import Entry, Replied
from turnledger.store.entry import encode_entry
from turnledger.store.ledger import Beginning, Head, Run, StoredEntry
from turnledger.store.times import milliseconds, time_text

NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)
BROKEN = '{"turn_id": 7'


class Earlier(NamedTuple):
    """An earlier turn: where it is, when it was completed, and whether its entry can be read."""

    place: str
    minute: int
    readable: bool


earlier_turns = st.lists(
    st.builds(
        Earlier,
        place=st.sampled_from(["stored", "pending", "rejected", "both"]),
        minute=st.integers(0, 5),
        readable=st.booleans(),
    ),
    max_size=12,
)


def _entry_text(turn_id: str, *, readable: bool) -> str:
    return encode_entry(Entry(turn_id=turn_id, entry_id=f"e-{turn_id}", reply=Replied(turn_id))) if readable else BROKEN


def _pending(turn_id: str, number: int, turn: Earlier) -> PendingTurn:
    return PendingTurn(
        turn_id=turn_id,
        state="rejected" if turn.place == "rejected" else "completed",
        work_key="",
        entry_id=f"e-{turn_id}",
        entry=_entry_text(turn_id, readable=turn.readable),
        completed_at_ms=milliseconds(NINE + timedelta(minutes=turn.minute)),
        completion_no=number,
        message_ids=(),
        kept_steps=0,
        failure="",
    )


def _block(turns: list[Earlier], *, trimmed: int, most: int) -> str:
    """`both`: committed between the look at Redis and the one at Postgres."""
    stored, uncommitted, runs = [], [], {}
    ordinal = trimmed
    for number, turn in enumerate(turns):
        turn_id = f"t{number}"
        if turn.place in ("stored", "both"):
            ordinal += 1
            at = NINE + timedelta(minutes=turn.minute)
            stored.append(StoredEntry(ordinal, at, _entry_text(turn_id, readable=turn.readable)))
            runs[turn_id] = Run(turn_id, 1, "", 1, 0, "completed", None)
        if turn.place != "stored":
            uncommitted.append(_pending(turn_id, number, turn))
    beginning = Beginning(
        Head(ledger_id=1, history_version=0, next_seq=9, turn_count=ordinal),
        entries=tuple(stored),
        known_keys=frozenset(),
        answered=None,
        runs=runs,
    )
    options: dict[str, Any] = {"most_entries": most, "budget_bytes": 10**9, "find_account": lambda: None}
    return earlier_block(beginning, uncommitted=uncommitted, **options)


@given(earlier_turns, st.integers(0, 5), st.integers(1, 12))
def test_every_earlier_turn_is_there_once_in_its_order(turns: list[Earlier], trimmed: int, most: int) -> None:
    """The newest by time, then ordinal; what is not there is counted, and counts add up (BL-1, BL-5, BL-9, ST-1)."""
    block = _block(turns, trimmed=trimmed, most=most)
    if not turns:
        assert block == ""
        return
    on_their_way = ("pending", "rejected")
    readable = [(turn.minute, turn.place in on_their_way, number)
                for number, turn in enumerate(turns) if turn.readable]  # fmt: skip
    wanted = [f"t{number}" for _, _, number in sorted(readable)][-most:]
    opening, shown = read_block(block)
    assert [entry.turn_id for entry in shown] == wanted
    assert [entry.fields["replied"] for entry in shown] == wanted
    assert sum(int(line[1:].split()[0]) for line in opening) + len(shown) == trimmed + len(turns)
    assert [entry.completed_at for entry in shown] == [
        time_text(NINE + timedelta(minutes=turns[int(turn_id[1:])].minute)) for turn_id in wanted
    ]


@given(earlier_turns, st.integers(0, 5))
def test_where_a_turn_is_kept_changes_no_byte(turns: list[Earlier], trimmed: int) -> None:
    """A block tells of what happened, not of how far its commit is (BL-8, BL-9)."""
    ordered = sorted((turn._replace(readable=True) for turn in turns), key=lambda turn: turn.minute)
    stored = [turn._replace(place="stored") for turn in ordered]
    for places in (["pending"] * len(ordered), ["both"] * len(ordered)):
        moved = [turn._replace(place=place) for turn, place in zip(ordered, places, strict=True)]
        assert _block(moved, trimmed=trimmed, most=20) == _block(stored, trimmed=trimmed, most=20)
