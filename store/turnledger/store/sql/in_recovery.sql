-- Whether this server is a standby: what it has may be older than what was committed.
SELECT pg_is_in_recovery()
