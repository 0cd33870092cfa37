"""A turn in progress, as the engine node that runs it holds it."""

import time
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from structlog.contextvars import bound_contextvars

from turnledger.checkpoint.completion import Account, Fitting, usable_receipt
from turnledger.checkpoint.ending import check_failure, refuse_if_taken_over, refuse_stale, write_terminal
from turnledger.checkpoint.errors import CheckpointUnavailable, CompletionConflict, StaleTurn, TurnNotFound
from turnledger.checkpoint.naming import job_names, names
from turnledger.checkpoint.record import Cursor, Record
from turnledger.checkpoint.records import Claim, Fields, turn_ended, turn_not_found
from turnledger.checkpoint.replacing import (
    ReplaceableHistory,
    end_child_ledger,
    history_to_replace,
    mark_others,
    new_child,
    open_child_ledger,
    replace_in_postgres,
)
from turnledger.checkpoint.replaying import model_history
from turnledger.checkpoint.running_time import RunningTime
from turnledger.checkpoint.session import Opening, Session
from turnledger.checkpoint.submission import NOT_QUEUED, Completion, Services, Submission
from turnledger.checkpoint.taking_over import ABANDONED_CODE
from turnledger.checkpoint.telemetry import span
from turnledger.checkpoint.turn_steps import TurnSteps
from turnledger.store import (
    CallRecord,
    InvalidInput,
    LedgerName,
    Step,
    StoreBusy,
    StoreUnavailable,
    TurnledgerError,
    Undelivered,
)
from turnledger.store.activity import authorization_completed, authorization_requested, check_recordable
from turnledger.store.crash_points import crash_point
from turnledger.store.entry import Replied, Reply
from turnledger.store.events import EventRow
from turnledger.store.given import StillUnderWay, answer_of, check_function, listed
from turnledger.store.identity import check_label
from turnledger.store.json_text import encode_json
from turnledger.store.ledger import (
    AppendResult,
    EndedAs,
    append,
    create_ledgers,
    database_time,
    lock_ledger,
)
from turnledger.store.logs import get_logger
from turnledger.store.replacement import Replacement, check_replacement
from turnledger.store.steps import Usage, encode_step, total_usage
from turnledger.store.times import time_text, utc_now

log = get_logger(__name__)

_UNKNOWN = (StillUnderWay, CancelledError, KeyboardInterrupt, SystemExit)  # none says whether the reply went out
_UNSAVED = (CheckpointUnavailable, TurnNotFound)  # the latter: Redis came back without the record

AUTHORIZATION = "authorization"  # the reason of a park that the log follows
WAIT_POLL_S = 0.02  # a commit takes a few milliseconds once its worker is awake


class AccountFields(TypedDict, total=False):
    """What an engine may say of a turn that ended, beside its reply and its steps. All may be left out.

    `set_out_to`: what the agent meant to do. `calls`: replaces the calls that the steps show. `reviewer`: what
    landed, in a reviewer's words. `outcome`: one word; `blocked_on`: the evidence, with the outcome `blocked`
    alone. `decision`: one word such as `done` or `failed`. `fitting`: what stands for over-long tool arguments and
    errors: `rewrite`, an account by a model where the deployment has one, or `names`, for which nobody is asked: say so
    when a budget ended the turn.
    """

    set_out_to: str | None
    calls: Sequence[CallRecord] | None
    reviewer: str | None
    outcome: str | None
    blocked_on: str | None
    decision: str | None
    fitting: Fitting


_Asked = tuple[Account, tuple[Step, ...]]


