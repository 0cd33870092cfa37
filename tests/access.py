"""Users of Redis and of Postgres with fewer rights than the tests' own."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from redis import Redis

_numbers = itertools.count(1)


@contextmanager
def redis_user(redis_url: str, rules: str) -> Iterator[str]:
    """The URL of a user with these rules of `ACL SETUSER`, for the length of a block."""
    name = f"user{next(_numbers)}"
    with Redis.from_url(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", name, *rules.split(), ">word")
        try:
            yield redis_url.replace("redis://", f"redis://{name}:word@")
        finally:
            admin.execute_command("ACL", "DELUSER", name)


@contextmanager
def postgres_login(database_url: str, *, role: str) -> Iterator[str]:
    """The URL of a login user that was granted this role, for the length of a block."""
    name = f"login{next(_numbers)}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f'CREATE USER {name} IN ROLE "{role}"'.encode())
        try:
            yield database_url.replace("turnledger@", f"{name}@")
        finally:
            admin.execute(f"DROP OWNED BY {name}".encode())
            admin.execute(f"DROP USER {name}".encode())
