"""After a commit: which ledgers may have outgrown their block, so that an account of their older entries is needed."""

from collections.abc import Collection

from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Database, LedgerName, TurnledgerError
from turnledger.store.accounts import long_ledgers
from turnledger.store.logs import get_logger

log = get_logger(__name__)

LEAST_SHARE = 0.6  # of a block's budget: a rendered entry is at most half as long again as its JSON


class AccountRequests:
    """Asks for accounts, and never stands in the way of the commit that it follows."""

    def __init__(self, *, database: Database, upkeep: Upkeep) -> None:
        self._database = database
        self._upkeep = upkeep

    def follow_commit(self, ledgers: Collection[LedgerName]) -> None:
        """Queue a job for each of the ledgers that may need an account; whether one does need it, the job finds out."""
        least_bytes = round(LEAST_SHARE * self._database.settings.block_bytes)
        try:
            with self._database.transaction() as connection:
                found = long_ledgers(connection, ledgers, least_bytes=least_bytes)
            for ledger in found:
                self._upkeep.request_account(ledger)
        except TurnledgerError as error:
            log.warning("accounts_not_requested", ledgers=len(ledgers), reason=str(error))
