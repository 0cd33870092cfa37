UPDATE ledger_turn SET epoch = epoch + 1 WHERE turn_id = :turn_id RETURNING epoch, outcome, duplicate_of
