-- The whole ledger. Every writer of a ledger's events and entries holds that ledger's row lock
-- (FOR NO KEY UPDATE), so those two tables carry no foreign key: the lock already proves the parent,
-- and a key check per row would cost a fifth of the commit.
--
-- `purged_at` is when the ledger was last purged, by the clock that gives turns their times. A run that started
-- before and has no row is gone for good; without this mark it would look like a database set back to the past,
-- whose lost turns are committed again.
--
-- `swept_seq` is the last event that retention has removed, -1 before it removed any. Up to there an event may be missing
-- without anything being wrong.

CREATE TABLE ledger (
    ledger_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent            text NOT NULL,
    conversation_key text NOT NULL,
    parent_id        bigint REFERENCES ledger,
    visibility       text NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'public')),
    history_version  integer NOT NULL DEFAULT 0 CHECK (history_version >= 0),
    next_seq         bigint NOT NULL DEFAULT 0 CHECK (next_seq >= 0),
    turn_count       bigint NOT NULL DEFAULT 0 CHECK (turn_count >= 0),
    created_at       timestamptz NOT NULL DEFAULT now(),
    active_at        timestamptz NOT NULL DEFAULT now(),
    purged_at        timestamptz,
    swept_seq        bigint NOT NULL DEFAULT -1,
    CONSTRAINT ledger_name UNIQUE (agent, conversation_key)
);

-- One small row a run, never trimmed. It alone says that a turn is committed, which work keys are
-- answered, and which take-over (epoch) of a run may still write. `steps_written` counts the run's own
-- steps that a replacement of history has already put into the log. The outcome 'lost' is provisional:
-- a completion that arrives later overrules it. `swept`: retention has removed the run's events.
CREATE TABLE ledger_turn (
    turn_id       text PRIMARY KEY,
    ledger_id     bigint NOT NULL REFERENCES ledger,
    work_key      text NOT NULL,
    epoch         integer NOT NULL DEFAULT 1,
    steps_written integer NOT NULL DEFAULT 0,
    started_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    outcome       text CHECK (outcome IN ('completed', 'failed', 'abandoned', 'duplicate', 'lost')),
    duplicate_of  text,
    swept         boolean NOT NULL DEFAULT false,
    CONSTRAINT ledger_turn_ended CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT ledger_turn_duplicate CHECK ((outcome = 'duplicate') IS TRUE = (duplicate_of IS NOT NULL))
);
CREATE UNIQUE INDEX ledger_turn_work ON ledger_turn (ledger_id, work_key)
    WHERE outcome = 'completed' AND work_key <> '';
CREATE INDEX ledger_turn_open ON ledger_turn (started_at) WHERE ended_at IS NULL;
CREATE INDEX ledger_turn_unswept ON ledger_turn (ended_at) WHERE ended_at IS NOT NULL AND NOT swept;

