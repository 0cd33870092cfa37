"""Make the users who log in to Postgres, each a member of one role, with the passwords of the environment.

It runs after `turnledger migrate --roles`, as the administrator whom TURNLEDGER_DATABASE_URL names. It may be repeated:
passwords are then set anew. Only their SCRAM verifiers reach the server, so no log of it can hold one.
"""

import os
import sys

import psycopg
from psycopg import sql

# Each login, its role, and the variable that holds its password.
LOGINS = {
    "node": ("turnledger_engine", "ENGINE_PASSWORD"),
    "worker": ("turnledger_worker", "WORKER_PASSWORD"),
    "watch": ("turnledger_reader", "READER_PASSWORD"),
}


def make_login(connection: psycopg.Connection, name: str, *, role: str, password: str) -> None:
    """Make the user where there is none yet; give it this password, and the role."""
    login = sql.Identifier(name)
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
        connection.execute(sql.SQL("CREATE ROLE {}").format(login))
    connection.execute(sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(login, sql.Literal(verifier)))
    connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), login))


def main() -> None:
    with psycopg.connect(os.environ["TURNLEDGER_DATABASE_URL"]) as connection:
        for name, (role, variable) in LOGINS.items():
            make_login(connection, name, role=role, password=os.environ[variable])
            sys.stdout.write(f"{name} may log in, with the role {role}\n")


if __name__ == "__main__":
    main()
