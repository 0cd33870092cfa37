"""Both servers of one test as an engine node uses them, and what a test may look at behind its back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import psycopg
from redis import Redis

from tests.configuring import write_config
from turnledger.checkpoint import CheckpointSettings, Turn, Turns
from turnledger.checkpoint.keys import Keys
from turnledger.checkpoint.records import Records
from turnledger.store import Database, LedgerName, Step, StoreSettings, openai_step
from turnledger.store.events import Event
from turnledger.store.history import events
from turnledger.store.ledger import Head, read_head
from turnledger.workers.committer import Committer
from turnledger.workers.settings import WorkerSettings

LEAD = LedgerName("lead", "jira:POC-7")
TABLES = ("ledger", "ledger_turn", "ledger_event", "ledger_entry", "ledger_account", "retention")
OF_THE_SCHEMA = ("deployment", "alembic_version")  # what a migration puts there; tests leave it


class Stores:
    """A migrated Postgres and an empty Redis, with any number of engine nodes over them."""

    def __init__(self, *, database_url: str, redis_url: str) -> None:
        self.database_url = database_url
        self.redis_url = redis_url
        self.database = Database.from_settings(database_url=database_url)
        self.redis = Redis.from_url(redis_url, decode_responses=True)
        self.records = Records(self.redis, self.checkpoint_settings())
        self._nodes: list[Turns] = []
        self._folder = TemporaryDirectory()

    @property
    def keys(self) -> Keys:
        return self.records.keys

    @property
    def deployment_id(self) -> str:
        ((found,),) = self.rows("SELECT deployment_id::text FROM deployment")
        return str(found)

    def close(self) -> None:
        for node in self._nodes:
            node.close()
        self.redis.close()
        self.database.close()
        self._folder.cleanup()

    def section(self, **keys: object) -> dict[str, Any]:
        """Store settings that name a file whose live section has these keys."""
        return {"config": write_config(Path(mkdtemp(dir=self._folder.name)), **keys)}

    def checkpoint_settings(self, **given: Any) -> CheckpointSettings:
        """A test may have a lease lapse before it is renewed, as no deployment may."""
        times: dict[str, Any] = {name: given.pop(name) for name in ("lease_s", "renew_s") if name in given}
        made = CheckpointSettings(**{"redis_url": self.redis_url, **given})
        return made.model_copy(update=times)

    def node(self, *, store: dict[str, Any] | None = None, **checkpoint: Any) -> Turns:
        """An engine node of its own: other clients, other lease thread."""
        node = Turns.from_settings(
            store=StoreSettings(**{"database_url": self.database_url, **(store or {})}),
            checkpoint=self.checkpoint_settings(**checkpoint),
        )
        self._nodes.append(node)
        return node

    def drain(self, **section: object) -> None:
        """Do what workers with this live section would: run the queued jobs until none is left."""
        store = self.section(**section) if section else {}
        database = Database.from_settings(database_url=self.database_url, **store) if store else self.database
        committer = Committer(records=self.records, database=database, settings=WorkerSettings())
        while (job := self.redis.lpop(self.keys.queue)) is not None:
            turn_id = str(job).removeprefix("turn-")
            committer.persist(turn_id)
            self.redis.delete(self.keys.job(turn_id))
        if store:
            database.close()

    def head(self, ledger: LedgerName = LEAD) -> Head:
        with self.database.transaction() as connection:
            head = read_head(connection, ledger)
        assert head is not None
        return head

    def events(self, ledger: LedgerName = LEAD) -> list[Event]:
        with self.database.transaction() as connection:
            head = read_head(connection, ledger)
            return [] if head is None else events(connection, head)

    def types(self, turn_id: str, ledger: LedgerName = LEAD) -> list[str]:
        return [event.type for event in self.events(ledger) if event.turn_id == turn_id]

    def texts(self, ledger: LedgerName = LEAD) -> list[str | None]:
        return [event.text for event in self.events(ledger) if event.type == "message"]

    def entries(self) -> list[dict[str, Any]]:
        return [row[0] for row in self.rows("SELECT entry FROM ledger_entry ORDER BY ledger_id, ordinal")]

    def run(self, turn_id: str) -> str | None:
        """The outcome of a run; fails when Postgres does not know it."""
        ((outcome,),) = self.rows("SELECT outcome FROM ledger_turn WHERE turn_id = %s", turn_id)
        return None if outcome is None else str(outcome)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.connection() as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def execute(self, command: str, *parameters: object) -> int:
        with self.connection() as connection:
            return connection.execute(command.encode(), parameters or None).rowcount

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the test's own, past everything that is tested."""
        with psycopg.connect(self.database_url, options="-c search_path=turnledger") as connection:
            yield connection

    def state(self, turn_id: str) -> str | None:
        found: Any = self.redis.hget(self.keys.record(turn_id), "state")
        return None if found is None else str(found)

    def pending(self, ledger: LedgerName = LEAD) -> list[str]:
        found: Any = self.redis.lrange(self.keys.pending(ledger), 0, -1)
        return list(found)

    def written(self) -> dict[str, int]:
        """How much is in each place; of a test that must write nothing, all of it is 0."""
        counts = {table: self.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}
        return {**counts, "redis": int(str(self.redis.dbsize()))}


NOTHING = {**dict.fromkeys(TABLES, 0), "redis": 0}


def user(text: str) -> Step:
    return openai_step({"role": "user", "content": text})


def assistant(text: str) -> Step:
    return openai_step({"role": "assistant", "content": text})


def calling(*call_ids: str, name: str = "look", arguments: str = "{}") -> Step:
    calls = [{"id": each, "type": "function", "function": {"name": name, "arguments": arguments}} for each in call_ids]
    return openai_step({"role": "assistant", "content": None, "tool_calls": calls})


def result(call_id: str, text: str = "fine", *, error: str | None = None) -> Step:
    return openai_step({"role": "tool", "tool_call_id": call_id, "content": text}, error=error)


def begin(node: Turns, text: str = "Please fix it", *, ledger: LedgerName = LEAD, **given: Any) -> Turn:
    return node.start(**{"agent": ledger.agent, "conversation": ledger.conversation, "triggered_by": text, **given})


def contents(steps: Sequence[Step]) -> list[str]:
    return [step.content for step in steps]
