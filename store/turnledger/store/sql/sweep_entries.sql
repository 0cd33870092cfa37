-- A batch of the oldest entries. What another transaction holds is left to the next sweep, so this never waits and
-- nobody waits for it in a circle. An account that stands for an entry tells what was in it, and goes with it.
WITH old AS (
    SELECT ledger_id, ordinal
    FROM ledger_entry
    WHERE completed_at >= CAST(:after AS timestamptz) AND completed_at < now() - make_interval(secs => :age_s)
    ORDER BY completed_at
    LIMIT :most
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM ledger_entry AS entry
    USING old
    WHERE entry.ledger_id = old.ledger_id AND entry.ordinal = old.ordinal
    RETURNING entry.ledger_id, entry.entry_id, entry.completed_at
), accounts AS (
    DELETE FROM ledger_account AS account
    USING removed
    WHERE account.ledger_id = removed.ledger_id AND removed.entry_id = ANY (account.entry_ids)
)
SELECT count(*), max(completed_at) FROM removed