class Turn:
    """One run of one agent on one conversation, from `Turns.start` or `Turns.resume` to its end.

    The holder keeps every step in memory, so that nothing depends on what Redis still has. A handle is for
    one thread at a time. `checkpoint_error` is what the last save ran into, None when everything is saved;
    `history_error` is why the earlier turns could not be read at the start, or may lack the newest; `spooled` is the
    file that holds the completed turn when no store took it. `other_tools` are the digests of tools that the resume
    found in the saved steps beside the one it was told.
    """

    def __init__(
        self,
        services: Services,
        *,
        record: Record,
        steps: Sequence[str] = (),
        opening: Opening | None = None,
        history_error: TurnledgerError | None = None,
    ) -> None:
        self._services = services
        self._records = services.records
        self._database = services.database
        self._record = record
        claim = Claim(record.turn_id, record.owner, record.revision)
        refuse = partial(refuse_if_taken_over, services.database, record, before="write")
        self._session = Session(
            services.records,
            claim=claim,
            sent=0 if opening else len(steps),
            refuse_if_taken_over=refuse if record.recorded else None,
            opening=opening,
        )
        self._running = RunningTime(record.ran_ms)
        self._held = TurnSteps(steps, most_bytes=services.records.settings.save_bytes, block=record.earlier)
        self._submission: Submission | None = None
        self._completed: tuple[_Asked, Completion] | None = None
        self._delivered: Replied | None = None
        self.checkpoint_error: TurnledgerError | None = None
        self.history_error = history_error
        self.spooled: Path | None = None
        self.other_tools: tuple[str, ...] = ()
        self.bootstrap: Any = record.bootstrap
        services.leases.keep(self)

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
    def triggered_by(self) -> str:
        """The whole ask, verbatim, as the start was given it."""
        return self._record.triggered_by

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
    def ran_ms(self) -> int:
        """For how many milliseconds processes have held this turn, up to now or to its end; waits do not count.

        Of a process that died the time after its last save is not counted.
        """
        return self._running.milliseconds

    @property
    def usage(self) -> Usage:
        """The tokens of all steps of this turn, whoever made them, those that a replacement covers included."""
        return total_usage(self._held.steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of this turn, saved or not, in order, less those that a replacement of history covers."""
        return tuple(self._held.steps[self._record.covered :])

    @property
    def claim(self) -> Claim:
        """This holder's right to write, for the lease keeper."""
        return self._session.claim

    def compare_tools(self, now: str | None) -> None:
        """Called by the resume, with the digest of the tools there are now; None: the engine keeps none."""
        made_with = {step.tools_digest for step in self.steps if step.role == "assistant" and step.tools_digest}
        self.other_tools = () if now is None else tuple(sorted(made_with - {now}))
        if self.other_tools:
            log.warning("other_tools", **self._names, digests=len(self.other_tools))

    def lease_renewed(self, asked_at: float) -> None:
        """Called by the lease keeper."""
        self._session.renewed(asked_at)

    def lease_lost(self) -> None:
        """Called by the lease keeper; the next write tells the holder who has the turn."""
        log.warning("turn_lost", **self._names)

    def save(self, *, steps: Sequence[Step] = (), bootstrap: object = None) -> None:
        """Append steps and replace the bootstrap, at a boundary from which the turn could go on.

        Of a user message that holds the turn's block the task alone is kept. Costs what is new. While Redis is away the
        turn goes on: the loss is on `checkpoint_error`, and the next save brings what is missing. Where Redis came back
        without the turn it goes on unsaved to its end.

        Raises:
            InvalidInput: a call is left unanswered, or answered and never made; content that is not JSON.
            OversizedPayload: more than the limit of one save.
            StaleTurn, TurnEnded: another process has the turn; nothing was written.
        """
        kept = _encode_bootstrap(bootstrap)
        steps = listed(steps, where="steps")
        with span("save", **self._names, steps=len(steps)):
            self._held.accept(self._held.checked(steps, calls_may_stay_open=False, also_sent=kept))
            try:
                self._session.save(self._held.wire, fields={"bootstrap": kept, "ran_ms": self.ran_ms})
                self._services.leases.keep(self)  # a park that was not answered may have looked like a loss
                self.checkpoint_error = None
            except _UNSAVED as error:
                self.checkpoint_error = error
                log.warning("save_failed", **self._names, reason=str(error))
                if isinstance(error, TurnNotFound):
                    self._refuse_if_taken_over()  # or it was, and has been forgotten since

    def park(self, *, reason: str, steps: Sequence[Step] = (), bootstrap: object = None) -> None:
        """Save and let go: any node may resume the turn. Calls may stay open.

        With the reason `authorization` the log says when permission was asked for and, at the resume, that the
        wait is over.

        Raises:
            CheckpointUnavailable: it could not be saved, so it is not parked.
            TurnNotFound: Redis has forgotten the turn, so it cannot be parked.
            InvalidInput, OversizedPayload, StaleTurn, TurnEnded: as `save`.
        """
        check_label(reason, where="reason")
        kept = _encode_bootstrap(bootstrap)
        new = self._held.checked(listed(steps, where="steps"), calls_may_stay_open=True, also_sent=kept)
        self._held.accept(new)
        fields: Fields = {"state": "parked", "reason": reason, "bootstrap": kept, "ran_ms": self.ran_ms}
        self._session.save(self._held.wire, fields=fields, lease="give up")
        self._let_go()
        if reason == AUTHORIZATION:
            self.note_authorization("requested")

    def note_authorization(self, what: Literal["requested", "completed"]) -> None:
        """Write the wait for permission into the log, as far as Postgres takes it now."""
        authorization_id = f"{self.turn_id}:{self.slice if what == 'requested' else self.slice - 1}"
        event = authorization_requested if what == "requested" else authorization_completed
        try:
            self._append([event(authorization_id)], is_fenced=False)  # of a park, others may have the turn by now
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("authorization_not_recorded", **self._names, what=what, reason=str(error))

    def record(self, *events: EventRow) -> AppendResult | None:
        """Write events of this turn into the ledger's log at once; each lands once, by its key.

        Make them with `turnledger.store.activity`. None where the turn is not recorded.

        Raises:
            InvalidInput: an event that a running turn may not write, or that could not be read back.
            StaleTurn: another process has taken the turn over; nothing was written.
            StoreUnavailable, StoreBusy: nothing was written; a repeat is safe.
        """
        for event in events:
            check_recordable(event)
        return self._append(events, is_fenced=True)

    def _append(self, events: Sequence[EventRow], *, is_fenced: bool) -> AppendResult | None:
        if not self._record.recorded:
            return None
        create_ledgers(self._database, [self.ledger])
        with bound_contextvars(**self._names), self._database.transaction() as connection:
            head = lock_ledger(connection, self.ledger)
            assert head is not None, "the ledger was just made"
            if is_fenced:
                refuse_stale(connection, self._record)
            now = database_time(connection)
            timed = [event if event.occurred_at else event._replace(occurred_at=now) for event in events]
            return append(connection, head, timed, turn_id=self.turn_id)

    def complete(self, *, reply: Reply, steps: Sequence[Step] = (), **account: Unpack[AccountFields]) -> Completion:
        """End the turn and queue its commit, both or neither; one round trip.

        Repeated with the same content it gives the first answer. Where another run of the work key was first,
        its ids are returned and this run adds nothing. When Redis cannot take the turn it is committed directly,
        or put on this node's disk (`spooled`), as is a turn whose entry is over 64 MiB.

        Raises:
            InvalidInput, OversizedPayload: a field is refused; nothing was written.
            CompletionConflict: the turn was completed before with another content.
            StaleTurn, TurnEnded: another process has the turn; nothing was written.
            NotPersisted: no store and no disk took it; call again, a repeat is safe.
        """
        return self._complete_once(_account(reply, account), listed(steps, where="steps"))

    def deliver(
        self,
        send: Callable[[], str | int | None],
        *,
        reply: str,
        steps: Sequence[Step] = (),
        **account: Unpack[AccountFields],
    ) -> Completion:
        """Send the reply and complete the turn; `send` returns the vendor's id of the message, or None.

        `steps` are the final ones, which become part of the turn only once `send` has returned. While it runs the
        turn is marked, so that nobody sends again if this process dies: it is `blocked` then. When `send` raises,
        the turn ends as `delivery_failed` with an entry that says so, and the error is raised again. A second
        call does not send again. A `send` that is `async` is refused, since it would send nothing. Where `send` is
        interrupted or cancelled nobody knows whether the reply went out: the turn is let go, and is `blocked` too.

        Raises:
            StaleTurn: also where Redis cannot be asked, once Postgres knows of a take-over; nothing was sent.
            Exception: whatever `send` raises.
            InvalidInput, OversizedPayload, CompletionConflict, TurnEnded, NotPersisted: as `complete`; after a delivery
                `fail` calls no `notify`.
        """
        if self._completed is not None:
            return self._completed[1]
        check_function(send, where="send")
        final = listed(steps, where="steps")
        if self._delivered is None:
            undelivered = replace(_account(Undelivered(reply), account), failure="delivery_failed")
            self._drafted(undelivered, final)  # what is refused is refused before anything is sent
            self._mark_delivering()
            try:
                receipt = answer_of(send, where="send")
            except _UNKNOWN:
                self._let_go()
                raise
            except Exception:
                self._complete_once(undelivered, final)
                raise
            self._delivered = Replied(reply, self._usable_receipt(receipt))
        return self._complete_once(_account(self._delivered, account), final)

    def fail(self, code: str, *, failure_id: str | None = None, notify: Callable[[], object] | None = None) -> None:
        """End the turn without an entry, for an allow-listed reason; `failure_id` is opaque, never provider text.

        `code` is `agent_run_failed`, `model_execution_failed`, `delivery_failed`, `persistence_failed`, `slice_limit`,
        or `session_lost`, which a completion that comes later overrules.

        `notify` sends the safe failure reply: also when the failure could not be recorded, never after a
        delivered reply.

        Raises:
            InvalidInput: the code is not known, or `notify` is no function, or an `async` one.
            StaleTurn, TurnEnded: another process has the turn; nothing was written, nobody notified.
            CheckpointUnavailable, StoreUnavailable, StoreBusy: it is not recorded; raised after `notify`.
        """
        if notify is not None:
            check_function(notify, where="notify")
        persistence_error = self._try_to_fail(code, failure_id)
        try:
            if notify is not None and self._delivered is None:
                answer_of(notify, where="notify")
        except Exception as error:
            if persistence_error is not None:
                raise persistence_error from error
            raise
        if persistence_error is not None:
            raise persistence_error

    def stop(self, code: str) -> Completion:
        """End the turn as failed with what it did so far on record: nobody received a reply.

        For an engine that gives a turn up and wants later turns to know what it did; `fail` leaves no entry.

        Raises:
            InvalidInput: the code is not known.
            StaleTurn, TurnEnded, NotPersisted: as `complete`.
        """
        check_failure(self._record, code=code, failure_id=None)
        account = Account(reply=Undelivered(""), decision="failed", failure=code)
        return self._complete_once(account, ())

    def abandon(self) -> None:
        """End the turn without an entry because nobody will go on with it; its work key is free again.

        Raises:
            StaleTurn, TurnEnded, TurnNotFound: another process has the turn; nothing was written.
        """
        self._end("abandoned", code=ABANDONED_CODE, failure_id=None)

    def history(self) -> list[Step]:
        """The replayable model history of the ledger, oldest first: committed steps, then those on their way.

        Read when asked for; steps of this turn are not in it while it runs. Where the turn is not recorded it is what
        this turn itself has put in the place of its steps.

        Raises:
            UnsupportedEvent, CorruptData: a stored step cannot be read; names it.
            CheckpointUnavailable, StoreUnavailable, StoreBusy: try again.
        """
        return model_history(self._records, self._database, record=self._record)

    def history_to_replace(self) -> ReplaceableHistory:
        """The ledger's history, to compute a replacement from; what was pending is committed first.

        Steps of this turn are not in it: `turn.steps` has them. Where the turn is not recorded it is `turn.history()`.

        Raises:
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again.
            StoreRefused, CorruptData: a pending turn cannot be stored; a worker will set it aside.
        """
        if not self._record.recorded:
            return ReplaceableHistory(version=0, through_seq=-1, steps=tuple(self.history()))
        return history_to_replace(self._records, self._database, ledger=self.ledger)

    def compact(
        self, history: ReplaceableHistory, *, steps: Sequence[Step], model: str, covers: int | None = None
    ) -> None:
        """Replace the ledger's model history with these steps, for this model; entries and block stay as they are.

        The replacement stands for `history` and for the first `covers` of `turn.steps` (None: all of them). Those
        become rows of the old version and leave `turn.steps`; their calls still count in the entry. What others
        complete meanwhile follows the replacement. The bootstrap is dropped: it belonged to the old history. Of a
        turn that is not recorded only its own record changes.

        Raises:
            StaleHistory: history was replaced meanwhile, or the turn taken over; read it again. Nothing was written.
            InvalidInput: a call without its result, or a result without its call; names it. Nothing was written.
            CheckpointUnavailable: the steps it covers could not be saved first; nothing was written.
            StaleTurn, TurnEnded, StoreUnavailable, StoreBusy: nothing was written, as far as is known.
        """
        self._replace(history, steps=steps, covers=covers, model=model, profile=None)

    def hand_off(
        self,
        history: ReplaceableHistory,
        *,
        steps: Sequence[Step],
        model: str,
        profile: str,
        covers: int | None = None,
    ) -> None:
        """Pass the conversation to another model profile of the same agent; in all else as `compact`."""
        self._replace(history, steps=steps, covers=covers, model=model, profile=profile)

    def open_child(self, agent: str, *, steps: Sequence[Step], model: str, call_id: str | None = None) -> LedgerName:
        """Hand work to another agent: a ledger of its own that begins with these steps; start its turns there.

        `call_id` is the call that hands over; every other call of this turn must have its result by now. Of a turn that
        began while the feature was off it is a name and nothing else: the steps are the caller's to pass on.

        Raises:
            InvalidInput: a call is open, or the steps are refused; nothing was written.
            TurnEnded: this handle has completed the turn; nothing was written.
            StaleTurn, StoreUnavailable, StoreBusy: nothing was written.
        """
        if self._completed is not None:
            raise turn_ended(self.turn_id, state="completed")
        others = sorted(self._held.calls.open - {call_id})
        if others:
            raise InvalidInput(f"calls {', '.join(map(repr, others))} have no result yet; save them first")
        child = new_child(agent)
        if self._began_switched_off:
            return child
        first = listed(steps, where="steps")
        open_child_ledger(self._database, self._record, child=child, steps=first, model=model)
        return child

    def end_child(self, child: LedgerName, *, outcome: str) -> None:
        """Note in this ledger's log that the child's work has ended; once, however often it is called.

        Raises:
            InvalidInput: it is no child of this ledger.
            StoreUnavailable, StoreBusy: try again.
        """
        check_label(outcome, where="outcome")
        if self._began_switched_off:
            return
        end_child_ledger(self._database, self._record, child=child, outcome=outcome)

    def wait(self, *, timeout_s: float = 60.0) -> None:
        """Return once the completed turn is history; within a minute also where a worker died with it in hand.

        Raises:
            TimeoutError: it is still pending, and will be committed all the same, or was rejected; the message says.
            TurnNotFound: Redis has forgotten it.
        """
        deadline = time.monotonic() + timeout_s
        while (state := self._records.states([self.turn_id])[0]) != "committed":
            if state is None:
                raise turn_not_found(self.turn_id)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"turn {self.turn_id} is {state} after {timeout_s:g} s")
            time.sleep(WAIT_POLL_S)

    def submit_again(self) -> None:
        """Called when the completed turn's record is gone or went back: Redis lost what it had acknowledged.

        Raises:
            StaleTurn: another process has taken the turn over.
            NotPersisted: try again.
        """
        assert self._submission is not None, "only a completed turn is submitted again"
        log.warning("turn_submitted_again", **job_names(self.turn_id, self.ledger))
        self.spooled = self._submission.commit_directly(owned=True).spooled

    @property
    def _names(self) -> dict[str, str]:
        return names(self.turn_id, self.ledger)

    def _replace(
        self,
        history: ReplaceableHistory,
        *,
        steps: Sequence[Step],
        covers: int | None,
        model: str,
        profile: str | None,
    ) -> None:
        _check_read(history)
        covered = self._covered_after(covers)
        replacement = Replacement(
            turn_id=self.turn_id,
            epoch=self._record.epoch,
            version=history.version,
            through_seq=history.through_seq,
            steps=listed(steps, where="steps"),
            covered=tuple(self._held.wire[:covered]),
            model=model,
            profile=profile,
        )
        if not self._record.recorded:
            self._replace_in_record(replacement, covered=covered)
            return
        self._session.save(self._held.wire, fields={})
        cursor = replace_in_postgres(self._database, replacement, record=self._record)
        self._advance(replace(cursor, pending=self.cursor.pending), covered=covered)
        mark_others(self._records, ledger=self.ledger, version=cursor.history_version, by=self.turn_id)

    def _replace_in_record(self, replacement: Replacement, *, covered: int) -> None:
        check_replacement(replacement)
        wire = tuple(encode_step(step) for step in replacement.steps)
        kept = encode_json(list(wire))
        self._held.checked((), calls_may_stay_open=True, also_sent=kept)
        self._record = replace(self._record, replacement=wire, covered=covered, bootstrap=None)
        self.bootstrap = None
        self._note_replaced({"replacement": kept, "covered": covered, "bootstrap": ""})

    @property
    def _began_switched_off(self) -> bool:
        return self.ledger.recorded and not self._record.recorded

    def _covered_after(self, covers: int | None) -> int:
        most = len(self._held) - self._record.covered
        wanted = most if covers is None else covers
        if not 0 <= wanted <= most:
            raise InvalidInput(f"covers is {wanted}, but this turn has {most} steps to cover", where="covers")
        return self._record.covered + wanted

    def _advance(self, cursor: Cursor, *, covered: int) -> None:
        """Follow the own replacement; if Redis does not take it now, the next save or the reconciler brings it."""
        self._record = replace(self._record, cursor=cursor, covered=covered, bootstrap=None)
        self.bootstrap = None
        self._note_replaced({"cursor": cursor.encode(), "covered": covered, "bootstrap": "", "replaced_by": ""})
        crash_point("replace.advanced")

    def _note_replaced(self, fields: Fields) -> None:
        try:
            self._session.save(self._held.wire, fields=fields)
        except _UNSAVED as error:
            self.checkpoint_error = error
            log.warning("record_not_advanced", **self._names, reason=str(error))

    def _complete_once(self, account: Account, steps: tuple[Step, ...]) -> Completion:
        asked = (account, steps)
        if self._completed is not None:
            return self._completed_before(asked)
        with span("complete", **job_names(self.turn_id, self.ledger), steps=len(steps)):
            submission = self._drafted(account, steps)
            submitted = submission.send()
        self._submission, self.spooled = submission, submitted.spooled
        self._completed = (asked, submitted.completion)
        self._let_go()
        if submitted.queued:
            self._services.leases.confirm(self)
        return submitted.completion

    def _drafted(self, account: Account, steps: Sequence[Step]) -> Submission:
        new = self._held.checked(steps, calls_may_stay_open=True)
        return Submission(
            self._services,
            record=self._record,
            session=self._session,
            account=account,
            steps=(*self._held.steps, *new.steps),
            held=self._held.wire,
            new=new.wire,
        )

    def _completed_before(self, asked: _Asked) -> Completion:
        assert self._completed is not None, "called for a completed turn"
        first_asked, completion = self._completed
        if asked != first_asked:
            raise CompletionConflict(f"turn {self.turn_id} was completed before with another content")
        return completion

    def _usable_receipt(self, receipt: object) -> str | None:
        usable = usable_receipt(receipt)
        if usable is None and receipt is not None:
            log.warning("receipt_not_usable", **self._names, type=type(receipt).__name__)
        return usable

    def _mark_delivering(self) -> None:
        is_sure = self._session.owns_surely()
        try:
            self._session.save(self._held.wire, fields={"delivery": "delivering"})
        except _UNSAVED as error:
            self.checkpoint_error = error
            log.warning("delivery_not_marked", **self._names, reason=str(error))
            is_sure = self._session.owns_surely() and not isinstance(error, TurnNotFound)
        if not is_sure:  # also where Redis has the record as this holder's: it may have lost a take-over
            self._refuse_if_taken_over()

    def _refuse_if_taken_over(self) -> None:
        if self._record.recorded:
            refuse_if_taken_over(self._database, self._record, before="send")

    def _try_to_fail(self, code: str, failure_id: str | None) -> TurnledgerError | None:
        """Record the failure as far as it can be; what could not be done is returned."""
        try:
            self._end("failed", code=code, failure_id=failure_id)
        except NOT_QUEUED as error:
            self._fail_without_redis(failure_id)
            return error
        except (StoreUnavailable, StoreBusy) as error:  # the record has the code: the reconciler writes the terminal
            return error
        return None

    def _fail_without_redis(self, failure_id: str | None) -> None:
        if not self._session.owns_surely():
            return
        now = time_text(utc_now())
        try:
            self._write_terminal("failed", code="persistence_failed", failure_id=failure_id, now=now)
        except StaleTurn:
            raise
        except TurnledgerError as error:
            log.error("failure_not_recorded", **self._names, reason=str(error))

    def _end(self, state: EndedAs, *, code: str, failure_id: str | None) -> None:
        check_failure(self._record, code=code, failure_id=failure_id)
        fields: Fields = {"code": code, "failure_id": failure_id or ""}
        ended_at_ms = self._session.end(ledger=self.ledger, state=state, fields=fields)
        self._let_go()
        self._write_terminal(state, code=code, failure_id=failure_id, now=time_text(ended_at_ms))

    def _let_go(self) -> None:
        self._running.stop()
        self._services.leases.release(self)

    def _write_terminal(self, outcome: EndedAs, *, code: str, failure_id: str | None, now: str) -> None:
        write_terminal(self._database, self._record, outcome=outcome, code=code, failure_id=failure_id, now=now)


def _account(reply: Reply, fields: AccountFields) -> Account:
    calls = fields.get("calls")
    return Account(
        reply=reply,
        set_out_to=fields.get("set_out_to"),
        calls=None if calls is None else listed(calls, where="calls"),
        reviewer=fields.get("reviewer"),
        outcome=fields.get("outcome"),
        blocked_on=fields.get("blocked_on"),
        decision=fields.get("decision"),
        fitting=fields.get("fitting", "rewrite"),
    )


def _check_read(history: object) -> None:
    if not isinstance(history, ReplaceableHistory):
        given = type(history).__name__
        raise InvalidInput(f"history must be what history_to_replace() gave, not {given}", where="history")


def _encode_bootstrap(bootstrap: object) -> str:
    return "" if bootstrap is None else encode_json(bootstrap, where="bootstrap")
