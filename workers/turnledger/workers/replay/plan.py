"""What a replay plays, by whom, and under which keys."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turnledger.workers.replay.conversations import Conversation, read_conversations


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played, by how many processes; `run` is in every conversation key, so that no two replays meet."""

    file: Path
    run: str
    rounds: int
    nodes: int
    workers: int
    conversations: int
    turns: int
    messages_before: int

    def performances(self) -> Iterator[tuple[str, Conversation]]:
        """Each conversation of the file, once a round, with the run that its keys belong to; read anew."""
        return performances(self.file, run=self.run, rounds=self.rounds)

    def keys(self) -> list[str]:
        """Every conversation key, in the same order."""
        return [conversation.key(run) for run, conversation in self.performances()]


def read_plan(file: Path, *, nodes: int, workers: int, rounds: int = 1) -> Plan:
    """Read the file once, so that a bad line is found before anything is started.

    Raises:
        InvalidInput: the file is refused; names the line.
    """
    found = [(len(conversation.turns), conversation.before) for conversation in read_conversations(file)]
    return Plan(
        file=file,
        run=uuid.uuid4().hex[:8],
        rounds=rounds,
        nodes=nodes,
        workers=workers,
        conversations=len(found) * rounds,
        turns=sum(turns for turns, _ in found) * rounds,
        messages_before=sum(before for _, before in found),
    )


def performances(file: Path, *, run: str, rounds: int) -> Iterator[tuple[str, Conversation]]:
    """Each conversation of the file, once a round, with the run that its keys belong to."""
    for number in range(rounds):
        run_of_round = run if rounds == 1 else f"{run}.{number + 1}"
        yield from ((run_of_round, conversation) for conversation in read_conversations(file))
