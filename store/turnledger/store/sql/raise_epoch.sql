UPDATE ledger_turn
SET epoch = GREATEST(epoch, CAST(:known AS integer)) + 1
WHERE turn_id = :turn_id
RETURNING turn_id, ledger_id, work_key, epoch, steps_written, outcome, duplicate_of
