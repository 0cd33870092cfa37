SELECT type, payload, content::text AS content, idempotency_key
FROM ledger_event
WHERE ledger_id = :ledger_id AND idempotency_key = ANY (CAST(:keys AS text[])) AND idempotency_key IS NOT NULL
