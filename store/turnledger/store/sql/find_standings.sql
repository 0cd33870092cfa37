-- Where turns stand, many in one look: their own row, their ledger, who else completed their work, whose event is
-- where their cursor ends, and the newest history of theirs that a replacement made.
SELECT
    wanted.turn_id,
    run.ledger_id AS run_ledger_id, run.work_key, run.epoch, run.steps_written, run.outcome, run.duplicate_of,
    run.started_at,
    ledger.ledger_id, ledger.history_version, ledger.next_seq, ledger.turn_count, ledger.purged_at,
    answered.turn_id AS answered_by,
    event.seq IS NOT NULL AS has_event, event.turn_id AS event_turn_id,
    CASE WHEN ledger.history_version > wanted.version THEN (
        SELECT max(replacement.history_version)
        FROM ledger_event AS replacement
        WHERE replacement.ledger_id = ledger.ledger_id AND replacement.type IN ('compaction', 'handoff')
            AND replacement.turn_id = wanted.turn_id
    ) END AS own_version
FROM unnest(
    CAST(:turn_ids AS text[]), CAST(:agents AS text[]), CAST(:conversations AS text[]), CAST(:work_keys AS text[]),
    CAST(:versions AS integer[]), CAST(:seqs AS bigint[])
) AS wanted (turn_id, agent, conversation_key, work_key, version, seq)
LEFT JOIN ledger_turn AS run ON run.turn_id = wanted.turn_id
LEFT JOIN ledger ON ledger.agent = wanted.agent AND ledger.conversation_key = wanted.conversation_key
LEFT JOIN ledger_turn AS answered
    ON answered.ledger_id = ledger.ledger_id AND answered.work_key = coalesce(wanted.work_key, run.work_key)
    AND answered.outcome = 'completed' AND answered.work_key <> '' AND answered.turn_id <> wanted.turn_id
LEFT JOIN ledger_event AS event ON event.ledger_id = ledger.ledger_id AND event.seq = wanted.seq
