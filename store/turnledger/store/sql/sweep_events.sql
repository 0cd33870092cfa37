-- A function of the schema: the role of workers may delete an event by it alone.
SELECT sweep_events(
    CAST(:ledger_ids AS bigint[]), CAST(:turn_ids AS text[]), CAST(:last_seqs AS bigint[]), CAST(:age_s AS float8)
)
