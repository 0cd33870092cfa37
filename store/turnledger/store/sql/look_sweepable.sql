-- What these runs have in the log, looked up under their ledgers' locks. Without its first event a history version
-- cannot be replayed, without a rollback the steps that it took back would count again, and a lost run that comes back
-- may want the steps that it had put into the log: such a run stays whole.
SELECT
    run.turn_id, run.ledger_id, run.ended_at, bounds.last_seq, bounds.last_seq - bounds.first_seq + 1 AS length,
    run.turn_id IS NOT DISTINCT FROM base.turn_id OR run.outcome = 'lost' AND run.steps_written > 0 OR EXISTS (
        SELECT FROM ledger_event AS event
        WHERE event.ledger_id = run.ledger_id AND event.type = 'rollback' AND event.turn_id = run.turn_id
    ) AS needed
FROM ledger_turn AS run
JOIN ledger ON ledger.ledger_id = run.ledger_id
LEFT JOIN LATERAL (
    SELECT event.turn_id
    FROM ledger_event AS event
    WHERE ledger.history_version > 0
        AND event.ledger_id = ledger.ledger_id AND event.history_version = ledger.history_version
    ORDER BY event.seq
    LIMIT 1
) AS base ON true
CROSS JOIN LATERAL (
    SELECT coalesce(max(event.seq), -1) AS last_seq, coalesce(min(event.seq), -1) AS first_seq
    FROM ledger_event AS event
    WHERE event.ledger_id = run.ledger_id AND event.idempotency_key IS NOT NULL
        AND event.idempotency_key IN ('started:' || run.turn_id, 'ended:' || run.turn_id, 'lost:' || run.turn_id)
) AS bounds
WHERE run.turn_id = ANY (CAST(:turn_ids AS text[])) AND NOT run.swept
    AND run.ended_at < now() - make_interval(secs => :age_s)
ORDER BY run.ended_at, run.turn_id
