"""Both servers as an engine in another language reaches them: commands, texts of scripts, and numbered statements."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
import redis

from tests.wire.forms import encoded_ledger

Json = dict[str, Any]


class Servers:
    """`contract` is what `turnledger wire` prints, `statements` are those of the page by name."""

    def __init__(self, contract: Json, *, statements: Mapping[str, str], redis_url: str, database_url: str) -> None:
        self.contract = contract
        self._statements = statements
        self.redis: Any = redis.Redis.from_url(redis_url, decode_responses=True)
        self.postgres = psycopg.connect(
            database_url,
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            options="-c search_path=turnledger -c lock_timeout=1000 -c statement_timeout=30000",
        )

    def close(self) -> None:
        self.redis.close()
        self.postgres.close()

    def query(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement; its values are given by the names that the contract has for its numbers."""
        wanted = self.contract["statements"][name]["parameters"]
        cursor = self.postgres.execute(self._statements[name].encode(), [values[each] for each in wanted])
        return cursor.fetchall() if cursor.description else []

    def run(self, name: str, keys: list[str], *arguments: object) -> Any:
        """Run a script, which Redis may have to be given first."""
        script = self.contract["scripts"][name]
        with suppress(redis.exceptions.NoScriptError):
            return self.redis.execute_command("EVALSHA", script["sha1"], len(keys), *keys, *arguments)
        self.redis.execute_command("SCRIPT LOAD", script["text"])
        return self.redis.execute_command("EVALSHA", script["sha1"], len(keys), *keys, *arguments)

    def key(self, name: str) -> str:
        return f"{self.contract['prefix']}:{name}"

    def record(self, turn_id: str) -> str:
        return self.key(f"turn:{turn_id}")

    def steps(self, turn_id: str) -> str:
        return self.key(f"turn:{turn_id}:steps")

    def ledger(self, ledger: tuple[str, str], name: str) -> str:
        return self.key(f"ledger:{encoded_ledger(*ledger)}:{name}")
