"""The Redis half of a turn that a process holds: its right to write, and the write that may be on its way."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from turnledger.checkpoint.completion import Draft
from turnledger.checkpoint.errors import AlreadyRunning, StaleTurn
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.record import UNFINISHED
from turnledger.checkpoint.records import Claim, Fields, Lease, Records, new_token
from turnledger.store import LedgerName
from turnledger.store.crash_points import crash_point
from turnledger.store.logs import get_logger

log = get_logger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Opening:
    """A record that could not be made at the start, because Redis was away; the next write makes it."""

    ledger: LedgerName
    fields: Fields


class _Write(NamedTuple):
    """A save that was sent; kept until its answer is known, so that a repeat is the same operation.

    It brings the turn's `steps` up to `end`, as far as Redis does not have them.
    """

    operation: str
    fields: Fields
    steps: Sequence[str]
    end: int
    lease: Lease


class Session:
    """Writes a turn's record under one claim. A call whose answer was lost is settled before the next one.

    Where Redis itself went back behind what it had acknowledged, in a failover or a restart, and nobody has taken the
    turn over in what it has now, the next call brings again what it lost.

    `began_unseen`: Redis was away at the start, so that other runs of the work key did not see this one.
    """

    def __init__(
        self,
        records: Records,
        *,
        claim: Claim,
        sent: int,
        refuse_if_taken_over: Callable[[], None] | None,
        opening: Opening | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refuse_if_taken_over` asks the other store where Redis has lost what it knew, and raises StaleTurn.

        None: that store knows nothing of the turn.
        """
        self._records = records
        self._refuse_if_taken_over = refuse_if_taken_over
        self._claim = claim
        self._sent = sent
        self._opening = opening
        self.began_unseen = opening is not None
        self._clock = clock
        self._uncertain: _Write | None = None
        self._ending = new_token()
        self._owned_until = clock() + records.settings.lease_s

    @property
    def claim(self) -> Claim:
        """The claim, at the revision written last."""
        return self._claim

    def renewed(self, asked_at: float) -> None:
        """The lease was renewed by a call made at this time of `time.monotonic`."""
        self._owned_until = asked_at + self._records.settings.lease_s

    def owns_surely(self) -> bool:
        """Whether nobody can have taken the turn over, by this node's own clock, less a margin."""
        return self._clock() < self._owned_until - self._records.settings.lease_margin_s

    def save(self, wire_steps: Sequence[str], *, fields: Fields, lease: Lease = "keep") -> None:
        """Send the steps that are new, and the fields.

        Raises:
            CheckpointUnavailable: it may or may not have been done; the next call settles it.
            StaleTurn, TurnEnded, TurnNotFound: nothing was written.
        """
        gave_up = self._uncertain is not None and self._uncertain.lease == "give up"
        self._settle()
        if lease == "give up":
            self._owned_until = 0.0  # from here on others may have it, whether or not the answer comes
        elif gave_up:  # its holder was told that the turn is not parked, and goes on
            fields = {"state": "running", "reason": "", **fields}
        self._uncertain = _Write(new_token(), fields, wire_steps, len(wire_steps), lease)
        self._settle()

    def come_into_sight(self) -> None:
        """Make the record that could not be made at the start, if there is none yet. Raises as `save`."""
        self._settle()

    def complete(self, wire_steps: Sequence[str], *, ledger: LedgerName, work_key: str, draft: Draft) -> str:
        """Complete the turn and queue it; '' or the run that was first. Raises as `Records.complete`."""
        self._settle()
        first = self._once_more_if_redis_went_back(
            lambda: self._records.complete(
                self._claim,
                ledger=ledger,
                work_key=work_key,
                digest=draft.digest,
                fields=draft.fields,
                steps=wire_steps[self._sent :],
                operation=self._ending,
            ),
            held=wire_steps,
        )
        crash_point("complete.sent")
        return first

    def end(self, *, ledger: LedgerName, state: str, fields: Fields) -> int:
        """End the turn without the queue; when, in milliseconds by Redis. Raises as `Records.end`."""
        self._settle()
        operation = f"{self._ending}-{state}"
        ended_at_ms = self._once_more_if_redis_went_back(
            lambda: self._records.end(self._claim, ledger=ledger, state=state, fields=fields, operation=operation),
            held=None,
        )
        crash_point("end.sent")
        return ended_at_ms

    def _settle(self) -> None:
        self._open()
        write = self._uncertain
        if write is None:
            return
        asked_at = self._clock()
        self._claim = self._once_more_if_redis_went_back(
            lambda: self._records.save(
                self._claim,
                fields=write.fields,
                steps=write.steps[self._sent : write.end],
                lease=write.lease,
                operation=write.operation,
            ),
            held=write.steps,
        )
        crash_point("save.sent")
        if write.lease == "keep":
            self.renewed(asked_at)
        self._sent = max(self._sent, write.end)
        self._uncertain = None

    def _once_more_if_redis_went_back(self, write: Callable[[], Answer], *, held: Sequence[str] | None) -> Answer:
        """`held` are the steps of the turn as its holder has them; None: this write does not rest on them."""
        try:
            return write()
        except StaleTurn:
            if not self._goes_on_from_what_is_there(held):
                raise
            return write()

    def _goes_on_from_what_is_there(self, held: Sequence[str] | None) -> bool:
        """Whether the record is still this owner's and has lost writes of it; then those are to be sent again."""
        turn_id = self._claim.turn_id
        record, steps = self._records.read(turn_id)
        lost = self._claim.revision - record.revision
        if record.owner != self._claim.owner or record.state not in UNFINISHED or lost <= 0:
            return False
        if held is not None and list(steps) != list(held[: len(steps)]):  # somebody brought it a message meanwhile
            return False
        if self._refuse_if_taken_over is not None:
            self._refuse_if_taken_over()
        log.warning("redis_went_back", **job_names(turn_id, record.ledger), writes=lost, steps=self._sent - len(steps))
        self._claim = Claim(turn_id, record.owner, record.revision)
        self._sent = len(steps)
        return True

    def _open(self) -> None:
        if self._opening is None:
            return
        opening = self._opening
        try:
            # Under no work key: another run of it may have begun meanwhile, and the first to complete stands.
            self._records.open(self._claim, ledger=opening.ledger, work_key="", fields=opening.fields)
        except AlreadyRunning as error:
            turn_id = self._claim.turn_id
            raise StaleTurn(f"turn {turn_id} was started again elsewhere", turn_id=turn_id) from error
        self._opening = None
