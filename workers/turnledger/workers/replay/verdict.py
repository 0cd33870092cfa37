"""Whether one ledger holds exactly what was played: pure, from what Postgres gave and what the file says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnledger.store import NoReplyOwed, Replied
from turnledger.store.entry import Entry
from turnledger.store.events import Event, handled_key, message_key
from turnledger.store.ledger import Head
from turnledger.workers.replay.conversations import PlayedTurn


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """A ledger as it stands in Postgres; `completed` has the run that completed each work key."""

    head: Head
    completed: Mapping[str, str]
    entries: Sequence[Entry]
    events: Sequence[Event]


@dataclass(slots=True)
class Verdict:
    """What became of the turns whose completion was acknowledged. Problems name ids and places, never content."""

    committed: int = 0
    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Count another ledger in."""
        self.committed += other.committed
        self.lost += other.lost
        self.doubled += other.doubled
        self.problems += other.problems


def judge_ledger(
    content: LedgerContent, *, turns: Sequence[PlayedTurn], work_keys: Sequence[str], played: Sequence[str], most: int
) -> Verdict:
    """Compare a ledger with what was played into it.

    `turns` and `work_keys` are the file's, in order; `played` the turn_ids whose completion was acknowledged, in
    order; `most` how many entries a ledger keeps.
    """
    committed = [turn_id for turn_id in played if turn_id in content.completed.values()]
    doubled = _doubled(content)
    verdict = Verdict(committed=len(committed), lost=len(played) - len(committed), doubled=len(doubled))
    verdict.problems += [f"turn {turn_id} is there more than once" for turn_id in sorted(doubled)]
    verdict.problems += _order_problems(content, committed=committed, most=most)
    by_turn: dict[str | None, list[Event]] = {}
    for event in content.events:
        by_turn.setdefault(event.turn_id, []).append(event)
    entries = {entry.turn_id: entry for entry in content.entries}
    for turn, work_key, turn_id in zip(turns, work_keys, played, strict=False):
        if content.completed.get(work_key) == turn_id:
            problems = _turn_problems(turn, by_turn.get(turn_id, []), entries.get(turn_id))
            verdict.problems += [f"turn {turn_id}: {problem}" for problem in problems]
    return verdict


def _doubled(content: LedgerContent) -> set[str]:
    """Turns with more than one terminal, more than one entry, or the same message, step for step, again."""
    ends = Counter(event.turn_id for event in content.events if event.type == "turn_completed")
    entries = Counter(entry.turn_id for entry in content.entries)
    return {str(turn_id) for counts in (ends, entries) for turn_id, number in counts.items() if number > 1}


def _order_problems(content: LedgerContent, *, committed: Sequence[str], most: int) -> list[str]:
    head, number = content.head, len(committed)
    ends = [event for event in content.events if event.type == "turn_completed"]
    kept = min(number, most)
    checks = {
        "the numbers of its events are not dense": [event.seq for event in content.events]
        == list(range(head.next_seq)),
        "its turns are not in the order of their completion": [event.turn_id for event in ends] == list(committed),
        "the ordinals of its turns are not dense": [event.payload.ordinal for event in ends]
        == list(range(1, number + 1)),
        "its head does not count its turns": head.turn_count == number,
        "its entries are not those of its newest turns": [(entry.ordinal, entry.turn_id) for entry in content.entries]
        == list(enumerate(committed, start=1))[number - kept :],
    }
    return [problem for problem, right in checks.items() if not right]


def _turn_problems(turn: PlayedTurn, events: Sequence[Event], entry: Entry | None) -> list[str]:
    steps = [event.content for event in events if event.type == "agent_step"]
    texts = {event.key: event.text for event in events if event.type == "message"}
    expected = {message_key(turn.message_id): turn.ask}
    if turn.reply is not None:
        expected[message_key(turn.receipt)] = turn.reply
    kinds = Counter(event.type for event in events)
    checks = {
        "its steps are not the file's, byte for byte": steps == [step.content for step in turn.steps],
        "its messages are not the file's": texts == expected,
        "it did not start exactly once": kinds["turn_started"] == 1,
        "its message is not marked as handled": any(event.key == handled_key(turn.message_id) for event in events),
        "its entry is not what was played": entry is None or _tells(entry, turn),
    }
    return [problem for problem, right in checks.items() if not right]


def _tells(entry: Entry, turn: PlayedTurn) -> bool:
    reply = NoReplyOwed() if turn.reply is None else Replied(turn.reply, turn.receipt)
    calls = [call.name for step in turn.steps for call in step.calls]
    return (entry.triggered_by, entry.reply) == (turn.ask, reply) and [call.name for call in entry.calls] == calls
