"""Holders replace their ledger's history, read it, and open child ledgers."""

from typing import Literal

from tests.machine.acting import REFUSED
from tests.machine.example import Example
from tests.machine.model import Handle, History
from tests.machine.words import new_word, open_calls, spelled_out, steps_of, words_of
from turnledger.checkpoint import StaleTurn
from turnledger.store import InvalidInput
from turnledger.store.errors import StaleHistory
from turnledger.store.ledger import read_head

Kind = Literal["compaction", "handoff"]


def take_history(example: Example, handle: Handle) -> None:
    """Read what a replacement would stand for; others go on meanwhile."""
    outcome = example.call_of(handle, handle.turn.history_to_replace, what="read history to replace")
    outcome.unless()
    if outcome.succeeded:
        handle.history = History(outcome.value, tuple(words_of(outcome.value.steps)))


def replace(example: Example, handle: Handle, *, kind: Kind, covers: int) -> None:
    """Put one summary in place of the history in hand and of some own words."""
    history = handle.history
    assert history is not None
    first = len(handle.words) - len(handle.open_words)
    end = first + min(covers, len(handle.open_words))
    left_open = open_calls(handle.words[:end])
    summary = new_word("z")
    # An open call may be inside another's summary by now; it is repeated, so that its result answers something.
    meant = spelled_out([*history.words, *handle.words[first:end]], example.model.meanings)
    example.model.meanings[summary] = tuple(word for word in meant if word not in left_open)
    handle.of.replacements.append(summary)
    standing, is_newest = handle.standing, _version(example, handle) == history.given.version
    steps = steps_of([summary, *left_open])

    def act() -> None:
        if kind == "handoff":
            handle.turn.hand_off(history.given, steps=steps, model="m-2", profile="other", covers=end - first)
        else:
            handle.turn.compact(history.given, steps=steps, model="m-1", covers=end - first)

    outcome = example.call_of(handle, act, what=kind)
    may_be_short = (InvalidInput,) if handle.of.went_back else ()
    outcome.unless(StaleHistory, *may_be_short, *REFUSED)
    example.judge(outcome, standing=standing, excuses=() if is_newest else (StaleHistory,))
    handle.history = None
    if outcome.succeeded:
        assert handle.turn.bootstrap is None, "the bootstrap belonged to the history before"
        example.model.replaced[handle.of.ledger] = summary


def read_history(example: Example, handle: Handle) -> None:
    """What the model would be given: everything completed before, once, on its way or committed."""
    outcome = example.call_of(handle, handle.turn.history, what="read history")
    outcome.unless()
    if not outcome.succeeded:
        return
    words = spelled_out(words_of(outcome.value), example.model.meanings)
    assert len(set(words)) == len(words), f"words are repeated in the history: {words}"
    if not outcome.calm:
        return
    for other in example.model.turns.values():
        if other.ledger != handle.of.ledger or other is handle.of:
            continue
        for attempt in other.attempts:
            if attempt.is_settled and len(other.attempts) == 1:
                missing = set(attempt.words[: attempt.kept]) - set(words)
                assert not missing, f"the history lacks {missing} of turn {other.turn_id}"


def open_child(example: Example, handle: Handle) -> None:
    """Hand work to another agent."""
    if open_calls(handle.words):
        return
    brief = new_word("z")
    example.model.meanings[brief] = ()
    standing = handle.standing
    outcome = example.call_of(
        handle,
        lambda: handle.turn.open_child(f"{example.model.agent}-helper", steps=steps_of([brief]), model="m-1"),
        what="open child",
    )
    outcome.unless(StaleTurn)
    example.judge(outcome, standing=standing)
    if outcome.succeeded:
        example.model.ledgers.append(outcome.value)
        example.model.children.append((handle.of.ledger, outcome.value))


def end_child(example: Example, handle: Handle, *, pick: int) -> bool:
    """The child's work has ended; said as often as one likes. False: this ledger has no child."""
    mine = [child for parent, child in example.model.children if parent == handle.of.ledger]
    if mine:
        child = mine[pick % len(mine)]
        outcome = example.call_of(handle, lambda: handle.turn.end_child(child, outcome="done"), what="end child")
        outcome.unless()
    return bool(mine)


def _version(example: Example, handle: Handle) -> int:
    with example.world.database.transaction() as connection:
        head = read_head(connection, handle.of.ledger)
    return 0 if head is None else head.history_version
