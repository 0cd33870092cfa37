"""How a completed turn leaves its node: through the queue, or directly into Postgres, or onto the disk."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from turnledger.checkpoint.completion import Account, Draft, draft_completion
from turnledger.checkpoint.direct import DirectCommit, DirectCommits
from turnledger.checkpoint.errors import (
    CheckpointMisconfigured,
    CheckpointUnavailable,
    QueueFull,
    StaleTurn,
    TurnEnded,
    TurnNotFound,
)
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.loading import fitted_entry
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.record import Record
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.session import Session
from turnledger.checkpoint.turn_steps import byte_size
from turnledger.store import Database, Step, StoreBusy, StoreUnavailable, TurnledgerError
from turnledger.store.commit import CompletedTurn
from turnledger.store.entry import MAX_ENTRY_BYTES
from turnledger.store.events import AT_COMPLETION, decode_rows
from turnledger.store.ledger import Answered, find_answered, read_head
from turnledger.store.logs import get_logger

log = get_logger(__name__)

SPOOLED = "spooled"  # the mark of a turn whose completion waits on its node's disk, though Redis is there
NOT_QUEUED = (CheckpointUnavailable, CheckpointMisconfigured, TurnNotFound, QueueFull)


@dataclass(frozen=True, slots=True)
class Services:
    """What every turn of a process shares."""

    records: Records
    database: Database
    leases: LeaseKeeper
    direct: DirectCommits


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of `complete`. `duplicate`: another run had completed the work key; the ids are that run's."""

    turn_id: str
    entry_id: str
    duplicate: bool = False


class Submitted(NamedTuple):
    """The answer, the file that holds the turn if no store took it, and whether Redis has yet to see it committed."""

    completion: Completion
    spooled: Path | None
    queued: bool


