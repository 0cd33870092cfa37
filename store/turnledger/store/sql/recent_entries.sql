SELECT ordinal, completed_at, entry::text AS entry
FROM ledger_entry
WHERE ledger_id = :ledger_id
ORDER BY ordinal DESC
LIMIT :most
