SELECT parent.agent, parent.conversation_key
FROM ledger AS child
JOIN ledger AS parent ON parent.ledger_id = child.parent_id
WHERE child.agent = :agent AND child.conversation_key = :conversation
