INSERT INTO ledger_account (ledger_id, entry_ids, account)
VALUES (:ledger_id, CAST(:entry_ids AS uuid[]), CAST(:account AS json))
ON CONFLICT (ledger_id) DO UPDATE SET entry_ids = excluded.entry_ids, account = excluded.account, made_at = now()
