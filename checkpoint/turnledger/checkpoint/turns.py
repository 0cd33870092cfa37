"""What an engine node talks to: start a turn, resume one, look at one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from turnledger.checkpoint.errors import AlreadyHandled, AlreadyRunning
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.record import UNFINISHED, LedgerView, Record, decode_record
from turnledger.checkpoint.records import Claim, Records, already_handled, already_running, new_token, turn_ended
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.checkpoint.starting import (
    FIRST_REVISION,
    Fields,
    StartRequest,
    begin,
    checked_request,
    recorded_fields,
    refuse_answered,
    refuse_known_work,
    unrecorded_fields,
    withdraw,
)
from turnledger.checkpoint.taking_over import let_go, take_over
from turnledger.checkpoint.turn import Turn
from turnledger.store import (
    Database,
    InvalidInput,
    Message,
    Step,
    StoreSettings,
    TurnledgerError,
    check_revision,
    read_settings,
)
from turnledger.store.crash_points import crash_point
from turnledger.store.identity import check_turn_id
from turnledger.store.steps import decode_step


class Snapshot(NamedTuple):
    """A turn as it stood at one moment; nothing can be written through it."""

    record: Record
    steps: tuple[Step, ...]


class Turns:
    """The turns of one Redis and one Postgres. Thread-safe; nothing connects before the first call."""

    def __init__(self, *, records: Records, database: Database) -> None:
        self._records = records
        self._database = database
        self._leases = LeaseKeeper(records)
        self._checked_revision = False

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
        )
        self._check_revision()
        view = self._records.look(request.ledger, turn_id=request.turn_id)
        if view.own_state is not None:
            return self._started_before(request)
        refuse_known_work(request, view)
        if not request.ledger.recorded:
            return self._open(request, unrecorded_fields(request, view), view)
        beginning = begin(self._database, request, view)
        crash_point("start.recorded")
        fields = recorded_fields(request, view, beginning, settings=self._database.settings)
        return self._open(request, fields, view)

    def resume(self, turn_id: str) -> Turn:
        """Take over a parked turn, or one whose holder fell silent, with its steps byte for byte as saved.

        Whoever held it before is fenced off, in Redis and in Postgres.

        Raises:
            TurnNotFound, TurnEnded: there is nothing to resume.
            AlreadyHandled: its work is completed, by this run or another of its work key.
            AlreadyRunning: its holder is alive; names owner and state.
            TurnBlocked: its history was replaced meanwhile.
            StoreUnavailable, StoreBusy, CheckpointUnavailable: try again.
        """
        self._check_revision()
        owner = new_token()
        record, steps = self._records.claim(check_turn_id(turn_id), owner=owner)
        crash_point("resume.claimed")
        claim = Claim(turn_id, owner, record.revision)
        try:
            epoch = take_over(self._database, record)
        except TurnledgerError as error:
            let_go(self._records, self._database, claim=claim, record=record, error=error)
            raise
        crash_point("resume.fenced")
        claim = self._records.save(claim, fields={"epoch": epoch})
        # Not read again: by then it might be another's, and this handle would write under that owner's token.
        return self._turn(replace(record, epoch=epoch, revision=claim.revision), steps)

    def read(self, turn_id: str) -> Snapshot:
        """The turn as it stands, at its own history version, whatever happened to the ledger since.

        Raises:
            TurnNotFound: there is no record.
        """
        record, steps = self._records.read(check_turn_id(turn_id))
        return Snapshot(record, tuple(decode_step(step) for step in steps))

    def abandon(self, turn_id: str) -> None:
        """End an unfinished turn that nobody holds, so that its work key is free again.

        Raises:
            AlreadyRunning: its holder is alive.
            TurnNotFound, TurnEnded, AlreadyHandled: there is nothing to abandon.
        """
        self.resume(turn_id).abandon()

    def close(self) -> None:
        """Stop the lease thread and close the connections of this process."""
        self._leases.close()
        self._records.redis.close()
        self._database.close()

    def _check_revision(self) -> None:
        if not self._checked_revision:
            check_revision(self._database)
            self._checked_revision = True

    def _turn(self, record: Record, steps: Sequence[str]) -> Turn:
        return Turn(records=self._records, database=self._database, leases=self._leases, record=record, steps=steps)

    def _started_before(self, request: StartRequest) -> Turn:
        record, steps = self._records.read(request.turn_id)
        if (record.ledger, record.work_key) != (request.ledger, request.work_key):
            raise InvalidInput(f"turn_id {request.turn_id!r} belongs to another run; every run needs an id of its own")
        if record.state in ("failed", "abandoned"):
            raise turn_ended(record.turn_id, state=record.state)
        if record.state not in UNFINISHED:
            raise already_handled(record.turn_id, entry_id=record.entry_id)
        if record.revision > FIRST_REVISION:
            raise already_running(record.turn_id, state=record.state, owner=record.owner)
        return self._turn(record, steps)

    def _open(self, request: StartRequest, fields: Fields, view: LedgerView) -> Turn:
        claim = Claim(request.turn_id, new_token(), FIRST_REVISION)
        try:
            completions = self._records.open(claim, ledger=request.ledger, work_key=request.work_key, fields=fields)
        except AlreadyRunning as error:
            if request.ledger.recorded and error.turn_id != request.turn_id:
                withdraw(self._database, request, view)
            raise
        crash_point("start.opened")
        turn = self._new_turn(claim, fields)
        if request.work_key and completions != view.completions:
            self._refuse_overtaken(request, turn)
        return turn

    def _new_turn(self, claim: Claim, fields: Fields) -> Turn:
        owned = {**fields, "owner": claim.owner, "revision": claim.revision}
        record = decode_record(claim.turn_id, {name: str(value) for name, value in owned.items()})
        return Turn(records=self._records, database=self._database, leases=self._leases, record=record)

    def _refuse_overtaken(self, request: StartRequest, turn: Turn) -> None:
        """A turn of the ledger completed while this one started: if it did the same work, this one ends."""
        try:
            refuse_known_work(request, self._records.look(request.ledger, turn_id=request.turn_id))
            refuse_answered(self._database, request)
        except AlreadyHandled:
            turn.abandon()
            raise
