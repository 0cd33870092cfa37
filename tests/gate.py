"""Holds the transaction that commits a chosen turn, from its first row to the moment the test lets it go on."""

from dataclasses import dataclass

import psycopg

_GATE = """
CREATE TABLE public.gate (turn_id text PRIMARY KEY);
CREATE FUNCTION public.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM public.gate WHERE turn_id = NEW.turn_id) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON turnledger.ledger_entry FOR EACH ROW EXECUTE FUNCTION public.wait_at_gate();
"""
# The COPY itself, not the wait inside of it, which is another state from one look to the next.
_HELD = """
SELECT pid, host(client_addr) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND query LIKE 'COPY ledger_entry%%'
"""


@dataclass(frozen=True)
class Backend:
    """A session of Postgres, and the address from which it is used."""

    process_id: int
    address: str | None


class Gate:
    """Of one database; a turn that is `shut` out stays in the middle of its commit until it is let `go`."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True)
        self._connection.execute(_GATE)

    def close(self) -> None:
        self._connection.close()

    def shut(self, turn_id: str) -> None:
        """Hold the commit of this turn, and of all that travel with it."""
        self._connection.execute("INSERT INTO public.gate VALUES (%s)", [turn_id])

    def go(self) -> None:
        """Let everything go on that is held."""
        self._connection.execute("DELETE FROM public.gate")

    def held(self) -> list[Backend]:
        """Who is in the middle of a commit now."""
        return [Backend(*row) for row in self._connection.execute(_HELD).fetchall()]

    def lives(self, backend: Backend) -> bool:
        """Whether Postgres still has this session."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        return self._connection.execute(query, [backend.process_id]).fetchone() == (1,)
