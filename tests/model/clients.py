"""The clients that the product is given instead of redis-py and SQLAlchemy; they ask the execution in hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Select, TextClause

from tests.model.execution import Execution, Paused
from tests.model.postgres_model import Result, Tables, copy_into, run_select, run_statement, statement_names
from tests.model.redis_model import NOW_MS, Keyspace, Scripts
from turnledger.store.database import driver_text
from turnledger.store.deployment import Home
from turnledger.store.live_config import LiveConfig
from turnledger.store.settings import StoreSettings

LATER_MS = NOW_MS + 600_000  # by then what is pending is overdue


class Here:
    """Where the clients find the execution in hand."""

    execution: Execution


class ModelScript:
    """A script of the product, run as one request."""

    def __init__(self, redis: "ModelRedis", text: str, *, name: str) -> None:
        self._redis = redis
        self._text = text
        self.name = name

    def __call__(self, *, keys: Sequence[str], args: Sequence[Any], client: Any = None) -> Any:
        def change(keyspace: Keyspace) -> Any:
            if self.name == "claim":
                _let_lease_lapse(keyspace, keys[0])
            return self._redis.scripts.run(self._text, keyspace=keyspace, keys=keys, arguments=args)

        if client is not None:
            client.add(self.name, change)
            return None
        now_ms = LATER_MS if self.name == "overdue" else None
        return self._redis.here.execution.redis(self.name, change, now_ms=now_ms)


def _let_lease_lapse(keyspace: Keyspace, record: str) -> None:
    """A lease may always have lapsed: the model has no clock, and safety must not depend on one."""
    if keyspace.call("HGET", [record, "state"]) == "running":
        keyspace.call("HSET", [record, "lease_until", "0"])


class ModelRedis:
    """As much of redis-py as the product uses."""

    def __init__(self, here: Here, *, texts: Mapping[str, str], edit: Callable[[str, str], str]) -> None:
        self.here = here
        self.scripts = Scripts()
        self._texts = texts
        self._edit = edit

    def register_script(self, text: str) -> ModelScript:
        """A script by its text, helpers in front; it is named for the file its end comes from."""
        name = next(name for name, own in self._texts.items() if text.endswith(own))
        return ModelScript(self, self._edit(name, text), name=name)

    def pipeline(self, *, transaction: bool) -> "ModelPipeline":
        """Commands that are one request here, in a transaction or not."""
        del transaction
        return ModelPipeline(self.here)

    def request(self, label: str, change: Callable[[Keyspace], Any]) -> Any:
        """One request that is no command of its own: what RQ does in one transaction."""
        return self.here.execution.redis(label, change)

    def command(self, name: str, *arguments: Any) -> Any:
        """One command as one request."""
        texts = [str(argument) for argument in arguments]
        return self.here.execution.redis(name, lambda keyspace: keyspace.call(name, texts))

    def info(self, section: str) -> dict[str, int]:
        """A Redis without a memory limit; asking it is no step."""
        del section
        return {"used_memory": 0, "maxmemory": 0}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            return self.command(name, *arguments)

        return call


class ModelPipeline:
    """Commands that are sent together."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._changes: list[tuple[str, Any]] = []

    def __enter__(self) -> "ModelPipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._changes = []

    def add(self, name: str, change: Any) -> None:
        """One more request."""
        self._changes.append((name, change))

    def hgetall(self, key: str) -> None:
        """Answered with a dictionary, as redis-py does."""
        self.add("hgetall", lambda keyspace: _pairs(keyspace.call("HGETALL", [key])))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            texts = [text for argument in arguments for text in _texts(argument)]
            self.add(name, lambda keyspace: keyspace.call(name, texts))

        return call

    def execute(self) -> list[Any]:
        """All answers, in order."""
        changes, self._changes = self._changes, []
        if not changes:
            return []
        label = f"pipeline of {changes[0][0]}"
        return list(self._here.execution.redis(label, lambda keyspace: [change(keyspace) for _, change in changes]))


def _pairs(items: Sequence[str]) -> dict[str, str]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _texts(argument: Any) -> list[str]:
    return [str(item) for item in argument] if isinstance(argument, (list, tuple)) else [str(argument)]


class ModelDatabase:
    """As much of `Database` as the product uses."""

    def __init__(self, here: Here, settings: StoreSettings) -> None:
        self.settings = settings
        self.config = LiveConfig(None)
        self._here = here
        self.home = Home("at-0123456789abcdef", "0c1b6d2e-8f7a-4b53-8a43-0e1d2c3b4a59")

    def ask_home(self) -> Home:
        """One that never changes; asking it is no step."""
        return self.home

    @contextmanager
    def transaction(self, *, lock_timeout_ms: int | None = None, pace: str = "work") -> Iterator["ModelConnection"]:
        """One transaction; locks are waited for without end unless the model chooses otherwise."""
        del lock_timeout_ms, pace
        try:
            yield ModelConnection(self._here)
        except Paused:
            raise
        except BaseException:
            self._here.execution.roll_back()
            raise
        self._here.execution.commit()

    def snapshot(self, *, pace: str = "work") -> Any:
        """A transaction that only reads; here every transaction reads one moment."""
        return self.transaction(pace=pace)

    def close(self) -> None:
        """Nothing to close."""


class ModelConnection:
    """As much of SQLAlchemy's connection as the product uses."""

    def __init__(self, here: Here) -> None:
        self._here = here

    @property
    def connection(self) -> "ModelConnection":
        return self

    def cursor(self) -> "ModelCursor":
        return ModelCursor(self._here)

    def execute(self, query: TextClause | Select[Any], parameters: Any = None) -> Result:
        """One statement, named or built."""
        if isinstance(query, Select):
            columns, rows = self._here.execution.sql("select", lambda tables: (tables, run_select(tables, query)))
            return Result(columns, rows)
        return _run_named(self._here, statement_names()[query.text], parameters=parameters or {})


class ModelCursor:
    """As much of the driver's cursor as the product uses."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.description: Any = None
        self._found: list[Any] = []

    def execute(self, text: str, parameters: Any) -> None:
        """One named statement, in the text that the driver is given."""
        self._found = _run_named(self._here, _names_by_driver_text()[text], parameters=parameters).all()
        self.description = ("columns",) if self._found else None

    def fetchall(self) -> list[Any]:
        """Every row."""
        return self._found

    @contextmanager
    def copy(self, command: str) -> Iterator["_Copy"]:
        """COPY, as one statement when its block ends."""
        copied = _Copy()
        yield copied
        target = command.removeprefix("COPY ").removesuffix(" FROM STDIN")
        self._here.execution.sql("copy", lambda tables: (copy_into(tables, target=target, rows=copied.rows), None))


def _run_named(here: Here, name: str, *, parameters: Any) -> Result:
    def change(tables: Tables) -> tuple[Tables, Any]:
        answered = run_statement(tables, name=name, parameters=parameters)
        return answered.tables, (answered.columns, answered.rows)

    return Result(*here.execution.sql(name, change))


@cache
def _names_by_driver_text() -> dict[str, str]:
    return {driver_text(name): name for name in statement_names().values()}


class _Copy:
    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def write_row(self, row: Sequence[object]) -> None:
        self.rows.append(tuple(row))
