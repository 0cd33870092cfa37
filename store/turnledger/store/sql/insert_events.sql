INSERT INTO ledger_event (
    ledger_id, seq, history_version, type, schema_version, turn_id, idempotency_key, payload, content,
    search_text, occurred_at
)
SELECT :ledger_id, seq, :history_version, type, schema_version, turn_id, key, payload, content, search_text, occurred_at
FROM unnest(
    CAST(:seqs AS bigint[]), CAST(:types AS text[]), CAST(:schema_versions AS integer[]), CAST(:turn_ids AS text[]),
    CAST(:keys AS text[]), CAST(:payloads AS jsonb[]), CAST(:contents AS json[]), CAST(:search_texts AS text[]),
    CAST(:occurred_at AS timestamptz[])
) AS event (seq, type, schema_version, turn_id, key, payload, content, search_text, occurred_at)