CREATE TABLE ledger_event (
    ledger_id       bigint NOT NULL,
    seq             bigint NOT NULL,
    history_version integer NOT NULL,
    type            text NOT NULL,
    schema_version  integer NOT NULL,
    turn_id         text,
    idempotency_key text,
    payload         jsonb NOT NULL,
    content         json,
    search_text     text,
    occurred_at     timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (ledger_id, seq)
);
CREATE UNIQUE INDEX ledger_event_key ON ledger_event (ledger_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX ledger_event_version ON ledger_event (ledger_id, history_version, seq);
CREATE INDEX ledger_event_type ON ledger_event (ledger_id, type, seq);
CREATE INDEX ledger_event_search ON ledger_event USING gin (to_tsvector('simple', search_text))
    WHERE type = 'message';

CREATE TABLE ledger_entry (
    ledger_id    bigint NOT NULL,
    ordinal      bigint NOT NULL CHECK (ordinal >= 1),
    entry_id     uuid NOT NULL CONSTRAINT ledger_entry_id UNIQUE,
    turn_id      text NOT NULL CONSTRAINT ledger_entry_turn UNIQUE,
    work_key     text NOT NULL,
    completed_at timestamptz NOT NULL,
    entry        json NOT NULL,
    PRIMARY KEY (ledger_id, ordinal)
);
CREATE INDEX ledger_entry_completed ON ledger_entry (completed_at);

-- What a model wrote to stand for the older entries of a ledger where a block has no room for them: the newest such
-- account of each ledger, and the entries that it stands for. It can be made again at any time.
CREATE TABLE ledger_account (
    ledger_id bigint PRIMARY KEY,
    entry_ids uuid[] NOT NULL,
    account   json NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT now()
);

-- What retention has removed since it first ran; counted in the transactions that remove it, so that it is exact.
CREATE TABLE retention (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    since    timestamptz NOT NULL DEFAULT now(),
    swept_at timestamptz,
    entries  bigint NOT NULL,
    turns    bigint NOT NULL,
    events   bigint NOT NULL
);

-- Which deployment this schema is of. The id is minted here once and goes with the data, also into a backup; what a node has
-- on its disk names it, so that no other deployment takes it.
CREATE TABLE deployment (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    deployment_id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO deployment DEFAULT VALUES;

-- Events are append-only. A maintenance function names itself for its transaction; nothing else may
-- change or remove an event.
CREATE FUNCTION refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('turnledger.maintenance', true), '') NOT IN ('redaction', 'renumbering', 'retention') THEN
        RAISE EXCEPTION 'ledger_event is append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();

-- A child ledger's parent is set at its creation. No statement of ours names the column again, so this costs nothing.
CREATE FUNCTION refuse_parent_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.parent_id IS DISTINCT FROM OLD.parent_id THEN
        RAISE EXCEPTION 'the parent of ledger % can never change', OLD.ledger_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER ledger_parent_fixed BEFORE UPDATE OF parent_id ON ledger
    FOR EACH ROW EXECUTE FUNCTION refuse_parent_change();

-- Deletes all events of these runs, and is the only way for a worker's role to delete one: it takes events of runs alone
-- that ended more than a day ago, the shortest retention there can be, whatever its caller names. It runs with the
-- rights of the tables' owner, so its search path is pinned, temporary tables last.
--
-- They are found by walking each ledger's log from its beginning, where little is left, up to the last of them: an index
-- by turn would cost every commit. What a run that is swept already wrote after its end goes as well. So does the first
-- history of a child ledger that has another one by now: its event names a turn of the parent, and no run of the child.
--
-- First it lets the log lose events, for this transaction; only a superuser could have that said at its head. The settings
-- there: whatever the planner believes of a batch's arrays, each
-- of its ledgers is walked by the index; a scan of the whole log takes minutes, and only a plain index scan marks the index
-- entries of rows that are gone, over which the next batch would stumble again.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
CREATE FUNCTION sweep_events(ledger_ids bigint[], turn_ids text[], last_seqs bigint[], age_s float8) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path FROM CURRENT
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
SELECT set_config('turnledger.maintenance', 'retention', true);
WITH named AS (
    SELECT wanted.ledger_id, wanted.turn_id, wanted.last_seq
    FROM unnest(CAST(ledger_ids AS bigint[]), CAST(turn_ids AS text[]), CAST(last_seqs AS bigint[]))
        AS wanted (ledger_id, turn_id, last_seq)
    JOIN ledger_turn AS run ON run.turn_id = wanted.turn_id AND run.ledger_id = wanted.ledger_id
    WHERE run.ended_at < now() - make_interval(secs => greatest(age_s, 86400))
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
        AND event.recorded_at < now() - make_interval(secs => greatest(age_s, 86400))
        AND NOT EXISTS (
            SELECT FROM ledger_turn AS run WHERE run.turn_id = event.turn_id AND run.ledger_id = event.ledger_id
        )
    RETURNING event.ledger_id, event.seq
), gone AS (
    SELECT * FROM removed UNION ALL SELECT * FROM first_histories
), marked AS (
    UPDATE ledger_turn SET swept = true WHERE turn_id IN (SELECT turn_id FROM named)
), noted AS (
    UPDATE ledger
    SET swept_seq = greatest(swept_seq, last.seq)
    FROM (SELECT ledger_id, max(seq) AS seq FROM gone GROUP BY ledger_id) AS last
    WHERE ledger.ledger_id = last.ledger_id
)
SELECT count(*) FROM gone
$$;
REVOKE ALL ON FUNCTION sweep_events FROM PUBLIC;
