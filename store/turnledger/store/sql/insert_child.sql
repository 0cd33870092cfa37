INSERT INTO ledger (agent, conversation_key, parent_id, history_version, next_seq)
VALUES (:agent, :conversation, :parent_id, 1, 1)
RETURNING ledger_id
