"""What an engine node talks to: start a turn, resume one, look at one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from structlog.contextvars import bound_contextvars

from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.direct import DirectCommits
from turnledger.checkpoint.errors import (
    AlreadyHandled,
    AlreadyRunning,
    CheckpointUnavailable,
    SliceLimit,
    StaleTurn,
    TurnBlocked,
    TurnNotFound,
)
from turnledger.checkpoint.inputs import check_input, raise_unless_parked, record_message
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.naming import names
from turnledger.checkpoint.prompt_size import note_prompt_size
from turnledger.checkpoint.record import OWNER_LOST, UNFINISHED, LedgerView, Record, decode_record
from turnledger.checkpoint.records import (
    Claim,
    Fields,
    Records,
    already_running,
    done_before,
    new_token,
    turn_ended,
)
from turnledger.checkpoint.session import Opening
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.checkpoint.spool import Spool
from turnledger.checkpoint.starting import (
    FIRST_REVISION,
    StartRequest,
    begin,
    block_of,
    check_message,
    checked_request,
    fence_first_try,
    look_only,
    recorded_fields,
    refuse_done,
    refuse_known_work,
    unrecorded_fields,
    unwritten_fields,
    withdraw,
)
from turnledger.checkpoint.submission import Services
from turnledger.checkpoint.taking_over import (
    ABANDONED_CODE,
    TakeOver,
    check_history,
    end_in_postgres,
    let_go,
    take_over,
)
from turnledger.checkpoint.telemetry import span
from turnledger.checkpoint.turn import AUTHORIZATION, Turn
from turnledger.store import (
    Database,
    InvalidInput,
    Message,
    Step,
    StoreBusy,
    StoreSettings,
    StoreUnavailable,
    TurnledgerError,
    check_revision,
    read_settings,
)
from turnledger.store.crash_points import crash_point
from turnledger.store.identity import check_turn_id
from turnledger.store.logs import get_logger
from turnledger.store.steps import check_step, decode_step, encode_step
from turnledger.store.times import milliseconds, utc_now

log = get_logger(__name__)


class Snapshot(NamedTuple):
    """A turn as it stood at one moment; nothing can be written through it.

    `record` has its fields in Redis, such as `state`, `slice`, `bootstrap` and `cursor`; `steps` are all that were
    saved, oldest first, those that a replacement covers included.
    """

    record: Record
    steps: tuple[Step, ...]


class _Begun(NamedTuple):
    """A record's first fields, why the earlier turns could not be read, and whether the run had been begun before."""

    fields: Fields
    history_error: TurnledgerError | None = None
    again: bool = False


