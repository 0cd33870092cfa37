-- A page of the runs that ended long enough ago and still have their events, oldest first, with their ledgers held. A
-- ledger that somebody holds is left to the next sweep.
SELECT run.turn_id, run.ended_at
FROM ledger_turn AS run
JOIN ledger ON ledger.ledger_id = run.ledger_id
WHERE NOT run.swept AND run.ended_at IS NOT NULL AND run.ended_at < now() - make_interval(secs => :age_s)
    AND run.ended_at >= CAST(:after AS timestamptz)
    AND (run.ended_at, run.turn_id) > (CAST(:after AS timestamptz), CAST(:after_turn_id AS text))
ORDER BY run.ended_at, run.turn_id
LIMIT :most
FOR NO KEY UPDATE OF ledger SKIP LOCKED
