-- All events of these runs, found by walking each ledger's log from its beginning, where little is left, up to the last
-- of them: an index by turn would cost every commit. What a run that is swept already wrote after its end goes as well.
-- So does the first history of a child ledger that has another one by now: its event names a turn of the parent, and
-- no run of the child.
WITH named AS (
    SELECT *
    FROM unnest(CAST(:ledger_ids AS bigint[]), CAST(:turn_ids AS text[]), CAST(:last_seqs AS bigint[]))
        AS run (ledger_id, turn_id, last_seq)
), bound AS (
    SELECT ledger_id, max(last_seq) AS last_seq FROM named GROUP BY ledger_id
), old AS (
    SELECT event.ledger_id, event.seq
    FROM bound
    CROSS JOIN LATERAL (
        SELECT ledger_id, seq, turn_id
        FROM ledger_event
        WHERE ledger_id = bound.ledger_id AND seq <= bound.last_seq
        ORDER BY seq
        OFFSET 0  -- looked through as it stands, ledger by ledger
    ) AS event
    WHERE (event.ledger_id, event.turn_id) IN (SELECT ledger_id, turn_id FROM named) OR (
        SELECT run.swept FROM ledger_turn AS run
        WHERE run.turn_id = event.turn_id AND run.ledger_id = event.ledger_id
    )
), removed AS (
    DELETE FROM ledger_event AS event
    USING old
    WHERE event.ledger_id = old.ledger_id AND event.seq = old.seq
    RETURNING event.ledger_id, event.seq
), first_histories AS (
    DELETE FROM ledger_event AS event
    USING bound, ledger
    WHERE ledger.ledger_id = bound.ledger_id AND ledger.parent_id IS NOT NULL
        AND event.ledger_id = ledger.ledger_id AND event.seq = 0 AND event.type IN ('compaction', 'handoff')
        AND event.history_version < ledger.history_version
        AND event.recorded_at < now() - make_interval(secs => :age_s)
        AND NOT EXISTS (
            SELECT FROM ledger_turn AS run WHERE run.turn_id = event.turn_id AND run.ledger_id = event.ledger_id
        )
    RETURNING event.ledger_id, event.seq
), gone AS (
    SELECT * FROM removed UNION ALL SELECT * FROM first_histories
), marked AS (
    UPDATE ledger_turn SET swept = true WHERE turn_id = ANY (CAST(:turn_ids AS text[]))
), noted AS (
    UPDATE ledger
    SET swept_seq = greatest(swept_seq, last.seq)
    FROM (SELECT ledger_id, max(seq) AS seq FROM gone GROUP BY ledger_id) AS last
    WHERE ledger.ledger_id = last.ledger_id
)
SELECT count(*) FROM gone
