"""One daemon thread a process that keeps the leases of its running turns and watches its completed ones."""

import os
import threading
import time
from typing import Protocol
from weakref import WeakSet

from turnledger.checkpoint.errors import CheckpointMisconfigured, CheckpointUnavailable, NotPersisted
from turnledger.checkpoint.naming import job_names
from turnledger.checkpoint.records import Claim, Records
from turnledger.store import LedgerName, TurnledgerError
from turnledger.store.logs import get_logger

log = get_logger(__name__)

_REDIS_TROUBLE = (CheckpointUnavailable, CheckpointMisconfigured)
_ON_ITS_WAY = ("completed", "rejected")


class Held(Protocol):
    """A turn that this process holds."""

    @property
    def turn_id(self) -> str:
        """Its id."""
        ...

    @property
    def ledger(self) -> LedgerName:
        """Whose history of which conversation it belongs to."""
        ...

    @property
    def claim(self) -> Claim:
        """The claim to renew."""
        ...

    def lease_renewed(self, asked_at: float) -> None:
        """Told when the lease was renewed, by a call made at this time of `time.monotonic`."""
        ...

    def lease_lost(self) -> None:
        """Told when the record is no longer this claim's."""
        ...

    def submit_again(self) -> None:
        """Told when its completion is lost."""
        ...


class LeaseKeeper:
    """Does a round every `renew_s`. A running turn that its holder dropped is forgotten by itself.

    A completed turn is remembered until it is seen committed: should Redis lose what it had acknowledged, in a
    failover or a restart, it is submitted again; also when Redis has a completion by its former holder instead.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._running: WeakSet[Held] = WeakSet()
        self._completed: dict[str, Held] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._process_id = 0
        self.redis_is_crowded = False

    def keep(self, turn: Held) -> None:
        """Renew this turn's lease from now on."""
        with self._lock:
            self._running.add(turn)
            self._ensure_thread()

    def release(self, turn: Held) -> None:
        """Stop renewing this turn's lease."""
        with self._lock:
            self._running.discard(turn)

    def confirm(self, turn: Held) -> None:
        """Watch this completed turn until it is committed; the oldest is forgotten when there are too many."""
        with self._lock:
            self._completed[turn.turn_id] = turn
            if len(self._completed) > self._records.settings.unconfirmed_turns:
                del self._completed[next(iter(self._completed))]

    def close(self) -> None:
        """End the thread; a turn that is kept later begins another."""
        with self._lock:
            self._stopped.set()
            self._process_id = 0

    def round(self) -> None:
        """Renew every lease, look at every completed turn, and see how full Redis is."""
        try:
            self._renew_all()
            self._confirm_all()
            share = self._records.memory_share()
            self.redis_is_crowded = share > self._records.settings.redis_memory_share
        except _REDIS_TROUBLE as error:
            if held := self._held_ids():
                log.warning("leases_not_renewed", turn_ids=held, reason=str(error))

    def _held_ids(self) -> list[str]:
        """The turns that a round is for, running and completed."""
        with self._lock:
            return sorted({turn.turn_id for turn in self._running} | self._completed.keys())

    def _renew_all(self) -> None:
        with self._lock:
            turns = list(self._running)
        if not turns:
            return
        asked_at = time.monotonic()
        renewed = self._records.renew([turn.claim for turn in turns])
        for turn, kept in zip(turns, renewed, strict=True):
            if kept:
                turn.lease_renewed(asked_at)
            else:
                self.release(turn)
                turn.lease_lost()

    def _confirm_all(self) -> None:
        with self._lock:
            turns = list(self._completed.values())
        found = self._records.states_and_owners([turn.turn_id for turn in turns]) if turns else []
        for turn, (state, owner) in zip(turns, found, strict=True):
            if state in _ON_ITS_WAY and owner == turn.claim.owner:
                continue
            if state == "committed" or self._submitted_again(turn):
                with self._lock:
                    self._completed.pop(turn.turn_id, None)

    def _submitted_again(self, turn: Held) -> bool:
        """Whether there is nothing left to do: it is committed, or somebody else has taken it over."""
        try:
            turn.submit_again()
        except TurnledgerError as error:
            log.warning("turn_not_submitted_again", **job_names(turn.turn_id, turn.ledger), reason=str(error))
            return not (error.retry or isinstance(error, NotPersisted))
        return True

    def _ensure_thread(self) -> None:
        if self._process_id == os.getpid():
            return
        self._process_id = os.getpid()
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._stopped,), name="turnledger-leases", daemon=True)
        thread.start()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._records.settings.renew_s):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001  # all leases hang on this thread, and nobody would see it end
                log.error("lease_round_failed", turn_ids=self._held_ids(), error=type(error).__name__)
