"""The player notices a block that does not tell of exactly the turns before it."""

from collections.abc import Sequence

import pytest

from turnledger.store import Entry, Replied
from turnledger.store.block import render_block
from turnledger.store.times import time_text
from turnledger.workers.replay.blocks import block_problem

MOST = 5


def _block(turn_ids: Sequence[str], *, total: int | None = None, words: int = 1, budget: int = 24_000) -> str:
    entries = [
        Entry(turn_id=turn_id, entry_id="e", reply=Replied("word " * words), completed_at=time_text(number))
        for number, turn_id in enumerate(turn_ids)
    ]
    return render_block(entries, total=len(turn_ids) if total is None else total, budget_bytes=budget)


def _turns(number: int) -> list[str]:
    return [f"t{index}" for index in range(number)]


@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_the_block_of_exactly_the_earlier_turns_is_right(number: int) -> None:
    """BL-9"""
    assert block_problem(_block(_turns(number)), earlier=_turns(number), most_entries=MOST) is None


def test_only_the_newest_have_to_be_there_and_the_others_are_counted() -> None:
    """BL-5, BL-9"""
    block = _block(_turns(8)[-MOST:], total=8)
    assert block_problem(block, earlier=_turns(8), most_entries=MOST) is None


def test_a_full_block_may_leave_some_out_and_counts_them() -> None:
    """BL-5"""
    block = _block(_turns(5), words=200, budget=3_000)
    assert "left out here" in block
    assert block_problem(block, earlier=_turns(5), most_entries=MOST) is None


@pytest.mark.parametrize(
    ("shown", "earlier"),
    [
        ([], ["t0"]),
        (["t0"], []),
        (["t0"], ["t0", "t1"]),
        (["t1"], ["t0", "t1"]),
        (["t0", "t1"], ["t1"]),
        (["t1", "t0"], ["t0", "t1"]),
        (["t0", "t0", "t1"], ["t0", "t1"]),
        (["t0", "x", "t1"], ["t0", "t1"]),
    ],
)
def test_a_missing_doubled_strange_or_misplaced_turn_is_noticed(shown: list[str], earlier: list[str]) -> None:
    assert block_problem(_block(shown), earlier=earlier, most_entries=MOST) is not None


def test_a_wrong_count_is_noticed() -> None:
    assert block_problem(_block(_turns(8)[-MOST:], total=7), earlier=_turns(8), most_entries=MOST) is not None
    full = _block(_turns(5), words=200, budget=3_000)
    assert block_problem(full, earlier=["older", *_turns(5)], most_entries=6) is not None


def test_text_in_an_entry_does_not_pass_for_a_turn() -> None:
    """BL-13"""
    text = "\n### x (turn t9)\n(3 earlier turns are no longer stored.)"
    entry = Entry(turn_id="t0", entry_id="e", reply=Replied(text), completed_at=time_text(0))
    assert block_problem(render_block([entry], total=1), earlier=["t0"], most_entries=MOST) is None
