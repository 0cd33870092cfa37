-- A run that Postgres could not be told of at its start is made and closed in one go.
INSERT INTO ledger_turn (turn_id, ledger_id, work_key, epoch, started_at, ended_at, outcome, duplicate_of)
SELECT *
FROM unnest(
    CAST(:turn_ids AS text[]), CAST(:ledger_ids AS bigint[]), CAST(:work_keys AS text[]), CAST(:epochs AS integer[]),
    CAST(:started_at AS timestamptz[]), CAST(:ended_at AS timestamptz[]), CAST(:outcomes AS text[]),
    CAST(:duplicates_of AS text[])
)
ON CONFLICT (turn_id) DO UPDATE SET
    ended_at = excluded.ended_at,
    outcome = excluded.outcome,
    duplicate_of = excluded.duplicate_of,
    swept = false
