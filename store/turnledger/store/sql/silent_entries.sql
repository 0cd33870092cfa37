-- Of the newest entries those whose turn has no event that ended it: the first ones, and how many were looked at. What
-- retention has swept is no fault. An entry is found by its time, an event by its key.
WITH newest AS MATERIALIZED (
    SELECT entry.ledger_id, entry.turn_id, entry.completed_at
    FROM ledger_entry AS entry
    ORDER BY entry.completed_at DESC
    LIMIT :most
), silent AS (
    SELECT newest.turn_id
    FROM newest
    JOIN ledger_turn AS run ON run.turn_id = newest.turn_id
    WHERE NOT run.swept AND NOT EXISTS (
        SELECT FROM ledger_event AS event
        WHERE event.ledger_id = newest.ledger_id AND event.idempotency_key IS NOT NULL
            AND event.idempotency_key = 'ended:' || newest.turn_id
    )
    ORDER BY newest.completed_at DESC
    LIMIT :named
)
SELECT ARRAY(SELECT turn_id FROM silent), (SELECT count(*) FROM newest)
