-- Which of these work keys a run has completed; the memory outlives the entry.
SELECT answered.ledger_id, answered.work_key, answered.turn_id, entry.entry_id
FROM unnest(CAST(:ledger_ids AS bigint[]), CAST(:work_keys AS text[])) AS wanted (ledger_id, work_key)
JOIN ledger_turn AS answered
    ON answered.ledger_id = wanted.ledger_id AND answered.work_key = wanted.work_key
    AND answered.outcome = 'completed' AND answered.work_key <> ''
LEFT JOIN ledger_entry AS entry ON entry.turn_id = answered.turn_id
