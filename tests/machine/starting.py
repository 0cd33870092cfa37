"""Turns begin, are begun again, and are taken over."""

from tests.machine.example import Example, Outcome
from tests.machine.model import BOOTSTRAP_MARK, Ack, Attempt, Handle, ModelTurn, Request, Standing
from tests.machine.words import words_of
from tests.machine.world import Node
from turnledger.checkpoint import AlreadyHandled, AlreadyRunning, StaleTurn, Turn, TurnBlocked, TurnEnded, TurnNotFound
from turnledger.checkpoint.errors import SliceLimit
from turnledger.store import LedgerName, Message
from turnledger.store.identity import new_turn_id
from turnledger.store.ledger import read_head

_REFUSED_STARTS = (AlreadyHandled, AlreadyRunning, TurnEnded)
_REFUSED_RESUMES = (AlreadyHandled, AlreadyRunning, StaleTurn, TurnBlocked, TurnEnded, TurnNotFound, SliceLimit)


def start(example: Example, node: Node, *, ledger: LedgerName, work_key: str, message: str) -> ModelTurn:
    """A trigger comes in."""
    messages = (Message(message, f"the text of {message}"),) if message else ()
    request = Request(ledger, work_key, f"ask {message}", messages)
    turn = ModelTurn(new_turn_id(), request)
    example.model.turns[turn.turn_id] = turn
    begin(example, node, turn)
    return turn


def begin(example: Example, node: Node, turn: ModelTurn) -> None:
    """Start a turn, or start it again under its turn_id, as an engine does whose first call was not answered."""
    request = turn.request
    must_be_refused = _must_be_refused(example, turn)
    outcome = example.call(
        node,
        lambda: node.turns.start(
            agent=request.ledger.agent,
            conversation=request.ledger.conversation,
            triggered_by=request.text,
            work_key=request.work_key,
            messages=request.messages,
            turn_id=turn.turn_id,
        ),
        what="start",
        about=turn,
    )
    outcome.unless(*_REFUSED_STARTS)
    if not outcome.succeeded and not outcome.calm:
        turn.began_in_trouble = True
        turn.doubt()  # the record may have another owner, who never came to hold it
    if outcome.error is not None:
        _check_refused_start(example, turn, outcome)
    elif outcome.succeeded:
        assert not (outcome.calm and must_be_refused), "work that is done was begun again"
        _begun(example, node, turn, outcome=outcome)


def resume(example: Example, node: Node, turn: ModelTurn) -> None:
    """A node takes a turn up where it was left."""
    must_succeed = _must_be_resumed(example, turn)
    outcome = example.call(node, lambda: node.turns.resume(turn.turn_id), what="resume", about=turn)
    outcome.unless(*_REFUSED_RESUMES)
    if isinstance(outcome.error, SliceLimit):
        _stopped(turn, node)
    elif outcome.succeeded:
        _resumed(example, node, turn, outcome=outcome)
    else:
        assert not (outcome.calm and must_succeed), f"a free turn could not be resumed: {outcome.error}"
        check_refused_resume(turn, outcome)
        if not outcome.calm:
            turn.may_be_taken_up()
        if not isinstance(outcome.error, AlreadyRunning):
            turn.doubt()
            turn.may_have_ended = turn.may_have_ended or isinstance(outcome.error, AlreadyHandled)


def give_up(example: Example, node: Node, turn: ModelTurn) -> None:
    """Nobody will go on with a turn; whoever holds it all the same is fenced off."""
    must_succeed = _must_be_resumed(example, turn, to_end_it=True)
    may_be_free, had_ended = _may_be_free(turn), turn.may_have_ended
    turn.may_have_ended = True  # it has as soon as Postgres has been told
    outcome = example.call(node, lambda: node.turns.abandon(turn.turn_id), what="give up", about=turn)
    outcome.unless(AlreadyHandled, AlreadyRunning, StaleTurn, TurnEnded, TurnNotFound)
    assert outcome.succeeded or not (outcome.calm and must_succeed), f"a free turn cannot be ended: {outcome.error}"
    if isinstance(outcome.error, AlreadyRunning):
        turn.may_have_ended = had_ended or not outcome.calm
    elif outcome.succeeded:
        assert may_be_free or _may_be_free(turn), "a turn was ended under a live holder"
        _check_not_completed(turn)
        turn.supersede(by=None)
        turn.taken_up()
    else:
        turn.may_be_taken_up()
        turn.doubt()


def check_refused_resume(turn: ModelTurn, outcome: Outcome) -> None:
    """No turn is blocked for a history that is there, and none is called sent that was not."""
    if isinstance(outcome.error, TurnBlocked):
        assert outcome.error.reason == "delivery_unknown", f"blocked although nothing is missing: {outcome.error}"
        assert turn.is_being_sent, f"blocked although nothing was being sent: {outcome.error}"
    if isinstance(outcome.error, TurnNotFound):
        assert turn.went_back or not turn.on_record, "a turn that was started is not to be found"


def _must_be_refused(example: Example, turn: ModelTurn) -> bool:
    """The work is completed for all to see, or this very run has gone on."""
    same = {turn, *example.model.of_work(turn.ledger, turn.work_key)}
    done = any(attempt.is_settled and not attempt.failure for other in same for attempt in other.attempts)
    return done or (bool(turn.saved) and not turn.went_back)


