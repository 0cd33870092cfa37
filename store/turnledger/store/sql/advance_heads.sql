UPDATE ledger
SET next_seq = head.next_seq, turn_count = head.turn_count, active_at = greatest(active_at, now())
FROM unnest(
    CAST(:ledger_ids AS bigint[]), CAST(:next_seqs AS bigint[]), CAST(:turn_counts AS bigint[])
) AS head (ledger_id, next_seq, turn_count)
WHERE ledger.ledger_id = head.ledger_id
