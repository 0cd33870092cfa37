-- For this transaction alone. Without the first the log refuses to lose an event. The others: whatever the planner
-- believes of a batch's arrays, each of its ledgers is walked by the index; a scan of the whole log takes minutes, and only a
-- plain index scan marks the index entries of rows that are gone, over which the next batch would stumble again.
SELECT
    set_config('turnledger.maintenance', 'retention', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)
