SELECT event.ledger_id, event.idempotency_key
FROM unnest(CAST(:ledger_ids AS bigint[]), CAST(:keys AS text[])) AS wanted (ledger_id, key)
JOIN ledger_event AS event
    ON event.ledger_id = wanted.ledger_id AND event.idempotency_key = wanted.key
    AND event.idempotency_key IS NOT NULL
