SELECT turn_id FROM ledger_event WHERE ledger_id = :ledger_id AND seq = :seq
