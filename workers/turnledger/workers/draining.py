"""Committing everything that is pending without RQ: for a Redis so full that no job can run."""

from turnledger.checkpoint.commit_point import NOT_STORABLE, CommitPoint
from turnledger.checkpoint.keys import decode_ledger
from turnledger.checkpoint.records import Records
from turnledger.store import Database, LedgerName
from turnledger.store.logs import get_logger

log = get_logger(__name__)

LEDGERS_AT_ONCE = 1_000


def drain(*, records: Records, database: Database) -> int:
    """Commit every pending turn, oldest ledger first; how many were decided.

    A turn that cannot be stored is set aside as rejected; one that waits for its rewriting has names. Works on a Redis
    that refuses every write but a deleting one; safe beside running workers.

    Raises:
        StoreUnavailable, StoreBusy, StoreMisconfigured, CheckpointUnavailable: the rest stays pending.
    """
    commit_point = CommitPoint(records=records, database=database, unfitted="names")
    decided = 0
    while ledgers := _pending_ledgers(records):
        before = decided
        decided += sum(_drain_ledger(commit_point, ledger, records=records) for ledger in ledgers)
        if decided == before:
            break
    return decided


def _pending_ledgers(records: Records) -> list[LedgerName]:
    overdue = records.overdue(older_than_s=0.0, most=LEDGERS_AT_ONCE)
    return [decode_ledger(name) for name in dict.fromkeys(turn.ledger for turn in overdue)]


def _drain_ledger(commit_point: CommitPoint, ledger: LedgerName, *, records: Records) -> int:
    decided = 0
    while True:
        try:
            step = commit_point.commit_ledger(ledger, most_turns=records.settings.group_turns)
        except NOT_STORABLE as error:
            log.warning("ledger_in_trouble", agent=ledger.agent, conversation=ledger.conversation, reason=str(error))
            step = commit_point.commit_first(ledger)
        if not step:
            return decided
        decided += len(step)
