-- Only the ledgers that nobody holds: one locked ledger must not hold up the others of a group.
SELECT agent, conversation_key, ledger_id, history_version, next_seq, turn_count
FROM ledger
WHERE (agent, conversation_key) IN (
    SELECT * FROM unnest(CAST(:agents AS text[]), CAST(:conversations AS text[]))
)
ORDER BY ledger_id
FOR NO KEY UPDATE SKIP LOCKED
