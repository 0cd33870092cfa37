WITH covered AS (
    UPDATE ledger_turn SET steps_written = :steps_written, swept = false WHERE turn_id = :turn_id
)
UPDATE ledger SET history_version = :version WHERE ledger_id = :ledger_id
