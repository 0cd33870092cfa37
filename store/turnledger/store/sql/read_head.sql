SELECT ledger_id, history_version, next_seq, turn_count, created_at, active_at
FROM ledger
WHERE agent = :agent AND conversation_key = :conversation
