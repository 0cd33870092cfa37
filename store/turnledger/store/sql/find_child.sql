SELECT ledger_id
FROM ledger
WHERE agent = :agent AND conversation_key = :conversation AND parent_id = :parent_id
