SELECT CAST(entry_ids AS text[]), account::text
FROM ledger_account
WHERE ledger_id = :ledger_id
