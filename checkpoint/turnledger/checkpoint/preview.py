"""What the next turn of a ledger would be shown, found the way a start finds it."""

from turnledger.checkpoint.record import LedgerView
from turnledger.checkpoint.starting import block_of, checked_request, look_only
from turnledger.store import Database, LedgerName


def next_block(database: Database, *, ledger: LedgerName, view: LedgerView) -> str:
    """The bytes that a start of this ledger would give as its block now; writes nothing.

    `view` is what Redis knows of the ledger, read before this is called, or `LedgerView.unknown`.

    Raises:
        StoreUnavailable, StoreBusy, StoreMisconfigured: Postgres could not be read.
    """
    if not ledger.recorded or not database.config.current().enabled:
        return ""
    request = checked_request(
        agent=ledger.agent,
        conversation=ledger.conversation,
        triggered_by="",
        work_key="",
        messages=(),
        turn_id=None,
    )
    return block_of(database, view, look_only(database, request, view))
