"""The roles of a deployment in Postgres: owner, engine, worker, reader; each may do what its processes need alone."""

from sqlalchemy import Connection, text

from turnledger.store.database import run_statement

NAMES = ("owner", "engine", "worker", "reader")
_SET_PREFIX = text("SELECT set_config('turnledger.role_prefix', :prefix, true)")
_OWNER = text(
    "SELECT owner.rolname FROM pg_namespace JOIN pg_roles AS owner ON owner.oid = nspowner"
    " WHERE nspname = current_schema() AND owner.rolname <> current_user"
)


def role_names(prefix: str) -> tuple[str, ...]:
    """The names of a deployment's roles: owner, engine, worker, reader."""
    return tuple(f"{prefix}_{name}" for name in NAMES)


def grant_roles(connection: Connection, *, prefix: str) -> None:
    """Make the roles that are missing and give each what this version needs, in this transaction.

    Schema, tables and functions then belong to the owner. Needs a superuser, or the schema's owner with CREATEROLE.
    """
    connection.execute(_SET_PREFIX, {"prefix": prefix})
    run_statement(connection, "make_roles", {})


def has_roles(connection: Connection, *, prefix: str) -> bool:
    """Whether the schema belongs to the owner among these roles."""
    owner = connection.scalar(text("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = current_schema()"))
    return bool(owner == role_names(prefix)[0])


def become_owner(connection: Connection) -> None:
    """For this transaction, what is made belongs to the schema's owner; this user has to be a member of that role."""
    owner = connection.scalar(_OWNER)
    if owner is not None:
        quoted = connection.dialect.identifier_preparer.quote_identifier(owner)
        connection.exec_driver_sql(f"SET LOCAL ROLE {quoted}")
