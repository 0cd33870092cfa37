"""The turn that every measurement uses: 8 events at its commit and an entry, about 3 KB in all.

The words differ from turn to turn, so that the full-text index has something to do.
"""

import json
import random
from dataclasses import dataclass
from functools import cached_property

from turnledger.store import LedgerName, Message, Replied, Step, openai_step, work_key
from turnledger.store.commit import CommitPlan

EVENTS = 8
LEAST_BYTES, MOST_BYTES = 2_800, 3_400

_VOCABULARY = [a + b + c for a in ("", "re", "un", "pre") for b in ("tur", "led", "mon", "kal", "sig") for c in
               ("n", "ger", "day", "ing", "ment", "ation", "ic", "al", "or", "est")]  # fmt: skip


@dataclass(frozen=True)
class SampleTurn:
    """One turn as an engine would run it: a request, two tool calls, an answer."""

    number: int
    ledger: LedgerName

    @cached_property
    def turn_id(self) -> str:
        return f"bench-{self.number:08d}"

    @cached_property
    def work_key(self) -> str:
        return work_key([f"event-{self.number}"])

    @cached_property
    def message(self) -> Message:
        return Message(f"m-{self.number}", self._words(160, salt=1), "ann")

    @cached_property
    def reply(self) -> Replied:
        return Replied(self._words(230, salt=2), f"r-{self.number}")

    @cached_property
    def set_out_to(self) -> str:
        return self._words(60, salt=3)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The request, two calls at once, their two results, the answer."""
        calls = [self._call("look_up_booking", place=0), self._call("list_offers", place=1)]
        return (
            openai_step({"role": "user", "content": self.message.text}),
            openai_step({"role": "assistant", "content": None, "tool_calls": calls}),
            openai_step({"role": "tool", "tool_call_id": self._call_id(0), "content": self._words(290, salt=4)}),
            openai_step({"role": "tool", "tool_call_id": self._call_id(1), "content": self._words(250, salt=5)}),
            openai_step({"role": "assistant", "content": self.reply.text}),
        )

    def _call(self, name: str, *, place: int) -> dict[str, object]:
        arguments = json.dumps({"reference": self.turn_id, "detail": self._words(60, salt=6 + place)})
        return {
            "id": self._call_id(place),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def _call_id(self, place: int) -> str:
        return f"call-{self.number}-{place}"

    def _words(self, characters: int, *, salt: int) -> str:
        source = random.Random(self.number * 16 + salt)
        return " ".join(source.choices(_VOCABULARY, k=characters // 4))[:characters]


def sample_turns(count: int, *, ledgers: int, first: int = 0) -> list[SampleTurn]:
    """So many turns, dealt out to the ledgers one by one."""
    names = [LedgerName("lead", f"bench:{number}") for number in range(first, first + ledgers)]
    return [SampleTurn(first + number, names[number % ledgers]) for number in range(count)]


def check_size(plan: CommitPlan, *, turns: int) -> float:
    """The bytes a turn that a commit writes as payload, content and entry.

    Raises:
        AssertionError: the turn is not the one that the figures are about.
    """
    events = [str(text) for row in plan.events for text in row[7:9] if text is not None]
    entries = [str(row[6]) for row in plan.entries]
    size = sum(len(text.encode()) for text in (*events, *entries)) / turns
    assert len(plan.events) == EVENTS * turns, f"{len(plan.events) / turns} events a turn"
    assert len(plan.entries) == turns
    assert LEAST_BYTES <= size <= MOST_BYTES, f"{size:.0f} bytes a turn"
    return size
