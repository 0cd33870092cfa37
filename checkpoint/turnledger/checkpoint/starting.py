"""The parts of a start: the checked request, the beginning in Postgres, the record's first fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnledger.checkpoint.earlier import earlier_block
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.record import RECORD_FORMAT, Cursor, LedgerView
from turnledger.checkpoint.records import already_handled, already_running, turn_ended
from turnledger.store import Database, InvalidInput, LedgerName, Message, StoreBusy, StoreUnavailable
from turnledger.store.accounts import find_account
from turnledger.store.block import Account
from turnledger.store.events import EventRow, encode_rows, failed_event, handled_key, message_event, started_event
from turnledger.store.given import listed
from turnledger.store.history import steps_in_log
from turnledger.store.identity import check_turn_id, check_work_key, new_entry_id, new_turn_id
from turnledger.store.json_text import encode_json
from turnledger.store.ledger import (
    FIRST_EPOCH,
    Beginning,
    Head,
    Run,
    begin_run,
    create_ledgers,
    end_run,
    find_answered,
    find_runs,
    lock_ledger,
    look_around,
    raise_epoch,
    read_head,
)
from turnledger.store.logs import get_logger
from turnledger.store.steps import encode_step
from turnledger.store.times import time_text

log = get_logger(__name__)

FIRST_REVISION = 1

NO_LEDGER = Head(ledger_id=0, history_version=0, next_seq=0, turn_count=0)  # of a ledger that is still to be made

Fields = dict[str, str | int]


class FirstTry(NamedTuple):
    """What a run that is begun again has to know of its first beginning.

    `steps`, in wire form, are its first ones: a replacement of history has put them into the log, and the commit
    counts on their being there.
    """

    epoch: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One call of `Turns.start`, checked. `enabled`: the feature was on when it came."""

    turn_id: str
    ledger: LedgerName
    work_key: str
    triggered_by: str
    messages: tuple[Message, ...]
    enabled: bool = True

    @property
    def recorded(self) -> bool:
        """Whether anything of the turn goes to Postgres; decided here and kept on its record to its end."""
        return self.enabled and self.ledger.recorded


def checked_request(
    *,
    agent: str,
    conversation: str,
    triggered_by: str,
    work_key: str,
    messages: Sequence[Message],
    turn_id: str | None,
    enabled: bool = True,
) -> StartRequest:
    """The request, or the refusal of the first thing that is wrong with it.

    Raises:
        InvalidInput: says what, where and what to do; nothing was written.
    """
    if not isinstance(triggered_by, str):
        raise InvalidInput(f"triggered_by must be text, not {type(triggered_by).__name__}", where="triggered_by")
    came_in = listed(messages, where="messages")
    for index, message in enumerate(came_in):
        check_message(message, where=f"messages[{index}]")
    return StartRequest(
        turn_id=new_turn_id() if turn_id is None else check_turn_id(turn_id),
        ledger=LedgerName(agent, conversation),
        work_key=check_work_key(work_key),
        triggered_by=triggered_by,
        messages=came_in,
        enabled=enabled,
    )


def check_message(message: object, *, where: str) -> None:
    """Refuse what is no Message.

    Raises:
        InvalidInput: says what it is.
    """
    if not isinstance(message, Message):
        raise InvalidInput(f"{where} must be a Message, not {type(message).__name__}", where=where)


def refuse_known_work(request: StartRequest, view: LedgerView) -> None:
    """Refuse a work key that Redis knows to be completed or in progress.

    Raises:
        AlreadyHandled, AlreadyRunning: name the run.
    """
    if not request.work_key:
        return
    for turn in view.uncommitted:
        if turn.work_key == request.work_key and turn.did_its_work:
            raise already_handled(turn.turn_id, entry_id=turn.entry_id)
    for other in view.open:
        if other.work_key == request.work_key and other.turn_id != request.turn_id:
            raise already_running(other.turn_id, state=other.state, owner=other.owner)


