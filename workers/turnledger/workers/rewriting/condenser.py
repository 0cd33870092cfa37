"""The account of a ledger's older entries, written after a commit: the next start finds it, and asks no model."""

from collections.abc import Callable
from typing import Literal

from sqlalchemy import Connection

from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.earlier import earlier_layout
from turnledger.checkpoint.records import Records
from turnledger.store import Database, LedgerName
from turnledger.store.accounts import find_account, save_account
from turnledger.store.block import SEPARATOR, Account, Layout, account_fits, account_text_bytes, render_entry
from turnledger.store.ledger import Beginning, Head, read_head, recent_entries
from turnledger.store.logs import get_logger
from turnledger.workers.rewriting.asking import Asking, RewriterFor, asking_for
from turnledger.workers.rewriting.time_left import TimeLeft

log = get_logger(__name__)

QUESTION = (
    "what happened in these {turns} turns: who asked for what, what was done and how it ended, what was replied, "
    "and what is still open?"
)
MOST_ROUNDS = 3  # entries may be committed while the model writes; whoever commits later asks anew

Condensed = Literal["written", "current", "not needed", "unavailable"]


class Condenser:
    """Writes accounts for the ledgers of one Postgres; one per process."""

    def __init__(
        self,
        *,
        database: Database,
        records: Records,
        rewriter: RewriterFor | None,
        within_s: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._database = database
        self._budgets = Budgets(records)
        self._rewriter = rewriter
        self._within_s = within_s
        self._stopped = stopped

    def condense(self, ledger: LedgerName) -> Condensed:
        """Have the account that the next start needs, if it needs one and none is there; no transaction waits for it.

        While the feature is off no start needs any.

        Raises:
            StoreUnavailable, StoreBusy: nothing was written; the next commit asks again.
        """
        if not self._database.config.current().enabled:
            return "not needed"
        left = TimeLeft(self._within_s, stopped=self._stopped)
        outcome: Condensed = "not needed"
        with asking_for(ledger.agent, rewriter=self._rewriter, budgets=self._budgets, left=left) as asking:
            for _ in range(MOST_ROUNDS):
                found = self._condense(ledger, asking=asking)
                outcome = outcome if found == "current" and outcome == "written" else found
                if found != "written":
                    break
        log.info(
            "entries_condensed",
            agent=ledger.agent,
            conversation=ledger.conversation,
            outcome=outcome,
            tokens=asking.tokens,
        )
        return outcome

    def _condense(self, ledger: LedgerName, *, asking: Asking) -> Condensed:
        with self._database.snapshot() as connection:
            head = read_head(connection, ledger)
            layout = Layout() if head is None else self._layout(connection, head)
            stored = find_account(connection, head.ledger_id) if head and layout.account_bytes else None
        if head is None or not layout.account_bytes or not layout.left_out:
            return "not needed"
        entry_ids = frozenset(entry.entry_id for entry in layout.left_out)
        if stored is not None and stored.entry_ids == entry_ids:
            return "current"
        account = self._account(layout, entry_ids=entry_ids, asking=asking)
        if account is None:
            return "unavailable"
        with self._database.transaction() as connection:
            save_account(connection, account, ledger_id=head.ledger_id)  # if not, another round finds out why
        return "written"

    def _layout(self, connection: Connection, head: Head) -> Layout:
        most = self._database.config.current().max_entries
        entries = recent_entries(connection, head.ledger_id, most=most)
        return earlier_layout(
            Beginning(head, entries, frozenset(), None, {}),
            uncommitted=(),
            most_entries=most,
            budget_bytes=self._database.settings.block_bytes,
        )

    @staticmethod
    def _account(layout: Layout, *, entry_ids: frozenset[str], asking: Asking) -> Account | None:
        text = asking.account(
            SEPARATOR.join(render_entry(entry) for entry in layout.left_out),
            question=QUESTION.format(turns=len(layout.left_out)),
            budget_bytes=account_text_bytes(layout),
        )
        account = Account(entry_ids, text or "")
        return account if text and account_fits(layout, account=account) else None
