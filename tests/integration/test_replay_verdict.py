"""The check at the end of a replay sees what Postgres has, and everything that is not as it was played."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores import Stores
from turnledger.checkpoint import Turns
from turnledger.store import LedgerName, Replied
from turnledger.store.entry import Entry
from turnledger.store.events import Event
from turnledger.workers.replay.conversations import AGENT, Conversation, read_conversations
from turnledger.workers.replay.player import play
from turnledger.workers.replay.reading import read_commit_times, read_first_start, read_ledger
from turnledger.workers.replay.verdict import LedgerContent, Verdict, judge_ledger

RUN = "run"
MOST = 20


def _chat(turns: int) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    for number in range(turns):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": '{"n": 1.50}'}}
        messages += [
            {"role": "user", "content": f"ask {number} \x00 ü"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "fine"},
            {"role": "assistant", "content": f"reply {number}"},
        ]
    return messages


class Ledger(NamedTuple):
    """A conversation that was played and committed, and what Postgres has of it."""

    conversation: Conversation
    played: list[str]
    content: LedgerContent

    def judge(self, content: LedgerContent | None = None, *, played: Sequence[str] | None = None) -> Verdict:
        return judge_ledger(
            content or self.content,
            turns=self.conversation.turns,
            work_keys=[self.conversation.work_key(RUN, turn) for turn in self.conversation.turns],
            played=self.played if played is None else played,
            most=MOST,
        )


def _play(stores: Stores, node: Turns, tmp_path: Path, *, turns: int) -> Ledger:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"id": "a", "messages": _chat(turns)}))
    (conversation,) = read_conversations(file)
    played = list(play(conversation, run=RUN, turns=node, most_entries=MOST))
    assert [turn.problem for turn in played] == [None] * turns
    stores.drain()
    with stores.database.snapshot() as connection:
        content = read_ledger(connection, LedgerName(AGENT, conversation.key(RUN)))
    assert content is not None
    return Ledger(conversation, [turn.turn_id for turn in played], content)


@pytest.fixture
def ledger(stores: Stores, node: Turns, tmp_path: Path) -> Ledger:
    return _play(stores, node, tmp_path, turns=3)


def test_what_was_played_is_found_once_in_order_and_unchanged(ledger: Ledger) -> None:
    """QU-3, QU-4, EV-4, EN-11, EV-10"""
    assert ledger.judge() == Verdict(committed=3)


def test_turns_that_were_trimmed_are_still_committed(stores: Stores, node: Turns, tmp_path: Path) -> None:
    """RT-3: more turns than entries are kept."""
    long = _play(stores, node, tmp_path, turns=MOST + 3)
    assert len(long.content.entries) == MOST
    assert long.judge() == Verdict(committed=MOST + 3)


def test_a_turn_that_is_not_there_is_lost(ledger: Ledger) -> None:
    verdict = ledger.judge(played=[*ledger.played, "gone"])
    assert (verdict.committed, verdict.lost) == (3, 1)


def test_a_turn_whose_completion_nobody_was_told_of_is_a_difference(ledger: Ledger) -> None:
    assert ledger.judge(played=ledger.played[:2]).problems


def _events(change: Callable[[list[Event]], list[Event]]) -> Callable[[LedgerContent], LedgerContent]:
    return lambda content: replace(content, events=change(list(content.events)))


def _entries(change: Callable[[list[Entry]], list[Entry]]) -> Callable[[LedgerContent], LedgerContent]:
    return lambda content: replace(content, entries=change(list(content.entries)))


def _of_type(events: list[Event], kind: str) -> list[int]:
    return [place for place, event in enumerate(events) if event.type == kind]


def _without(kind: str) -> Callable[[list[Event]], list[Event]]:
    return lambda events: [event for place, event in enumerate(events) if place != _of_type(events, kind)[0]]


def _changed_content(kind: str) -> Callable[[list[Event]], list[Event]]:
    def change(events: list[Event]) -> list[Event]:
        place = _of_type(events, kind)[0]
        events[place] = events[place]._replace(content=(events[place].content or "").replace('"', '" ', 1))
        return events

    return change


def _terminals_swapped(events: list[Event]) -> list[Event]:
    first, second = _of_type(events, "turn_completed")[:2]
    ids = events[first].turn_id, events[second].turn_id
    events[first], events[second] = events[first]._replace(turn_id=ids[1]), events[second]._replace(turn_id=ids[0])
    return events


def _head_counts_four(content: LedgerContent) -> LedgerContent:
    return replace(content, head=replace(content.head, turn_count=4))


DAMAGE = {
    "an event is missing": _events(_without("message_handled")),
    "a start is missing": _events(_without("turn_started")),
    "a message is missing": _events(_without("message")),
    "a step has one byte more": _events(_changed_content("agent_step")),
    "a message has one byte more": _events(_changed_content("message")),
    "two terminals are swapped": _events(_terminals_swapped),
    "a number is skipped": _events(lambda events: [*events[:-1], events[-1]._replace(seq=events[-1].seq + 1)]),
    "the newest entry is missing": _entries(lambda entries: entries[:-1]),
    "the entries are in another order": _entries(lambda entries: entries[::-1]),
    "a reply is another": _entries(lambda entries: [replace(entries[0], reply=Replied("no")), *entries[1:]]),
    "a call is missing": _entries(lambda entries: [replace(entries[0], calls=()), *entries[1:]]),
    "the head counts one more": _head_counts_four,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_every_difference_is_seen(ledger: Ledger, damage: Callable[[LedgerContent], LedgerContent]) -> None:
    assert ledger.judge(damage(ledger.content)).problems


@pytest.mark.parametrize(
    "damage",
    [
        _events(lambda events: [*events, events[_of_type(events, "turn_completed")[0]]]),
        _entries(lambda entries: [*entries, entries[0]]),
    ],
    ids=["a second terminal", "a second entry"],
)
def test_a_turn_that_is_there_twice_is_doubled(
    ledger: Ledger, damage: Callable[[LedgerContent], LedgerContent]
) -> None:
    assert ledger.judge(damage(ledger.content)).doubled == 1


def test_problems_tell_no_content(ledger: Ledger) -> None:
    """OP-7"""
    told = "".join(problem for damage in DAMAGE.values() for problem in ledger.judge(damage(ledger.content)).problems)
    assert not [text for text in ("ask 0", "reply 0", "look") if text in told]


def test_the_times_are_those_of_one_clock(stores: Stores, ledger: Ledger) -> None:
    times = read_commit_times(stores.records, [*ledger.played, "unknown"])
    assert len(times) == 3
    assert all(0 <= each.waited_ms < 60_000 for each in times)
    with stores.database.snapshot() as connection:
        first = read_first_start(connection, agent=AGENT, keys=[ledger.conversation.key(RUN)])
    assert first is not None
    assert first.timestamp() * 1000 <= times[0].completed_at_ms


def test_a_ledger_that_nobody_made_is_none(stores: Stores) -> None:
    with stores.database.snapshot() as connection:
        assert read_ledger(connection, LedgerName(AGENT, "replay:run:none")) is None
