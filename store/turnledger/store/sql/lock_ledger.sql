-- A statement of its own: what is looked up in the same statement would be seen as it was before the wait.
SELECT ledger_id, history_version, next_seq, turn_count
FROM ledger
WHERE agent = :agent AND conversation_key = :conversation
FOR NO KEY UPDATE
