-- By ordinal: the newest of each ledger stay. An account that stands for an entry tells what was in it, and goes with it:
-- no block could show it any more.
WITH removed AS (
    DELETE FROM ledger_entry AS entry
    USING unnest(CAST(:ledger_ids AS bigint[]), CAST(:last_dropped AS bigint[])) AS bound (ledger_id, last_dropped)
    WHERE entry.ledger_id = bound.ledger_id AND entry.ordinal <= bound.last_dropped
    RETURNING entry.ledger_id, entry.entry_id
)
DELETE FROM ledger_account AS account
USING removed
WHERE account.ledger_id = removed.ledger_id AND removed.entry_id = ANY (account.entry_ids)
