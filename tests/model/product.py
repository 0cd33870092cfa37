"""The product over the model's stores, with everything random or timely made repeatable."""

import io
import logging
import pickle
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import structlog
from redis import Redis

from tests.model.clients import Here, ModelDatabase, ModelRedis
from tests.model.postgres_model import NOW
from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.checkpoint.direct import DirectCommits
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.queue import _utc_text, commit_job
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.running_time import RunningTime
from turnledger.checkpoint.session import Session
from turnledger.checkpoint.spool import Spool, SpooledTurn, Whose
from turnledger.checkpoint.submission import Services
from turnledger.checkpoint.turn import Turn
from turnledger.checkpoint.upkeep import Upkeep
from turnledger.store import Database, LedgerName, StoreSettings
from turnledger.store.commit import CompletedTurn
from turnledger.store.deployment import Home
from turnledger.store.times import utc_now
from turnledger.workers.clock import Clock
from turnledger.workers.committer import Committer
from turnledger.workers.settings import WorkerSettings

LEDGER = LedgerName("lead", "jira:POC-7")


class StillLeases(LeaseKeeper):
    """The lease keeper without its thread: a round of it is an operation of the model."""

    def _ensure_thread(self) -> None:
        """No thread."""


class MemorySpool:
    """A node's disk, as far as its spool goes."""

    def __init__(self) -> None:
        self.files: dict[str, SpooledTurn] = {}

    def write(self, turn: CompletedTurn, *, built_on: Sequence[str], home: Home) -> Path:
        """Nothing can go wrong here."""
        del home
        path = Path(turn.turn_id)
        self.files[turn.turn_id] = SpooledTurn(path, turn, tuple(built_on))
        return path

    def whose(self, home: Home) -> Whose:
        """All are of the one deployment that there is, oldest first."""
        del home
        return Whose(tuple(each.path for each in self.files.values()), (), ())

    def turns(self, paths: Sequence[Path]) -> list[SpooledTurn]:
        """As they were spooled."""
        return [self.files[str(path)] for path in paths]

    def remove(self, path: Path) -> None:
        """The turn is decided."""
        del self.files[str(path)]

    def set_aside(self, path: Path) -> Path:
        """The turn was refused for good."""
        self.remove(path)
        return path


class Product:
    """The services of a process; all actors share them, since they hold nothing between two operations.

    `scripts` gives a script's text to run in place of the one that is given, by its name.
    """

    def __init__(self, *, edit: Callable[[str, str], str] = lambda name, text: text) -> None:
        self.here = Here()
        self.redis = ModelRedis(self.here, texts=script_texts(), edit=edit)
        settings = CheckpointSettings(redis_url="redis://model")
        self.records = Records(cast("Redis", self.redis), settings)
        store_settings = StoreSettings(database_url="postgresql://model/model")
        self.database = cast("Database", ModelDatabase(self.here, store_settings))
        self.upkeep = Upkeep(self.records)
        self._worker_settings = WorkerSettings()

    def node(self) -> Turns:
        """An engine node that has just started."""
        turns = Turns(records=self.records, database=self.database)
        direct = DirectCommits(records=self.records, database=self.database, spool=cast("Spool", MemorySpool()))
        turns._services = Services(self.records, self.database, StillLeases(self.records), direct)
        turns._checked_revision = True
        return turns

    def committer(self) -> Committer:
        """A worker's committer, which does not sleep."""
        return Committer(
            records=self.records, database=self.database, settings=self._worker_settings, sleep=lambda _: None
        )

    @cached_property
    def clock(self) -> Clock:
        """The clock of the replica that ticks; nothing of one sweep is left in it for the next."""
        return Clock(
            records=self.records,
            database=self.database,
            committer=self.committer(),
            settings=self._worker_settings,
        )

    def freeze(self, held: "Held") -> bytes:
        """What an actor holds between two operations, as a value; equal ones are equal bytes."""
        if held.turns is None:
            return b""
        services, turn = held.turns._services, held.turn
        is_running = turn is not None and turn in services.leases._running
        is_watched = turn is not None and turn.turn_id in services.leases._completed
        file = io.BytesIO()
        spooled = cast("MemorySpool", services.direct._spool).files
        _Pickler(file, self._places(services)).dump((turn, is_running, is_watched, spooled))
        return file.getvalue()

    def thaw(self, frozen: bytes) -> "Held":
        """A copy of what was frozen."""
        if not frozen:
            return Held()
        turns = self.node()
        services = turns._services
        turn, is_running, is_watched, spooled = _Unpickler(io.BytesIO(frozen), self._places(services)).load()
        services.leases._running.update([turn] if is_running else [])
        services.leases._completed.update({turn.turn_id: turn} if is_watched else {})
        cast("MemorySpool", services.direct._spool).files.update(spooled)
        return Held(turns, turn)

    def _places(self, services: Services) -> dict[str, object]:
        own = {"services": services, "leases": services.leases, "direct": services.direct}
        return {**own, "records": self.records, "database": self.database}


@dataclass
class Held:
    """What an engine node holds between two operations; workers and the clock hold nothing."""

    turns: Turns | None = None
    turn: Turn | None = None


class _Pickler(pickle.Pickler):
    """By value alone: whether two equal texts are one object makes no difference."""

    def __init__(self, file: io.BytesIO, places: dict[str, object]) -> None:
        super().__init__(file, protocol=5)
        self.fast = True
        self._names = {id(place): name for name, place in places.items()}

    def persistent_id(self, obj: Any) -> str | None:
        return self._names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, places: dict[str, object]) -> None:
        super().__init__(file)
        self._places = places

    def persistent_load(self, pid: Any) -> Any:
        return self._places[pid]


def script_texts() -> dict[str, str]:
    """The product's scripts by name."""
    folder = files("turnledger.checkpoint").joinpath("scripts")
    return {file.name.removesuffix(".lua"): file.read_text(encoding="utf-8") for file in folder.iterdir()}


def make_repeatable(here: Here) -> None:
    """Ids come from the execution in hand, time stands still, nothing is logged; for the whole process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    uuid.uuid4 = lambda: uuid.UUID(int=int(here.execution.next_token()))
    _substitute({utc_now: _no_time, _utc_text: _no_text, commit_job: _plain_job})
    for timed in (Session.__init__, RunningTime.__init__):
        assert timed.__kwdefaults__ is not None
        timed.__kwdefaults__["clock"] = _no_seconds


def _plain_job(turn_id: str, *, settings: CheckpointSettings) -> dict[str, str]:
    """As much of RQ's hash of a job as our scripts look at."""
    del turn_id, settings
    return {"status": "queued"}


def _no_time() -> datetime:
    return NOW


def _no_text(moment: datetime) -> str:
    del moment
    return "now"


def _no_seconds() -> float:
    return 0.0


def _substitute(functions: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
    """Replace functions wherever the product's modules hold them by name."""
    for module in [module for name, module in sys.modules.items() if name.startswith("turnledger.")]:
        for name, value in list(vars(module).items()):
            for old, new in functions.items():
                if value is old:
                    setattr(module, name, new)
