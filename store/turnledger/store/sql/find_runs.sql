SELECT turn_id, ledger_id, work_key, epoch, steps_written, outcome, duplicate_of
FROM ledger_turn
WHERE turn_id = ANY (CAST(:turn_ids AS text[]))
