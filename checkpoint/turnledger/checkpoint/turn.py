"""A turn in progress, as the engine node that runs it holds it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from turnledger.checkpoint.completion import Account, draft_completion
from turnledger.checkpoint.earlier import not_committed
from turnledger.checkpoint.errors import CheckpointUnavailable, CompletionConflict, OversizedPayload
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.record import Cursor, PendingTurn, Record
from turnledger.checkpoint.records import Claim, Lease, Records, new_token
from turnledger.store import CallRecord, Database, LedgerName, Step, TurnledgerError
from turnledger.store.crash_points import crash_point
from turnledger.store.entry import Reply
from turnledger.store.events import EventRow, failed_event
from turnledger.store.history import replay
from turnledger.store.identity import check_label
from turnledger.store.json_text import encode_json
from turnledger.store.ledger import EndedAs, Run, end_run, find_runs, lock_ledger, read_head
from turnledger.store.open_calls import CallChange, OpenCalls
from turnledger.store.steps import decode_step, encode_step
from turnledger.store.times import time_text

log = structlog.get_logger(__name__)

WAIT_POLL_S = 0.02  # a commit takes a few milliseconds once its worker is awake


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of `complete`. `duplicate`: another run had completed the work key; the ids are that run's."""

    turn_id: str
    entry_id: str
    duplicate: bool = False


class _Write(NamedTuple):
    """One save on its way; kept until its answer is known, so that a repeat is the same operation."""

    operation: str
    fields: dict[str, str | int]
    steps: tuple[str, ...]
    lease: Lease


class _NewSteps(NamedTuple):
    """Steps that were checked and not yet taken over."""

    steps: tuple[Step, ...]
    wire: tuple[str, ...]
    calls: CallChange


_Asked = tuple[Account, tuple[Step, ...]]


