"""What the holder of a turn does with it, and what others do to a turn that nobody holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from tests.machine.example import Example, Outcome, VendorError
from tests.machine.faults import die
from tests.machine.model import BOOTSTRAP_MARK, Ack, Attempt, Handle, ModelTurn, Standing
from tests.machine.words import open_calls, result_of, step_of, steps_of
from tests.machine.world import Node
from turnledger.checkpoint import AlreadyRunning, Completion, StaleTurn, TurnEnded, TurnNotFound
from turnledger.checkpoint.errors import CompletionConflict
from turnledger.store import Message, NoReplyOwed, Replied, Undelivered
from turnledger.store.entry import Reply

Reach = Literal["replied", "undelivered", "no reply owed"]
Sending = Literal["arrives", "raises", "dies"]

REFUSED = (StaleTurn, TurnEnded, TurnNotFound)


def save(example: Example, handle: Handle, *, letters: str, bootstrap: bool) -> None:
    """Save a few steps, every call with its result."""
    words = _next_words(handle, letters)
    boot = _bootstrap(handle) if bootstrap else None
    standing = handle.standing
    outcome = example.call_of(handle, lambda: handle.turn.save(steps=steps_of(words), bootstrap=boot), what="save")
    handle.words += words
    outcome.unless(*REFUSED)
    if outcome.succeeded and handle.turn.checkpoint_error is not None:
        is_forgotten = isinstance(handle.turn.checkpoint_error, TurnNotFound)  # by Redis: the turn goes on unsaved
        assert is_forgotten or not outcome.calm, f"a save in calm did not arrive: {handle.turn.checkpoint_error}"
        return
    example.judge(outcome, standing=standing)
    if outcome.succeeded:
        _saved(handle)


def park(example: Example, handle: Handle, *, reason: str, letters: str) -> None:
    """Save and let go, perhaps with a call that waits for its result."""
    words = _next_words(handle, letters)
    standing = handle.standing
    boot = _bootstrap(handle)
    was_free, handle.of.may_be_free = handle.of.may_be_free, True  # it is as soon as Redis has been told
    outcome = example.call_of(
        handle, lambda: handle.turn.park(reason=reason, steps=steps_of(words), bootstrap=boot), what="park"
    )
    handle.words += words
    outcome.unless(*REFUSED)
    example.judge(outcome, standing=standing)
    if outcome.succeeded:
        _saved(handle)
    if outcome.calm:
        handle.of.is_parked = handle.of.is_parked or outcome.succeeded
        handle.of.may_be_free = was_free


def append_input(example: Example, node: Node, turn: ModelTurn) -> None:
    """A message comes in for a turn that waits."""
    word = turn.mint("u")
    message = Message(f"input-{word}", word)
    outcome = example.call(
        node,
        lambda: node.turns.append_input(turn.turn_id, message=message, step=step_of(word)),
        what="append input",
        about=turn,
    )
    outcome.unless(AlreadyRunning, *REFUSED)
    if outcome.succeeded:
        turn.saved.append(word)
    if outcome.succeeded or not outcome.calm:
        turn.doubt()


def complete(example: Example, handle: Handle, *, reach: Reach, letters: str) -> None:
    """End the turn; what the engine is told of it must come true."""
    words = _next_words(handle, letters)
    _complete(
        example,
        handle,
        words=words,
        kept=_kept([*handle.words, *words], reach=reach),
        action=lambda: handle.turn.complete(reply=_reply(reach), steps=steps_of(words)),
    )


def complete_again(example: Example, handle: Handle) -> None:
    """The engine did not get the answer; a repeat gives it, and changes nothing."""
    assert handle.attempt is not None
    asked, answer = handle.turn._completed or (None, None)
    assert asked is not None
    account, steps = asked
    outcome = example.call_of(
        handle, lambda: handle.turn.complete(reply=account.reply, steps=steps), what="complete again"
    )
    if account.failure is None:
        assert outcome.value == answer, f"another answer: {outcome}"


def deliver(example: Example, handle: Handle, *, sending: Sending) -> None:
    """Send the reply and end the turn; the chat takes it, refuses it, or the node dies while it is being sent."""
    words = _next_words(handle, "a")
    everything = [*handle.words, *words]
    failure = sending == "raises"
    handle.of.is_being_sent = handle.of.is_being_sent or handle.standing is not Standing.SUPERSEDED
    _complete(
        example,
        handle,
        words=words,
        kept=_kept(everything, reach="undelivered" if failure else "replied"),
        action=lambda: handle.turn.deliver(lambda: _send(handle, sending), reply="a reply", steps=steps_of(words)),
        failure=failure,
    )


def fail(example: Example, handle: Handle) -> None:
    """The engine gives up."""
    notified: list[str] = []
    outcome = _end(
        example, handle, lambda: handle.turn.fail("agent_run_failed", notify=lambda: notified.append("sorry"))
    )
    if outcome.succeeded or (outcome.error is not None and not isinstance(outcome.error, REFUSED)):
        assert notified == ["sorry"], "nobody was told of the failure"


def abandon(example: Example, handle: Handle) -> None:
    """The engine does not go on, and frees the work."""
    _end(example, handle, handle.turn.abandon)


def _end(example: Example, handle: Handle, action: Callable[[], None]) -> Outcome:
    turn, standing = handle.of, handle.standing
    if standing is not Standing.SUPERSEDED:
        turn.may_have_ended = True
    outcome = example.call_of(handle, action, what="end")
    outcome.unless(*REFUSED)
    example.judge(outcome, standing=standing)
    if handle in turn.handles:
        turn.handles.remove(handle)
    turn.doubt()
    return outcome


def _complete(
    example: Example,
    handle: Handle,
    *,
    words: list[str],
    kept: int,
    action: Callable[[], Completion],
    failure: bool = False,
) -> None:
    turn = handle.of
    attempt = Attempt(
        words=(*handle.words, *words),
        kept=kept,
        failure=failure,
        standing=handle.standing,
        process=handle.process,
        epoch=handle.turn._record.epoch,
    )
    turn.attempts.append(attempt)
    outcome = example.call_of(handle, action, what="complete or deliver")
    outcome.only(VendorError, CompletionConflict, *REFUSED)
    _note_answer(example, handle, attempt, outcome=outcome)


def _note_answer(example: Example, handle: Handle, attempt: Attempt, *, outcome: Outcome) -> None:
    told = outcome.succeeded or isinstance(outcome.error, VendorError)
    spooled = handle.turn.spooled
    if told and spooled is not None:
        assert not outcome.calm or attempt.standing is not Standing.OWNER, "spooled in calm"
    elif not _asked_before(handle.of, attempt):
        example.judge(replace(outcome, error=None) if told else outcome, standing=attempt.standing)
    if told:
        handle.attempt, attempt.spooled = attempt, spooled
        duplicate = outcome.succeeded and outcome.value.duplicate
        attempt.ack = Ack.DUPLICATE if duplicate else Ack.COMPLETED
    elif isinstance(outcome.error, (CompletionConflict, *REFUSED)):
        attempt.ack = Ack.REFUSED


def _asked_before(turn: ModelTurn, attempt: Attempt) -> bool:
    """Whether another handle completed the turn with the very same: whoever asks gets the first answer."""
    return any(
        (other.words, other.kept, other.failure) == (attempt.words, attempt.kept, attempt.failure)
        for other in turn.attempts
        if other is not attempt
    )


def _send(handle: Handle, sending: Sending) -> str | None:
    turn = handle.of
    if sending == "raises":
        raise VendorError
    twice = turn.times_sent and not (turn.went_back or turn.is_contested)
    assert not twice, "the reply was sent twice"
    if handle.turn.checkpoint_error is None:
        turn.times_sent += 1
    if sending == "dies":
        die()
    return None


def _next_words(handle: Handle, letters: str) -> list[str]:
    """Words for these letters; calls that are open get their results first, and each new call its own, but not "o"."""
    turn = handle.of
    words = [turn.mint_word(result_of(call), by=handle) for call in open_calls(handle.words)]
    for letter in letters:
        words.append(turn.mint("c" if letter == "o" else letter, by=handle))
        if letter == "c":
            words.append(turn.mint_word(result_of(words[-1]), by=handle))
    return words


def _bootstrap(handle: Handle) -> dict[str, Any]:
    return {"mark": BOOTSTRAP_MARK, "version": handle.turn.cursor.history_version}


def _saved(handle: Handle) -> None:
    turn = handle.of
    if handle.standing is not Standing.SUPERSEDED:  # it may be so by now
        turn.saved, turn.on_record, turn.has_lapsed = list(handle.words), True, False


def _kept(words: list[str], *, reach: Reach) -> int:
    silent = reach == "undelivered" and bool(words) and words[-1][0] == "a"
    return len(words) - 1 if silent else len(words)


def _reply(reach: Reach) -> Reply:
    replies: dict[Reach, Reply] = {
        "replied": Replied("a reply"),
        "undelivered": Undelivered("nobody read this"),
        "no reply owed": NoReplyOwed(),
    }
    return replies[reach]
