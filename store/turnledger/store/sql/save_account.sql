-- Only while every entry that it stands for is stored: an account must not outlive what retention has removed.
INSERT INTO ledger_account (ledger_id, entry_ids, account)
SELECT :ledger_id, wanted.entry_ids, CAST(:account AS json)
FROM (SELECT CAST(:entry_ids AS uuid[]) AS entry_ids) AS wanted
WHERE cardinality(wanted.entry_ids) = (
    SELECT count(*)
    FROM ledger_entry
    WHERE ledger_entry.ledger_id = :ledger_id AND ledger_entry.entry_id = ANY (wanted.entry_ids)
)
ON CONFLICT (ledger_id) DO UPDATE SET entry_ids = excluded.entry_ids, account = excluded.account, made_at = now()
RETURNING ledger_id
