-- A page of the runs that began before a moment and have not ended, oldest first, after the one named last.
SELECT run.turn_id, run.started_at, ledger.agent, ledger.conversation_key
FROM ledger_turn AS run
JOIN ledger ON ledger.ledger_id = run.ledger_id
WHERE run.ended_at IS NULL AND run.started_at < :before
    AND (run.started_at, run.turn_id) > (CAST(:after AS timestamptz), CAST(:after_turn_id AS text))
ORDER BY run.started_at, run.turn_id
LIMIT :most
