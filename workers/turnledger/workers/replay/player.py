"""Plays one conversation as an engine node would: turn after turn, waiting for no commit."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from turnledger.checkpoint import Completion, Turn, Turns
from turnledger.store import Message, NoReplyOwed, Replied, TurnledgerError
from turnledger.store.entry import Reply
from turnledger.store.identity import new_turn_id
from turnledger.workers.backoff import pauses
from turnledger.workers.replay.blocks import block_problem
from turnledger.workers.replay.conversations import AGENT, Conversation, PlayedTurn

PATIENCE_S = 60.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Played:
    """A turn that was completed, and what was wrong on the way, if anything was."""

    turn_id: str
    problem: str | None


def play(conversation: Conversation, *, run: str, turns: Turns, most_entries: int) -> Iterator[Played]:
    """Play the turns of a conversation in order; each starts as soon as the one before is completed.

    Raises:
        TurnledgerError: a turn was refused, or a server stayed away for a minute.
    """
    earlier: list[str] = []
    for played in conversation.turns:
        turn = _start(conversation, played, run=run, turns=turns)
        problem = None
        if turn.history_error is None and turn.checkpoint_error is None:  # otherwise a server was away: it is flagged
            problem = block_problem(turn.earlier, earlier=earlier, most_entries=most_entries)
        completion = _run(turn, played)
        if completion.duplicate:
            problem = f"it was taken for a duplicate of {completion.turn_id}"
        if turn.spooled is not None:
            problem = f"no server took it, it waits in {turn.spooled}; `turnledger recover` brings it home"
        earlier.append(turn.turn_id)
        yield Played(turn.turn_id, problem and f"{conversation.key(run)}, turn {turn.turn_id}: {problem}")


def _start(conversation: Conversation, played: PlayedTurn, *, run: str, turns: Turns) -> Turn:
    turn_id = new_turn_id()
    return patiently(
        lambda: turns.start(
            agent=AGENT,
            conversation=conversation.key(run),
            work_key=conversation.work_key(run, played),
            triggered_by=played.ask,
            messages=[Message(played.message_id, played.ask, sender="user")],
            turn_id=turn_id,
        )
    )


def _run(turn: Turn, played: PlayedTurn) -> Completion:
    """Save after each round but the last, whose steps the completion brings."""
    *before, last = played.rounds
    for steps in before:
        turn.save(steps=steps)
    return patiently(lambda: turn.complete(reply=_reply(played), steps=last, decision="done"))


def _reply(played: PlayedTurn) -> Reply:
    return NoReplyOwed() if played.reply is None else Replied(played.reply, played.receipt)


def patiently(call: Callable[[], Answer]) -> Answer:
    """The answer of a call that may be repeated: transient trouble is waited out.

    Raises:
        TurnledgerError: trouble that does not pass, or that did not pass in time.
    """
    deadline = time.monotonic() + PATIENCE_S
    for pause_s in pauses(first_s=0.05, longest_s=1.0, random_source=random.Random()):  # noqa: S311  # spreads retries
        try:
            return call()
        except TurnledgerError as error:
            if not error.retry or time.monotonic() > deadline:
                raise
        time.sleep(pause_s)
    raise AssertionError("pauses are endless")
