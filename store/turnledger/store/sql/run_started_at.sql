SELECT turn_id, started_at
FROM ledger_turn
WHERE turn_id = ANY (CAST(:turn_ids AS text[]))
