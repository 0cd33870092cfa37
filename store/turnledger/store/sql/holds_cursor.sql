-- An event that is not there although its number was given was removed by retention, up to the ledger's `swept_seq`.
SELECT CASE WHEN event.seq IS NULL THEN :seq <= ledger.swept_seq ELSE event.turn_id IS NOT DISTINCT FROM :turn_id END
FROM ledger
LEFT JOIN ledger_event AS event ON event.ledger_id = ledger.ledger_id AND event.seq = :seq
WHERE ledger.ledger_id = :ledger_id