def _check_refused_start(example: Example, turn: ModelTurn, outcome: Outcome) -> None:
    error = outcome.error
    if not turn.handles or isinstance(error, AlreadyHandled):
        turn.may_have_ended = True  # a start that comes too late ends its own run
    if not outcome.calm:
        turn.may_be_free = True  # the record may have been made, and let go
    if isinstance(error, AlreadyHandled):
        first = example.model.turns[error.turn_id]
        same = first is turn or (turn.work_key and (first.ledger, first.work_key) == (turn.ledger, turn.work_key))
        assert same, f"turn {error.turn_id} did other work"
        assert any(not attempt.failure for attempt in first.attempts), f"turn {error.turn_id} did not do its work"
    if isinstance(error, AlreadyRunning):
        other = example.model.turns[error.turn_id]
        assert other is turn or (turn.work_key and other.work_key == turn.work_key), "another's work is running"


def _begun(example: Example, node: Node, turn: ModelTurn, *, outcome: Outcome) -> None:
    begun: Turn = outcome.value
    handle = Handle(begun, turn, node.process, words_of(begun._held.steps))
    unsaved = begun.checkpoint_error is not None
    if turn.handles and outcome.calm and not unsaved:
        turn.supersede(by=None)  # the later start has it
    elif turn.handles or (unsaved and turn.block is not None):
        turn.is_contested = True
        turn.doubt()
    if turn.is_contested or not outcome.calm:
        handle.standing = Standing.UNSURE
    _check_identity(turn, begun)
    if outcome.calm and not turn.is_contested and not turn.on_record and not turn.began_in_trouble:
        _check_block(example, turn, begun)
    turn.on_record = turn.on_record or not unsaved
    turn.handles.append(handle)


def _check_identity(turn: ModelTurn, begun: Turn) -> None:
    """The same turn is the same at every look, unless it never got as far as a record."""
    if not turn.on_record or turn.went_back or turn.is_contested:
        turn.block, turn.entry_id = begun.earlier, begun.entry_id
    assert (begun.earlier, begun.entry_id) == (turn.block, turn.entry_id), "the same turn looks different"


def _check_block(example: Example, turn: ModelTurn, begun: Turn) -> None:
    """Every turn that was completed before is in the block, once."""
    for other in example.model.turns.values():
        times = begun.earlier.count(f"(turn {other.turn_id})")
        assert times <= 1, f"turn {other.turn_id} is in the block {times} times"
        told = other.ledger == turn.ledger and any(attempt.is_settled for attempt in other.attempts)
        rivals = any(run.attempts for run in example.model.of_work(other.ledger, other.work_key) if run is not other)
        assert times or not told or rivals or other is turn, f"turn {other.turn_id} is not in the block"


def _must_be_resumed(example: Example, turn: ModelTurn, *, to_end_it: bool = False) -> bool:
    others = any(other.attempts for other in example.model.of_work(turn.ledger, turn.work_key))
    spoilt = turn.attempts or turn.may_have_ended or turn.went_back or others
    return turn.is_free and turn.on_record and not spoilt and (to_end_it or not turn.is_being_sent)


def _may_be_free(turn: ModelTurn) -> bool:
    return turn.is_free or turn.may_be_free or turn.went_back or turn.is_contested


def _check_not_completed(turn: ModelTurn) -> None:
    told = any(attempt.ack is Ack.COMPLETED and attempt.spooled is None for attempt in turn.attempts)
    assert not told or turn.went_back, "it was completed"


def _resumed(example: Example, node: Node, turn: ModelTurn, *, outcome: Outcome) -> None:
    resumed: Turn = outcome.value
    handle = Handle(resumed, turn, node.process, words_of(resumed._held.steps))
    assert _may_be_free(turn), "a turn was taken from a live holder"
    _check_not_completed(turn)
    _check_identity(turn, resumed)
    _check_words(turn, handle)
    _check_history(example, handle)
    turn.supersede(by=handle)
    turn.handles.append(handle)
    turn.saved, turn.on_record = list(handle.words), True
    turn.taken_up()


def _check_words(turn: ModelTurn, handle: Handle) -> None:
    """What was saved is there, byte for byte; nothing that a superseded holder wanted to add is."""
    assert turn.is_in_order(handle.words), f"words of {turn.turn_id}: {handle.words} of {turn.minted}"
    assert not turn.forbidden.intersection(handle.words), f"a superseded holder has saved: {turn.forbidden}"
    assert set(turn.saved) <= set(handle.words) or turn.went_back, f"saved were {turn.saved}, resumed {handle.words}"


def _check_history(example: Example, handle: Handle) -> None:
    """The turn follows the ledger's history, and its bootstrap belongs to that history."""
    with example.world.database.transaction() as connection:
        head = read_head(connection, handle.of.ledger)
    version = 0 if head is None else head.history_version
    if handle.turn._record.recorded:
        assert handle.turn.cursor.history_version == version, "the turn does not follow its ledger's history"
    bootstrap = handle.turn.bootstrap
    if bootstrap is not None:
        assert bootstrap == {"mark": BOOTSTRAP_MARK, "version": version}, f"another version's bootstrap: {bootstrap}"


def _stopped(turn: ModelTurn, node: Node) -> None:
    """Taken up too often: it is completed as failed, with what Redis had of it."""
    words = tuple(turn.saved)
    kept = max(len(words) - 1, 0)  # the last one counts as the reply that nobody got
    attempt = Attempt(words, kept, failure=True, standing=Standing.UNSURE, process=node.process, epoch=0)
    attempt.is_exact = False
    turn.attempts.append(attempt)
    turn.supersede(by=None)
    turn.may_have_ended = True
