-- The roles of one deployment, and what each may do. A role that is there already stays, with its members. All of it can
-- be done again at any time: what a role may do is taken back first and granted anew, in one transaction.
--
-- Nobody logs in as a role: a login user is granted one, so that passwords, certificates and their change are left to
-- whoever runs the server.
DO $make_roles$
DECLARE
    prefix CONSTANT text := current_setting('turnledger.role_prefix');
    place CONSTANT text := current_schema();
    owner CONSTANT text := prefix || '_owner';
    engine CONSTANT text := prefix || '_engine';
    worker CONSTANT text := prefix || '_worker';
    reader CONSTANT text := prefix || '_reader';
    name text;
    kind text;
BEGIN
    FOREACH name IN ARRAY ARRAY[owner, engine, worker, reader] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- a migration of another database on this server was quicker
            END;
        END IF;
    END LOOP;

    IF NOT pg_has_role(current_user, owner, 'SET') THEN
        EXECUTE format('GRANT %I TO %I', owner, current_user);  -- else nothing can be given to the owner
    END IF;
    IF (SELECT nspowner FROM pg_namespace WHERE nspname = place) <> to_regrole(quote_ident(owner)) THEN
        EXECUTE format('ALTER SCHEMA %I OWNER TO %I', place, owner);
    END IF;
    FOR kind, name IN
        SELECT 'TABLE', oid::regclass::text FROM pg_class
        WHERE relnamespace = to_regnamespace(quote_ident(place)) AND relkind IN ('r', 'p')
            AND relowner <> to_regrole(quote_ident(owner))
        UNION ALL
        SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc
        WHERE pronamespace = to_regnamespace(quote_ident(place)) AND proowner <> to_regrole(quote_ident(owner))
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO %I', kind, name, owner);
    END LOOP;

    EXECUTE format('SET LOCAL ROLE %I', owner);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC, %I, %I, %I', place, engine, worker, reader);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC, %I, %I, %I', place, engine, worker, reader);
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC, %I, %I, %I', place, engine, worker, reader);

    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I, %I, %I', place, engine, worker, reader);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I, %I, %I', place, engine, worker, reader);
    -- Both write turns: an engine node starts, replaces and, when it must, commits; a worker commits and reconciles.
    -- What is written of an event stays. A commit trims the entries that a ledger has no room for.
    EXECUTE format('GRANT INSERT ON ledger, ledger_turn, ledger_event, ledger_entry TO %I, %I', engine, worker);
    EXECUTE format(
        'GRANT UPDATE (history_version, next_seq, turn_count, active_at) ON ledger TO %I, %I', engine, worker
    );
    EXECUTE format(
        'GRANT UPDATE (epoch, steps_written, ended_at, outcome, duplicate_of, swept) ON ledger_turn TO %I, %I',
        engine, worker
    );
    EXECUTE format('GRANT DELETE ON ledger_entry, ledger_account TO %I, %I', engine, worker);
    -- A worker condenses, and sweeps what is old: entries as rows (it locks them, for which Postgres wants some column that
    -- it could change), events through the one function that takes nothing else.
    EXECUTE format('GRANT INSERT, UPDATE ON ledger_account, retention TO %I', worker);
    EXECUTE format('GRANT UPDATE (work_key) ON ledger_entry TO %I', worker);
    EXECUTE format('GRANT EXECUTE ON FUNCTION sweep_events TO %I', worker);
END $make_roles$
