"""What tells one deployment from every other: the id in its schema and, where that was never read, its place."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from psycopg.pq import Conninfo
from sqlalchemy import Engine

_DIGITS = 16  # of a digest in hex: the places that one host ever works at are few


class Home(NamedTuple):
    """The deployment that a process works for, as far as it is known.

    `deployment_id` is the uuid that the first migration has put into the schema; None until Postgres was asked.
    `address` stands for the place alone: server, database and schema. A deployment keeps its id wherever it moves.
    """

    address: str
    deployment_id: str | None = None

    @property
    def name(self) -> str:
        """What is written on things of this deployment."""
        return self.deployment_id or self.address

    @property
    def names(self) -> frozenset[str]:
        """What may be written on them: the address as well, by a process that never read the id."""
        return frozenset((self.name, self.address))


def address_of(engine: Engine, *, hosts: Mapping[str, object], schema: str) -> str:
    """`at-` and 16 hex digits of SHA-256 over server, port, database and schema, a line feed between them.

    What the URL leaves open is what libpq takes for it here and now. The same server under two names has two addresses.
    """
    _, options = engine.dialect.create_connect_args(engine.url)
    named = {**_defaults(), **options, **hosts}
    server = named.get("host") or named.get("hostaddr") or named.get("service") or ""
    parts = (server, named["port"], named.get("dbname") or named.get("user") or "", schema)
    return "at-" + sha256("\n".join(map(str, parts)).encode()).hexdigest()[:_DIGITS]


def _defaults() -> dict[str, Any]:
    return {each.keyword.decode(): each.val.decode() for each in Conninfo.get_defaults() if each.val is not None}
