-- By ordinal: the newest of each ledger stay.
DELETE FROM ledger_entry AS entry
USING unnest(CAST(:ledger_ids AS bigint[]), CAST(:last_dropped AS bigint[])) AS bound (ledger_id, last_dropped)
WHERE entry.ledger_id = bound.ledger_id AND entry.ordinal <= bound.last_dropped
