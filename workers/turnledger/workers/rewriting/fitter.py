"""The job of one turn: accounts in place of its over-long pieces, or names, and then its commit is queued.

Nothing here holds a transaction. Whatever goes wrong, a piece has a name; whatever becomes of the process, the turn is
committed once its time is up.
"""

import random
import time
from collections.abc import Callable

from structlog.contextvars import bound_contextvars

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.fittings import Fittings, Unfitted
from turnledger.checkpoint.naming import names
from turnledger.checkpoint.records import Records
from turnledger.store.crash_points import crash_point
from turnledger.store.entry import decode_entry, encode_entry
from turnledger.store.fitting import (
    ACCOUNT_BYTES,
    PieceKind,
    condensed,
    name_payload,
    with_stand_ins,
)
from turnledger.store.logs import get_logger
from turnledger.workers.backoff import pauses
from turnledger.workers.errors import RewritingPostponed
from turnledger.workers.rewriting.asking import Asking, RewriterFor, asking_for
from turnledger.workers.rewriting.time_left import TimeLeft
from turnledger.workers.settings import WorkerSettings

log = get_logger(__name__)

ASKING_SHARE = 0.9  # of a turn's time; the rest is for storing what came of it
QUESTIONS: dict[PieceKind, str] = {
    "argument": "what does this argument of a tool call say, and what is it for?",
    "error": "what went wrong, and what does the error say to do about it?",
}


class Fitter:
    """Fits turns of one Redis; one per process. Without a rewriter every piece has a name."""

    def __init__(
        self,
        *,
        records: Records,
        rewriter: RewriterFor | None,
        within_s: float,
        settings: WorkerSettings,
        stopped: Callable[[], bool],
    ) -> None:
        self._fittings = Fittings(records)
        self._budgets = Budgets(records)
        self._rewriter = rewriter
        self._within_s = within_s
        self._settings = settings
        self._stopped = stopped

    def fit(self, turn_id: str) -> None:
        """Return once the turn's commit is queued, or the turn needs nothing from us any more.

        Raises:
            RewritingPostponed: this process is to stop; another one may go on.
            CheckpointUnavailable: Redis did not take the result in time; once the turn's own time is up, it has names.
        """
        began = self._fittings.begin(turn_id, within_s=self._within_s)
        crash_point("fit.begun")
        if began is not None:
            with bound_contextvars(**names(turn_id, began.ledger)):
                self._fit(turn_id, began)

    def _fit(self, turn_id: str, began: Unfitted) -> None:
        left = TimeLeft(began.left_s * ASKING_SHARE, stopped=self._stopped)
        with asking_for(began.ledger.agent, rewriter=self._rewriter, budgets=self._budgets, left=left) as asking:
            pieces = _Pieces(asking)
            entry = self._fitted(turn_id, began, pieces=pieces)
        crash_point("fit.rewritten")
        if left.was_stopped and pieces.named:
            raise RewritingPostponed(f"the rewriting of turn {turn_id} goes back to its queue: this worker stops")
        self._end(turn_id, entry)
        crash_point("fit.stored")
        log.info(
            "turn_rewritten",
            **names(turn_id, began.ledger),
            condensed=pieces.condensed,
            named=pieces.named,
            tokens=pieces.asking.tokens,
        )

    def _fitted(self, turn_id: str, began: Unfitted, *, pieces: "_Pieces") -> str:
        """The fitted entry; '' where it cannot be made, and the commit deals with the entry as it is."""
        try:
            entry = decode_entry(began.entry, ordinal=None)
            return encode_entry(with_stand_ins(entry, stand_in=pieces.stand_in))
        except Exception as error:  # noqa: BLE001  # whatever is wrong with it, the commit has to see it
            log.error("entry_not_rewritten", turn_id=turn_id, error=type(error).__name__)
            return ""

    def _end(self, turn_id: str, entry: str) -> None:
        deadline = time.monotonic() + self._settings.transient_wait_s
        waits = pauses(
            first_s=self._settings.first_pause_s,
            longest_s=self._settings.longest_pause_s,
            random_source=random.Random(),  # noqa: S311  # spreads retries, hides nothing
        )
        while True:
            try:
                self._fittings.end(turn_id, fitted="done" if entry else "names", entry=entry)
            except CheckpointUnavailable as error:
                pause_s = next(waits)
                if time.monotonic() + pause_s > deadline or self._stopped():
                    raise
                log.warning("fitting_waits", turn_id=turn_id, pause_s=round(pause_s, 2), reason=str(error))
                time.sleep(pause_s)
            else:
                return


class _Pieces:
    """What stands for the pieces of one turn, and how many of either kind."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.condensed = 0
        self.named = 0

    def stand_in(self, text: str, kind: PieceKind) -> str:
        """An account of the piece, or its name."""
        account = condensed(self.asking.account(text, question=QUESTIONS[kind], budget_bytes=ACCOUNT_BYTES))
        if account is None:
            self.named += 1
            return name_payload(text)
        self.condensed += 1
        return account
