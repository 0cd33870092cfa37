-- The new life of the run begins without the steps that a former one has put into the log.
UPDATE ledger_turn
SET steps_written = 0
WHERE turn_id = :turn_id