def refuse_done(database: Database, request: StartRequest) -> None:
    """Refuse a work key that Postgres knows to be completed, and a run that it knows to have ended.

    Raises:
        AlreadyHandled, TurnEnded: name the run.
    """
    with database.transaction() as connection:
        head = read_head(connection, request.ledger)
        wanted = [] if head is None else [(head.ledger_id, request.work_key)]
        answered = find_answered(connection, wanted)
        runs = find_runs(connection, [request.turn_id])
    for first in answered.values():
        raise already_handled(first.turn_id, entry_id=first.entry_id)
    run = runs.get(request.turn_id)
    if run is not None and run.outcome != "lost":  # given up for lost, and yet its record is here
        _refuse_ended(run)


def begin(database: Database, request: StartRequest, view: LedgerView) -> Beginning:
    """Record that the run began, and read what it has to know, under the ledger's lock.

    Raises:
        AlreadyHandled: the work key is completed; nothing was written.
    """
    beginning = _try_to_begin(database, request, view)
    if beginning is None:
        create_ledgers(database, [request.ledger])
        beginning = _try_to_begin(database, request, view)
    assert beginning is not None, "a ledger cannot vanish once it was made"
    refuse_decided(request, beginning)
    return beginning


def refuse_decided(request: StartRequest, beginning: Beginning) -> None:
    """Refuse what Postgres has decided: the work, or this very run.

    Raises:
        AlreadyHandled, TurnEnded: name the run.
    """
    if beginning.answered is not None:
        raise already_handled(beginning.answered.turn_id, entry_id=beginning.answered.entry_id)
    _refuse_ended(beginning.runs.get(request.turn_id))


def _refuse_ended(run: Run | None) -> None:
    if run is None or run.outcome is None:
        return
    if run.outcome in ("completed", "duplicate"):
        raise already_handled(run.duplicate_of or run.turn_id, entry_id=None)
    raise turn_ended(run.turn_id, state=run.outcome)


def look_only(database: Database, request: StartRequest, view: LedgerView) -> Beginning:
    """What `begin` reads, without a lock and without writing.

    Raises:
        AlreadyHandled: the work key is completed.
    """
    with database.snapshot(pace="start") as connection:
        head = read_head(connection, request.ledger)
        if head is None:  # turns of it may be on their way all the same
            return Beginning(NO_LEDGER, entries=(), known_keys=frozenset(), answered=None, runs={})
        beginning = look_around(
            connection,
            head,
            turn_id=request.turn_id,
            work_key=request.work_key,
            watched_keys=[handled_key(message.message_id) for message in request.messages],
            watched_runs=[turn.turn_id for turn in view.uncommitted],
            most_entries=database.config.current().max_entries,
        )
    refuse_decided(request, beginning)
    return beginning


def unwritten_rows(request: StartRequest, view: LedgerView) -> list[EventRow]:
    """What `begin` writes into the log: the inbound messages, and that the run started."""
    now = time_text(view.now_ms)
    rows = [message_event(message, now=now) for message in request.messages]
    return [*rows, started_event(request.turn_id, work_key=request.work_key, now=now)]


def _try_to_begin(database: Database, request: StartRequest, view: LedgerView) -> Beginning | None:
    now = time_text(view.now_ms)
    rows = unwritten_rows(request, view)
    with database.transaction(pace="start") as connection:
        head = lock_ledger(connection, request.ledger)
        if head is None:
            return None
        return begin_run(
            connection,
            head,
            turn_id=request.turn_id,
            work_key=request.work_key,
            started_at=now,
            rows=rows,
            watched_keys=[handled_key(message.message_id) for message in request.messages],
            watched_runs=[turn.turn_id for turn in view.uncommitted],
            most_entries=database.config.current().max_entries,
        )


def withdraw(database: Database, request: StartRequest, view: LedgerView) -> None:
    """Give a run that began just now, and that another run forestalled, its terminal, if Postgres has been told of it.

    Not one that was begun again: whoever began it first may still be at it.
    """
    now = time_text(view.now_ms)
    terminal = failed_event(request.turn_id, code="agent_run_failed", failure_id=None, now=now)
    with database.transaction() as connection:
        head = lock_ledger(connection, request.ledger)
        if head is None:
            return
        run = Run(request.turn_id, head.ledger_id, request.work_key, FIRST_EPOCH, 0, None, None)
        end_run(connection, head, run=run, outcome="abandoned", started_at=now, row=terminal)