class Turns:
    """The turns of one Redis and one Postgres. Thread-safe; nothing connects before the first call."""

    def __init__(self, *, records: Records, database: Database) -> None:
        direct = DirectCommits(records=records, database=database, spool=Spool(records.settings.spool_folder))
        self._services = Services(records, database, LeaseKeeper(records), direct)
        self._records = records
        self._database = database
        self._checked_revision = False
        self._budgets = Budgets(records)

    @classmethod
    def from_settings(
        cls, *, store: StoreSettings | None = None, checkpoint: CheckpointSettings | None = None
    ) -> "Turns":
        """From `TURNLEDGER_DATABASE_URL`, `TURNLEDGER_REDIS_URL` and the other variables, unless settings are given.

        Raises:
            InvalidInput: a setting is missing or wrong; names it.
        """
        return cls(
            records=Records.from_settings(checkpoint or read_settings(CheckpointSettings)),
            database=Database(store or read_settings(StoreSettings)),
        )

    def start(
        self,
        *,
        agent: str,
        conversation: str,
        triggered_by: str,
        work_key: str = "",
        messages: Sequence[Message] = (),
        turn_id: str | None = None,
    ) -> Turn:
        """Begin a run: when this returns, messages and start are in Postgres and the record is in Redis.

        `triggered_by` is the whole ask, verbatim. `messages` are the chat records that came in. Called again with
        the same `turn_id` before anything was saved, it gives the same turn, block included.

        Raises:
            InvalidInput: a name, key or message is refused.
            AlreadyHandled: the work key is completed (also when not committed yet); names the run; nothing written.
            AlreadyRunning: a run of the work key, or of this turn_id, is open; names it.
            TurnEnded: the given turn_id is that of a run that failed or was abandoned.
            SchemaMismatch: the database is of another version of turnledger.
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again; with a `turn_id` of its own a start may be
                repeated.
        """
        request = checked_request(
            agent=agent,
            conversation=conversation,
            triggered_by=triggered_by,
            work_key=work_key,
            messages=messages,
            turn_id=turn_id,
            enabled=self._database.config.current().enabled,
        )
        told = names(request.turn_id, request.ledger)
        with bound_contextvars(**told), span("start", **told):
            turn = self._start(request)
        note_prompt_size(turn, occasion="start")
        return turn

    def _start(self, request: StartRequest) -> Turn:
        if request.enabled:  # off, a start wants nothing of Postgres, whatever is wrong with it
            self._check_revision()
        self._replay_spool()
        try:
            view = self._records.look(request.ledger, turn_id=request.turn_id)
        except CheckpointUnavailable as error:
            return self._start_unsaved(request, error)
        if view.own_state is not None:
            return self._started_before(request)
        refuse_known_work(request, view)
        begun = self._begin(request, view)
        crash_point("start.recorded")
        return self._open(request, begun, view)

    def resume(self, turn_id: str, *, tools_digest: str | None = None) -> Turn:
        """Take over a parked turn, or one whose holder fell silent, with its steps byte for byte as saved.

        Whoever held it before is fenced off, in Redis and in Postgres. `tools_digest` is that of the tools the engine
        offers now: steps that were made with others are reported on `turn.other_tools`; what that means, the caller
        decides.

        Raises:
            TurnNotFound, TurnEnded: there is nothing to resume.
            AlreadyHandled: its work is completed, by this run or another of its work key.
            AlreadyRunning: its holder is alive; names owner and state.
            StaleTurn: another process took it over at the same time.
            TurnBlocked: Postgres lacks the history it was built on, or its reply may have been sent; says which.
            SliceLimit: it was taken up too often (`TURNLEDGER_SLICES`), and has been ended as failed.
            SchemaMismatch: the database is of another version of turnledger.
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again.
        """
        check_turn_id(turn_id)
        with bound_contextvars(turn_id=turn_id), span("resume", turn_id=turn_id) as note:
            turn = self._resume(turn_id)
            turn.compare_tools(tools_digest)
            note(**names(turn_id, turn.ledger))
        note_prompt_size(turn, occasion="resume")
        return turn

    def _resume(self, turn_id: str) -> Turn:
        self._refuse_lost_history(turn_id)
        owner = new_token()
        record, steps = self._records.claim(turn_id, owner=owner)
        crash_point("resume.claimed")
        turn = self._take_over(replace(record, owner=owner), steps)
        if record.slice > self._records.settings.slices:
            turn.stop("slice_limit")
            raise SliceLimit(f"turn {turn_id} was taken up {record.slice} times; it has been ended", turn_id=turn_id)
        return turn

    def append_input(self, turn_id: str, *, message: Message, step: Step) -> None:
        """Add what came in for a parked turn: the chat record to the log, `step` behind the saved steps.

        `resume` then returns that step once, also when the same message arrives twice. A holder that parked the
        turn must resume it before it writes again.

        Raises:
            InvalidInput: no Message or no Step, a step of the model, or an answer to no open call; nothing was written.
            OversizedPayload: more than the limit of one save; nothing was written.
            TurnNotFound, TurnEnded: there is no such turn, or no longer.
            AlreadyRunning: it is not parked: its holder takes the message. Or it was parked because its holder fell
                silent, who may be back: resume it, and take the message there.
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again; a repeat is safe.
        """
        check_message(message, where="message")
        check_step(step, where="step")
        record, saved = self._records.read(check_turn_id(turn_id))
        if record.state != "parked" or record.reason == OWNER_LOST:
            raise_unless_parked(record)
        if message.message_id not in record.inputs:  # come again, it answers what is not open any more
            check_input(step, saved=saved, most_bytes=self._records.settings.save_bytes)
        if record.recorded:
            record_message(self._database, record.ledger, message=message, turn_id=turn_id)
        self._records.append_input(turn_id, message_id=message.message_id, steps=[encode_step(step)])

    def recover(self) -> int:
        """Commit the turns of this deployment that wait on this node's disk; how many were decided.

        May be repeated at will. What other deployments of this host have there stays as it is.

        Raises:
            StoreUnavailable, StoreBusy, StoreMisconfigured: the rest waits on.
            StoreRefused, CorruptData: a turn cannot be stored; names it.
        """
        self._check_revision()
        return self._services.direct.replay_spool()

    def read(self, turn_id: str) -> Snapshot:
        """The turn as it stands, at its own history version, whatever happened to the ledger since.

        Raises:
            TurnNotFound: there is no record.
        """
        record, steps = self._records.read(check_turn_id(turn_id))
        return Snapshot(record, tuple(decode_step(step) for step in steps))

    def abandon(self, turn_id: str) -> None:
        """End an unfinished turn that nobody holds, a blocked one included, so that its work key is free again.

        Whoever held it before is fenced off, in Redis and in Postgres. Where it is not known whether its reply arrived,
        that stays so.

        Raises:
            AlreadyRunning: its holder is alive.
            TurnNotFound, TurnEnded, AlreadyHandled: there is nothing to abandon.
            StaleTurn: another process took it over at the same time.
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again.
        """
        check_turn_id(turn_id)
        with bound_contextvars(turn_id=turn_id):
            owner = new_token()
            record, _ = self._records.claim(turn_id, owner=owner, purpose="end")
            crash_point("resume.claimed")
            self._end(replace(record, owner=owner))

    def _end(self, record: Record) -> None:
        claim = Claim(record.turn_id, record.owner, record.revision)
        try:
            end_in_postgres(self._database, record, still_held=lambda: all(self._records.renew([claim])))
        except TurnledgerError as error:
            let_go(self._records, self._database, claim=claim, record=record, error=error)
            raise
        crash_point("resume.fenced")
        self._records.end(
            claim, ledger=record.ledger, state="abandoned", fields={"code": ABANDONED_CODE}, operation=new_token()
        )
        log.info("turn_abandoned", **names(record.turn_id, record.ledger), blocked=record.blocked)

    @property
    def budgets(self) -> Budgets:
        """The token budgets of this deployment; an engine counts its own spending with `budgets.spend`."""
        return self._budgets

    def close(self) -> None:
        """Stop the lease thread and close the connections of this process.

        A turn that is still held lapses after its lease, for another process to resume; a completed one is on its way.
        """
        self._services.leases.close()
        self._records.redis.close()
        self._database.close()

    def _check_revision(self) -> None:
        """Once a process; a database that does not answer is asked again next time."""
        if self._checked_revision:
            return
        try:
            check_revision(self._database)
            self._checked_revision = True
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("revision_not_checked", reason=str(error))

    def _replay_spool(self) -> None:
        try:
            self._services.direct.replay_spool()
        except (TurnledgerError, OSError) as error:  # whatever is on the disk, a turn begins
            log.warning("spool_not_replayed", reason=str(error))

    def _begin(self, request: StartRequest, view: LedgerView) -> _Begun:
        if not request.recorded:
            return _Begun(unrecorded_fields(request, view))
        behind: StoreUnavailable | None = None
        try:
            return self._begin_recorded(request, view)
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("start_not_recorded", **names(request.turn_id, request.ledger), reason=str(error))
            if isinstance(error, StoreUnavailable) and error.is_read_only:
                behind = error  # what a standby says may be older than what was committed
        try:
            seen = look_only(self._database, request, view)
            block = block_of(self._database, view, seen)
        except (StoreUnavailable, StoreBusy) as error:
            log.error("history_not_read", **names(request.turn_id, request.ledger), reason=str(error))
            return _Begun(unwritten_fields(request, view, None, block=""), history_error=error)
        if request.turn_id in seen.runs:  # begun before, or just now: to go on with it takes a write that fences
            return self._begin_recorded(request, view)
        return _Begun(unwritten_fields(request, view, seen, block=block), history_error=behind)

    def _begin_recorded(self, request: StartRequest, view: LedgerView) -> _Begun:
        beginning = begin(self._database, request, view)
        block = block_of(self._database, view, beginning)
        return _Begun(recorded_fields(request, view, beginning, block=block), again=beginning.again)

    def _start_unsaved(self, request: StartRequest, error: CheckpointUnavailable) -> Turn:
        """Redis is away: the turn runs all the same, and is saved as soon as Redis is back."""
        log.warning("turn_unsaved", **names(request.turn_id, request.ledger), reason=str(error))
        view = LedgerView.unknown(now_ms=milliseconds(utc_now()))
        begun = self._begin(request, view)
        claim = Claim(request.turn_id, new_token(), FIRST_REVISION)
        return self._unsaved(request, begun, claim=claim, error=error)

    def _unsaved(self, request: StartRequest, begun: _Begun, *, claim: Claim, error: CheckpointUnavailable) -> Turn:
        fields, steps = begun.fields, tuple[str, ...]()
        if begun.again:
            epoch, steps = fence_first_try(self._database, request)
            fields = {**fields, "epoch": epoch, "covered": len(steps)}
        opening = Opening(request.ledger, fields)
        record = _new_record(claim, fields)
        turn = Turn(self._services, record=record, steps=steps, opening=opening, history_error=begun.history_error)
        turn.checkpoint_error = error
        return turn

    def _refuse_lost_history(self, turn_id: str) -> None:
        """Before anything is claimed: a turn that is blocked stays its holder's, who may still complete it."""
        record, _ = self._records.read(turn_id)
        if record.state not in UNFINISHED or not record.recorded:
            return
        self._check_revision()
        try:
            check_history(self._database, record)
        except TurnBlocked as error:
            self._records.block(turn_id, reason=error.reason)
            log.error("turn_blocked", **names(turn_id, record.ledger), reason=error.reason)
            raise

    def _take_over(self, record: Record, steps: Sequence[str], *, begins: bool = False) -> Turn:
        """Fence off, in Postgres, whoever held this turn before: in Redis the record is ours."""
        claim = Claim(record.turn_id, record.owner, record.revision)
        try:
            taken = take_over(
                self._database,
                record,
                saved_steps=len(steps),
                still_held=lambda: all(self._records.renew([claim])),
            )
        except TurnledgerError as error:
            if not (begins and error.retry):  # a start may be repeated, and finds the record untouched
                let_go(self._records, self._database, claim=claim, record=record, error=error)
            raise
        crash_point("resume.fenced")
        return self._taken_over(record, steps, claim=claim, taken=taken, begins=begins)

    def _taken_over(
        self, record: Record, steps: Sequence[str], *, claim: Claim, taken: TakeOver, begins: bool = False
    ) -> Turn:
        fields: Fields = {"epoch": taken.epoch, "cursor": taken.cursor.encode(), "covered": taken.covered}
        if begins:
            fields = {**fields, "untouched": claim.revision + 1}
        if taken.cursor.history_version != record.cursor.history_version:
            fields = {**fields, "bootstrap": "", "replaced_by": ""}
            record = replace(record, bootstrap=None, replaced_by=None)
        claim = self._records.save(claim, fields=fields, steps=taken.forgotten)
        followed = replace(
            record, epoch=taken.epoch, cursor=taken.cursor, covered=taken.covered, revision=claim.revision
        )
        turn = Turn(self._services, record=followed, steps=[*steps, *taken.forgotten])
        if record.reason == AUTHORIZATION:
            turn.note_authorization("completed")
        return turn

    def _started_before(self, request: StartRequest) -> Turn:
        record, steps = self._records.read(request.turn_id)
        if not _is_of(request, record):
            raise InvalidInput(f"turn_id {request.turn_id!r} belongs to another run; every run needs an id of its own")
        if record.state in ("failed", "abandoned"):
            raise turn_ended(record.turn_id, state=record.state)
        if record.state not in UNFINISHED:
            raise done_before(record.turn_id, entry_id=record.entry_id, failure=record.failure)
        if steps or record.revision != record.untouched:
            raise already_running(record.turn_id, state=record.state, owner=record.owner)
        return self._begin_again(record, postgres_answers=record.recorded and self._refuse_done_without_redis(request))

    def _refuse_done_without_redis(self, request: StartRequest) -> bool:
        """A node that was cut off from Redis may have committed a run that looks untouched there. False: unknown."""
        try:
            refuse_done(self._database, request)
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("repeated_start_not_checked", **names(request.turn_id, request.ledger), reason=str(error))
            return False
        return True

    def _begin_again(self, record: Record, *, postgres_answers: bool) -> Turn:
        """The turn under an owner and an epoch of its own: whoever began it before may be about to write."""
        held, owner, epoch = Claim(record.turn_id, record.owner, record.revision), new_token(), record.epoch + 1
        fields: Fields = {"owner": owner, "epoch": epoch, "untouched": record.revision + 1}
        try:
            revision = self._records.save(held, fields=fields).revision
        except (StaleTurn, TurnNotFound) as error:
            raise _begun_elsewhere(record.turn_id) from error
        crash_point("start.opened")
        record = replace(record, owner=owner, revision=revision, epoch=epoch)
        return self._fence_first_start(record) if postgres_answers else Turn(self._services, record=record)

    def _open(self, request: StartRequest, begun: _Begun, view: LedgerView) -> Turn:
        claim, fields = Claim(request.turn_id, new_token(), FIRST_REVISION), begun.fields
        try:
            completions = self._records.open(claim, ledger=request.ledger, work_key=request.work_key, fields=fields)
        except AlreadyRunning as error:
            if request.recorded and not begun.again and error.turn_id != request.turn_id:
                withdraw(self._database, request, view)
            raise
        except CheckpointUnavailable as error:
            return self._unsaved(request, begun, claim=claim, error=error)
        crash_point("start.opened")
        record = _new_record(claim, fields)
        if begun.again:
            turn = self._fence_first_start(record)
        else:
            turn = Turn(self._services, record=record, history_error=begun.history_error)
        if request.work_key and completions != view.completions:
            self._refuse_overtaken(request, turn)
        return turn

    def _fence_first_start(self, record: Record) -> Turn:
        try:
            return self._take_over(record, [], begins=True)
        except (StaleTurn, TurnNotFound) as error:
            raise _begun_elsewhere(record.turn_id) from error

    def _refuse_overtaken(self, request: StartRequest, turn: Turn) -> None:
        """A turn of the ledger completed while this one started: if it did the same work, this one ends."""
        try:
            refuse_known_work(request, self._records.look(request.ledger, turn_id=request.turn_id))
            if not request.recorded:
                return
            refuse_done(self._database, request)
        except AlreadyHandled:
            turn.abandon()
            raise


def _new_record(claim: Claim, fields: Fields) -> Record:
    owned = {**fields, "owner": claim.owner, "revision": claim.revision}
    return decode_record(claim.turn_id, {name: str(value) for name, value in owned.items()})


def _begun_elsewhere(turn_id: str) -> CheckpointUnavailable:
    return CheckpointUnavailable(f"turn {turn_id} began elsewhere meanwhile, or Redis lost its record; start it again")


def _is_of(request: StartRequest, record: Record) -> bool:
    """Whether a start with this request made the record; messages that came in later are on it too."""
    asked = (request.ledger, request.work_key, request.triggered_by)
    known = (record.ledger, record.work_key, record.triggered_by)
    return asked == known and {message.message_id for message in request.messages} <= set(record.message_ids)
