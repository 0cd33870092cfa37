-- Sorted, so that two processes creating the same ledgers never wait for each other in a circle.
INSERT INTO ledger (agent, conversation_key)
SELECT agent, conversation_key
FROM unnest(CAST(:agents AS text[]), CAST(:conversations AS text[])) AS wanted (agent, conversation_key)
ORDER BY agent, conversation_key
ON CONFLICT ON CONSTRAINT ledger_name DO NOTHING
