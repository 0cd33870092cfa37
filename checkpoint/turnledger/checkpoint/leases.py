"""One daemon thread a process that keeps the leases of its running turns."""

import os
import threading
from typing import Protocol
from weakref import WeakSet

import structlog

from turnledger.checkpoint.errors import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.records import Claim, Records

log = structlog.get_logger(__name__)


class Leased(Protocol):
    """A turn whose lease can be kept."""

    @property
    def claim(self) -> Claim:
        """The claim to renew."""
        ...

    def lease_lost(self) -> None:
        """Told when the record is no longer this claim's."""
        ...


class LeaseKeeper:
    """Renews every `renew_s`; a turn that its holder dropped is forgotten by itself."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._turns: WeakSet[Leased] = WeakSet()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._process_id = 0

    def keep(self, turn: Leased) -> None:
        """Renew this turn's lease from now on."""
        with self._lock:
            self._turns.add(turn)
            if self._process_id != os.getpid():
                self._start()

    def release(self, turn: Leased) -> None:
        """Stop renewing this turn's lease."""
        with self._lock:
            self._turns.discard(turn)

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()

    def renew_all(self) -> None:
        """One round for every kept turn; a turn that is lost is told so."""
        with self._lock:
            turns = list(self._turns)
        if not turns:
            return
        try:
            renewed = self._records.renew([turn.claim for turn in turns])
        except (CheckpointUnavailable, CheckpointMisconfigured) as error:
            log.warning("leases_not_renewed", turns=len(turns), reason=str(error))
            return
        for turn, kept in zip(turns, renewed, strict=True):
            if not kept:
                self.release(turn)
                turn.lease_lost()

    def _start(self) -> None:
        self._process_id = os.getpid()
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._stopped,), name="turnledger-leases", daemon=True)
        thread.start()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._records.settings.renew_s):
            self.renew_all()
