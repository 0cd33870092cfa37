SELECT swept_seq >= 0 FROM ledger WHERE ledger_id = :ledger_id
