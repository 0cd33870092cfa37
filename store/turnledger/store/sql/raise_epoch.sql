UPDATE ledger_turn
SET epoch = epoch + 1
WHERE turn_id = :turn_id
RETURNING turn_id, ledger_id, work_key, epoch, steps_written, outcome, duplicate_of