def fence_first_try(database: Database, request: StartRequest) -> FirstTry:
    """Fence off whoever began the run before, while Redis, which would say who that is, is away."""
    with database.transaction() as connection:
        head = lock_ledger(connection, request.ledger)
        raised = raise_epoch(connection, request.turn_id, known=FIRST_EPOCH)
        if head is None or raised is None:
            return FirstTry(FIRST_EPOCH, steps=())
        written = steps_in_log(connection, head, request.turn_id, first=0) if raised.steps_written else []
        return FirstTry(raised.epoch, tuple(encode_step(step) for step in written))


def recorded_fields(request: StartRequest, view: LedgerView, beginning: Beginning, *, block: str) -> Fields:
    """The first fields of a recorded turn: its block, frozen, and the history it is built on."""
    head = beginning.head
    cursor = Cursor(head.ledger_id, head.history_version, head.next_seq - 1, beginning.last_turn_id, _seen(view))
    return {
        **_common_fields(request, view),
        "recorded": "1",
        "epoch": beginning.runs[request.turn_id].epoch,
        "cursor": cursor.encode(),
        "earlier": block,
        "handled": encode_json(_handled(request, view, beginning)),
    }


def unwritten_fields(request: StartRequest, view: LedgerView, beginning: Beginning | None, *, block: str) -> Fields:
    """The first fields of a turn that Postgres could not be told of: what it missed travels with the completion.

    Without a beginning the earlier turns could not be read either. The cursor takes the head at first contact.
    """
    return {
        **_common_fields(request, view),
        "recorded": "1",
        "cursor": Cursor(None, 0, -1, None, _seen(view)).encode(),
        "earlier": block,
        "handled": "[]" if beginning is None else encode_json(_handled(request, view, beginning)),
        "before": encode_rows(unwritten_rows(request, view)),
    }


def _seen(view: LedgerView) -> tuple[str, ...]:
    return tuple(turn.turn_id for turn in view.uncommitted)


def block_of(database: Database, view: LedgerView, beginning: Beginning) -> str:
    """What the turn that begins is shown of the earlier ones; where the oldest have an account that can be read, that.

    No model is called: an account is written after a commit, by a worker.
    """

    def stored_account() -> Account | None:
        try:
            with database.transaction(pace="start") as connection:
                return find_account(connection, beginning.head.ledger_id)
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("account_not_read", ledger_id=beginning.head.ledger_id, reason=str(error))
            return None

    settings = database.settings
    return earlier_block(
        beginning,
        uncommitted=view.uncommitted,
        most_entries=database.config.current().max_entries,
        budget_bytes=settings.block_bytes,
        find_account=stored_account,
    )


def unrecorded_fields(request: StartRequest, view: LedgerView) -> Fields:
    """The first fields of a turn that is not recorded: no history before it, none after it."""
    cursor = Cursor(None, 0, -1, None)
    return {**_common_fields(request, view), "recorded": "0", "cursor": cursor.encode(), "earlier": "",
            "handled": "[]"}  # fmt: skip


def _common_fields(request: StartRequest, view: LedgerView) -> Fields:
    return {
        "format": RECORD_FORMAT,
        "state": "running",
        "untouched": FIRST_REVISION,
        "epoch": FIRST_EPOCH,
        "slice": 1,
        "ledger": encode_ledger(request.ledger),
        "work_key": request.work_key,
        "entry_id": new_entry_id(),
        "started_at": time_text(view.now_ms),
        "triggered_by": encode_json(request.triggered_by),
        "message_ids": encode_json([message.message_id for message in request.messages]),
    }


def _handled(request: StartRequest, view: LedgerView, beginning: Beginning) -> list[str]:
    moving = {message_id for turn in view.uncommitted if turn.did_its_work for message_id in turn.message_ids}
    return [
        message.message_id
        for message in request.messages
        if message.message_id in moving or handled_key(message.message_id) in beginning.known_keys
    ]
