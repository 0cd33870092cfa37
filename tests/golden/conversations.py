"""Blocks of played conversations: what the turn after the last one of each would be shown."""

from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from turnledger.store import Entry, NoReplyOwed, Replied
from turnledger.store.block import BLOCK_BYTES, render_block
from turnledger.store.entry import calls_of
from turnledger.store.fitting import with_names
from turnledger.store.times import time_text
from turnledger.workers.replay.conversations import Conversation, PlayedTurn, read_conversations

AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"
SAMPLE = Path(str(files("turnledger.workers") / "sample" / "conversations.jsonl"))
BEGAN_MS = 1_796_054_400_000  # 2026-11-30T08:00:00Z; a turn a minute
MOST_ENTRIES = 20


def sample_block() -> str:
    """Of the sample's longest conversation."""
    return _block(max(read_conversations(SAMPLE), key=lambda conversation: len(conversation.turns)))


def airline_digests() -> str:
    """A line a conversation: its id, its turns, and bytes and digest of its block. The words stay where they are."""
    return "".join(_digests())


def _digests() -> Iterator[str]:
    for conversation in read_conversations(AIRLINE):
        block = _block(conversation)
        if len(block.encode()) <= BLOCK_BYTES and "left out" not in block:
            digest = sha256(block.encode()).hexdigest()
            yield f"{conversation.id} {len(conversation.turns)} turns {len(block.encode())} bytes {digest}\n"


def _block(conversation: Conversation) -> str:
    entries = [_entry(turn, number) for number, turn in enumerate(conversation.turns, start=1)]
    return render_block(entries[-MOST_ENTRIES:], total=len(entries))


def _entry(turn: PlayedTurn, number: int) -> Entry:
    return with_names(
        Entry(
            turn_id=f"t{number}",
            entry_id=f"e{number}",
            completed_at=time_text(BEGAN_MS + number * 60_000),
            ordinal=number,
            triggered_by=turn.ask,
            calls=calls_of(turn.steps),
            reply=NoReplyOwed() if turn.reply is None else Replied(turn.reply, turn.receipt),
            decision="done",
        )
    )
