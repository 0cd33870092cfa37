INSERT INTO ledger_turn (turn_id, ledger_id, work_key, epoch, started_at)
VALUES (:turn_id, :ledger_id, :work_key, :epoch, :started_at)