class Turn:
    """One run of one agent on one conversation, from `Turns.start` or `Turns.resume` to its end.

    The holder keeps every step in memory, so that nothing depends on what Redis still has. A handle is for
    one thread at a time. `earlier` is the block, frozen when the turn started; `handled` names the inbound
    messages that an earlier turn had answered; `checkpoint_error` is what the last save ran into, None when
    everything is saved.
    """

    def __init__(
        self,
        *,
        records: Records,
        database: Database,
        leases: LeaseKeeper,
        record: Record,
        steps: Sequence[str] = (),
    ) -> None:
        self._records = records
        self._database = database
        self._leases = leases
        self._record = record
        self._claim = Claim(record.turn_id, record.owner, record.revision)
        self._wire_steps = list(steps)
        self._steps = [decode_step(step) for step in steps]
        self._sent = len(steps)
        self._calls = OpenCalls.of(self._steps)
        self._uncertain: _Write | None = None
        self._ending = new_token()
        self._completed: tuple[_Asked, Completion] | None = None
        self.checkpoint_error: TurnledgerError | None = None
        self.bootstrap: Any = record.bootstrap
        leases.keep(self)

    @property
    def turn_id(self) -> str:
        """The id of this run."""
        return self._record.turn_id

    @property
    def entry_id(self) -> str:
        """The id that the turn's entry will have, the same in every retry."""
        return self._record.entry_id

    @property
    def ledger(self) -> LedgerName:
        """Whose history of which conversation this turn belongs to."""
        return self._record.ledger

    @property
    def work_key(self) -> str:
        """The triggers this turn answers; '' merges with nothing."""
        return self._record.work_key

    @property
    def earlier(self) -> str:
        """The block `## Earlier in this conversation`, or ''; the same bytes for the whole turn, on every node."""
        return self._record.earlier

    @property
    def handled(self) -> tuple[str, ...]:
        """Ids of this turn's messages that an earlier turn had answered."""
        return self._record.handled

    @property
    def cursor(self) -> Cursor:
        """The history this turn was built on."""
        return self._record.cursor

    @property
    def slice(self) -> int:
        """How many processes have held this turn, this one included."""
        return self._record.slice

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step of this turn so far, saved or not, in order."""
        return tuple(self._steps)

    @property
    def claim(self) -> Claim:
        """This holder's right to write, for the lease keeper."""
        return self._claim

    def lease_lost(self) -> None:
        """Called by the lease keeper; the next write tells the holder who has the turn."""
        log.warning("turn_lost", turn_id=self.turn_id)

    def save(self, *, steps: Sequence[Step] = (), bootstrap: object = None) -> None:
        """Append steps and replace the bootstrap, at a boundary from which the turn could go on.

        Costs what is new. While Redis is away the turn goes on: the loss is on `checkpoint_error`, and the
        next save brings what is missing.

        Raises:
            InvalidInput: a call is left unanswered, or answered and never made; content that is not JSON.
            OversizedPayload: more than the limit of one save.
            StaleTurn, TurnEnded, TurnNotFound: another process has the turn; nothing was written.
        """
        self._accept(self._checked(steps, bootstrap=bootstrap, calls_may_stay_open=False))
        try:
            self._write({"bootstrap": _encode_bootstrap(bootstrap)})
        except CheckpointUnavailable as error:
            self.checkpoint_error = error
            log.warning("save_failed", turn_id=self.turn_id, reason=str(error))

    def park(self, *, reason: str, steps: Sequence[Step] = (), bootstrap: object = None) -> None:
        """Save and let go: any node may resume the turn. Calls may stay open.

        Raises:
            CheckpointUnavailable: it could not be saved, so it is not parked.
            InvalidInput, OversizedPayload, StaleTurn, TurnEnded, TurnNotFound: as `save`.
        """
        self._accept(self._checked(steps, bootstrap=bootstrap, calls_may_stay_open=True))
        check_label(reason, where="reason")
        fields: dict[str, str | int] = {"state": "parked", "reason": reason, "bootstrap": _encode_bootstrap(bootstrap)}
        self._write(fields, lease="give up")
        self._leases.release(self)

    def complete(
        self,
        *,
        reply: Reply,
        steps: Sequence[Step] = (),
        set_out_to: str | None = None,
        calls: Sequence[CallRecord] | None = None,
        reviewer: str | None = None,
        outcome: str | None = None,
        blocked_on: str | None = None,
        decision: str | None = None,
    ) -> Completion:
        """End the turn and queue its commit, both or neither; one round trip.

        Repeated with the same content it gives the first answer. Where another run of the work key was first,
        its ids are returned and this run adds nothing. `calls` replaces what the steps say.

        Raises:
            InvalidInput, OversizedPayload: a field is refused; nothing was written.
            CompletionConflict: the turn was completed before with another content.
            StaleTurn, TurnEnded, TurnNotFound: another process has the turn; nothing was written.
            CheckpointUnavailable: Redis stayed away; call again, a repeat is safe.
        """
        account = Account(
            reply=reply,
            set_out_to=set_out_to,
            calls=None if calls is None else tuple(calls),
            reviewer=reviewer,
            outcome=outcome,
            blocked_on=blocked_on,
            decision=decision,
        )
        asked = (account, tuple(steps))
        if self._completed is not None:
            return self._completed_before(asked)
        completion = self._complete(account, self._checked(steps, calls_may_stay_open=True))
        self._completed = (asked, completion)
        self._leases.release(self)
        return completion

    def fail(self, code: str, *, failure_id: str | None = None) -> None:
        """End the turn without an entry, for an allow-listed reason; `failure_id` is opaque, never provider text.

        Raises:
            InvalidInput: the code is not known.
            StaleTurn, TurnEnded, TurnNotFound: another process has the turn; nothing was written.
        """
        self._end("failed", code=code, failure_id=failure_id)

    def abandon(self) -> None:
        """End the turn without an entry because nobody will go on with it; its work key is free again.

        Raises:
            StaleTurn, TurnEnded, TurnNotFound: another process has the turn; nothing was written.
        """
        self._end("abandoned", code="agent_run_failed", failure_id=None)

    def history(self) -> list[Step]:
        """The replayable model history of the ledger, oldest first: committed steps, then those on their way.

        Read when asked for; steps of this turn are not in it.

        Raises:
            UnsupportedEvent, CorruptData: a stored step cannot be read; names it.
            CheckpointUnavailable, StoreUnavailable, StoreBusy: try again.
        """
        if not self.ledger.recorded:
            return []
        uncommitted = self._records.look(self.ledger, turn_id=self.turn_id).uncommitted
        with self._database.snapshot() as connection:
            head = read_head(connection, self.ledger)
            committed = [] if head is None else replay(connection, head)
            runs = find_runs(connection, [turn.turn_id for turn in uncommitted])
        return [*committed, *self._steps_on_their_way(not_committed(uncommitted, runs))]

    def wait(self, *, timeout_s: float = 30.0) -> None:
        """Return once the completed turn is history.

        Raises:
            TimeoutError: it is still pending, and will be committed all the same.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            record, _ = self._records.read(self.turn_id)
            if record.state == "committed":
                return
            time.sleep(WAIT_POLL_S)
        raise TimeoutError(f"turn {self.turn_id} is {record.state} after {timeout_s:g} s")

    def _checked(self, steps: Sequence[Step], *, calls_may_stay_open: bool, bootstrap: object = None) -> _NewSteps:
        change = self._calls.check(steps, allow_open=calls_may_stay_open)
        wire = tuple(encode_step(step) for step in steps)
        size = sum(map(_size, wire)) + _size(_encode_bootstrap(bootstrap))
        limit = self._records.settings.save_bytes
        if size > limit:
            raise OversizedPayload(f"this save has {size} bytes, one call may carry {limit}; save in smaller parts")
        return _NewSteps(tuple(steps), wire, change)

    def _accept(self, new: _NewSteps) -> None:
        self._steps.extend(new.steps)
        self._wire_steps.extend(new.wire)
        self._calls.advance(new.calls)

    def _write(self, fields: dict[str, str | int], *, lease: Lease = "keep") -> None:
        """Send what is new, after the write before it whose answer never came."""
        self._settle()
        self._uncertain = _Write(new_token(), fields, tuple(self._wire_steps[self._sent :]), lease)
        self._settle()
        self.checkpoint_error = None

    def _settle(self) -> None:
        write = self._uncertain
        if write is None:
            return
        self._claim = self._records.save(
            self._claim, fields=write.fields, steps=write.steps, lease=write.lease, operation=write.operation
        )
        crash_point("save.sent")
        self._sent += len(write.steps)
        self._uncertain = None

    def _complete(self, account: Account, new: _NewSteps) -> Completion:
        steps = (*self._steps, *new.steps)
        draft = draft_completion(
            account,
            turn_id=self.turn_id,
            entry_id=self.entry_id,
            triggered_by=self._record.triggered_by,
            message_ids=self._record.message_ids,
            steps=steps,
        )
        self._settle()
        wire = (*self._wire_steps, *new.wire)
        draft.fields["bytes"] = sum(map(_size, wire)) + int(draft.fields["entry_bytes"])
        if not self._record.recorded:
            self._end_record("committed", fields={"outcome": "not recorded"})
            return Completion(self.turn_id, self.entry_id)
        first = self._records.complete(
            self._claim,
            ledger=self.ledger,
            work_key=self.work_key,
            digest=draft.digest,
            fields=draft.fields,
            steps=wire[self._sent :],
            operation=self._ending,
        )
        crash_point("complete.sent")
        if first:
            turn_id, _, entry_id = first.partition(" ")
            return Completion(turn_id, entry_id, duplicate=True)
        return Completion(self.turn_id, self.entry_id)

    def _completed_before(self, asked: _Asked) -> Completion:
        assert self._completed is not None
        first_asked, completion = self._completed
        if asked != first_asked:
            raise CompletionConflict(f"turn {self.turn_id} was completed before with another content")
        return completion

    def _end(self, state: EndedAs, *, code: str, failure_id: str | None) -> None:
        if failure_id is not None:
            check_label(failure_id, where="failure_id")
        terminal = failed_event(self.turn_id, code=code, failure_id=failure_id, now="")
        self._settle()
        ended_at_ms = self._end_record(state, fields={"code": code, "failure_id": failure_id or ""})
        crash_point("end.sent")
        if self._record.recorded:
            self._write_terminal(state, terminal._replace(occurred_at=time_text(ended_at_ms)))

    def _end_record(self, state: str, *, fields: dict[str, str | int]) -> int:
        ended_at_ms = self._records.end(
            self._claim, ledger=self.ledger, state=state, fields=fields, operation=f"{self._ending}-{state}"
        )
        self._leases.release(self)
        return ended_at_ms

    def _write_terminal(self, outcome: EndedAs, terminal: EventRow) -> None:
        record = self._record
        with self._database.transaction() as connection:
            head = lock_ledger(connection, self.ledger)
            if head is None:
                return
            run = Run(self.turn_id, head.ledger_id, self.work_key, record.epoch, 0, None, None)
            end_run(connection, head, run=run, outcome=outcome, started_at=record.started_at, row=terminal)

    def _steps_on_their_way(self, turns: Sequence[PendingTurn]) -> list[Step]:
        wire = self._records.steps_of([(turn.turn_id, turn.kept_steps) for turn in turns])
        return [decode_step(step) for steps in wire for step in steps]


def _encode_bootstrap(bootstrap: object) -> str:
    return "" if bootstrap is None else encode_json(bootstrap, where="bootstrap")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
