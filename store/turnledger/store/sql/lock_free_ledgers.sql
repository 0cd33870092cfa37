-- Only the ledgers that nobody holds, the first ones of those asked for: one locked ledger must not hold up the others
-- of a group.
SELECT ledger.agent, ledger.conversation_key, ledger_id, history_version, next_seq, turn_count
FROM unnest(CAST(:agents AS text[]), CAST(:conversations AS text[]))
    WITH ORDINALITY AS wanted (agent, conversation_key, place)
JOIN ledger ON ledger.agent = wanted.agent AND ledger.conversation_key = wanted.conversation_key
ORDER BY wanted.place
LIMIT CAST(:most AS bigint)
FOR NO KEY UPDATE OF ledger SKIP LOCKED