class Submission:
    """One completion of one turn, drafted; it can be sent any number of times."""

    def __init__(
        self,
        services: Services,
        *,
        record: Record,
        session: Session,
        account: Account,
        steps: Sequence[Step],
        held: Sequence[str],
        new: Sequence[str],
    ) -> None:
        """The `steps` in wire form are those the turn holds and those that join it with its completion.

        Raises InvalidInput when a field of the account is refused.
        """
        self._services = services
        self._record = record
        self._session = session
        self._held = tuple(held)
        self._wire = (*self._held, *new)
        rewriting = services.records.settings.rewriting
        self._draft = _draft(account, record=record, steps=steps, wire=self._wire, rewriting=rewriting)

    def send(self) -> Submitted:
        """Queue the turn; where Redis does not take it, commit it directly, or put it on disk.

        An entry of more than 64 MiB is put on disk at once, for the next start or `recover`.

        Raises:
            CompletionConflict, StaleTurn, TurnEnded: nothing was written.
            NotPersisted: no store and no disk took it.
        """
        if not self._record.recorded:
            return self._end_unrecorded()
        if (size := int(self._draft.fields["entry_bytes"])) > MAX_ENTRY_BYTES:
            log.error("entry_too_large_for_redis", **self._names, bytes=size, most=MAX_ENTRY_BYTES)
            self._block_resumes()
            return self.commit_directly(owned=False)
        if self._services.leases.redis_is_crowded:
            return self._go_past_a_full_queue()
        try:
            return self._queue()
        except NOT_QUEUED as error:
            log.warning("turn_not_queued", **self._names, reason=str(error))
            if isinstance(error, QueueFull):
                return self._go_past_a_full_queue()
            return self.commit_directly(owned=self._session.owns_surely())

    def _go_past_a_full_queue(self) -> Submitted:
        submitted = self.commit_directly(owned=self._session.owns_surely())
        if submitted.spooled is not None:
            with suppress(StaleTurn, TurnEnded):  # what is on the disk is then refused by its epoch
                self._block_resumes()
        return submitted

    def _block_resumes(self) -> None:
        """Nobody takes up again what waits on the disk. Raises StaleTurn or TurnEnded when somebody has.

        The steps that join the turn with its completion are not saved with it: another completion may take its place.
        """
        try:
            self._session.save(self._held, fields={"blocked": SPOOLED})
        except NOT_QUEUED as error:
            log.warning("resumes_not_blocked", **self._names, reason=str(error))

    def commit_directly(self, *, owned: bool) -> Submitted:
        """Go past the queue. Raises as `DirectCommits.take`."""
        pending = self._record.cursor.pending
        taken = self._services.direct.take(self._completed_turn(), built_on=pending, owned=owned)
        if taken.spooled is None:
            self._finish_record(taken)
        return Submitted(self._answer(taken.first, taken.first_entry_id), taken.spooled, queued=False)

    @property
    def _names(self) -> dict[str, str]:
        return job_names(self._record.turn_id, self._record.ledger)

    def _queue(self) -> Submitted:
        record = self._record
        answers = "" if self._draft.fields["failure"] else record.work_key  # a failure leaves its work to other runs
        earlier = self._committed_before() if self._session.began_unseen else None
        first = self._session.complete(self._wire, ledger=record.ledger, work_key=answers, draft=self._draft)
        turn_id, _, entry_id = first.partition(" ")
        if earlier is not None:
            turn_id, entry_id = earlier.turn_id, earlier.entry_id or ""
        return Submitted(self._answer(turn_id, entry_id), None, queued=True)

    def _committed_before(self) -> Answered | None:
        """The run of the work key that was history before Redis knew of this one, as far as Postgres can say now.

        Whatever completes once Redis does know of this run marks it there.
        """
        record = self._record
        self._session.come_into_sight()
        try:
            with self._services.database.transaction() as connection:
                head = read_head(connection, record.ledger)
                wanted = [] if head is None else [(head.ledger_id, record.work_key)]
                found = list(find_answered(connection, wanted).values())
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("first_run_not_sought", **self._names, reason=str(error))
            return None
        return next((first for first in found if first.turn_id != record.turn_id), None)

    def _end_unrecorded(self) -> Submitted:
        try:
            self._session.end(ledger=self._record.ledger, state="committed", fields={"outcome": "not recorded"})
        except NOT_QUEUED as error:
            log.warning("unrecorded_turn_not_ended", **self._names, reason=str(error))
        return Submitted(self._answer(None, None), None, queued=False)

    def _answer(self, first_turn_id: str | None, entry_id: str | None) -> Completion:
        if first_turn_id:
            return Completion(first_turn_id, entry_id or "", duplicate=True)
        return Completion(self._record.turn_id, self._record.entry_id)

    def _completed_turn(self) -> CompletedTurn:
        fields, record = self._draft.fields, self._record
        return CompletedTurn(
            turn_id=record.turn_id,
            ledger=record.ledger,
            work_key=record.work_key,
            epoch=record.epoch,
            started_at=record.started_at,
            completed_at=AT_COMPLETION,
            entry_id=record.entry_id,
            entry=fitted_entry(str(fields["entry"]), fitting=str(fields["fitting"])),
            decision=str(fields["decision"]) or None,
            failure=str(fields["failure"]) or None,
            steps=self._wire[: int(fields["kept_steps"])],
            before=record.before,
            events=decode_rows(str(fields["events"])),
            unannounced=record.cursor.ledger_id is None,
        )

    def _finish_record(self, taken: DirectCommit) -> None:
        """Redis may be there, and only full: then nobody need find out later that this turn is history."""
        outcome = "duplicate" if taken.first else "completed"
        fields = {"outcome": outcome, "first": taken.first or "", "failure": self._draft.fields["failure"]}
        try:
            self._session.end(ledger=self._record.ledger, state="committed", fields=fields)
        except TurnledgerError as error:
            log.info("record_not_finished", **self._names, reason=str(error))


def _draft(
    account: Account, *, record: Record, steps: Sequence[Step], wire: Sequence[str], rewriting: Literal["off", "on"]
) -> Draft:
    draft = draft_completion(
        account,
        turn_id=record.turn_id,
        entry_id=record.entry_id,
        triggered_by=record.triggered_by,
        message_ids=record.message_ids,
        steps=steps,
        rewriting=rewriting,
    )
    size = sum(map(byte_size, wire)) + int(draft.fields["entry_bytes"])
    # the epoch again: a record whose making was never answered may still name the one before
    return Draft({**draft.fields, "bytes": size, "epoch": record.epoch}, draft.digest)
