SELECT ledger.agent, ledger.conversation_key
FROM unnest(CAST(:agents AS text[]), CAST(:conversations AS text[])) AS wanted (agent, conversation_key)
JOIN ledger ON ledger.agent = wanted.agent AND ledger.conversation_key = wanted.conversation_key
JOIN ledger_entry USING (ledger_id)
GROUP BY ledger.ledger_id
HAVING sum(octet_length(entry::text)) >= :least_bytes
