INSERT INTO retention (entries, turns, events, swept_at)
VALUES (0, 0, 0, clock_timestamp())
ON CONFLICT (only_row) DO UPDATE SET swept_at = excluded.swept_at
