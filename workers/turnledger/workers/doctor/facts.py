"""What the checks look at, gathered before the first of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from turnledger.checkpoint import CheckpointSettings
from turnledger.store.deployment import Home

Version = tuple[int, ...]


Fact = TypeVar("Fact")


class Unasked(Exception):
    """A fact is not there, because its server could not be asked; the message says how it failed."""

    def __init__(self, reason: str, *, away: bool) -> None:
        """`away`: the same question may be answered later; otherwise it was refused."""
        super().__init__(reason)
        self.away = away


@dataclass(frozen=True, slots=True)
class Asked(Generic[Fact]):
    """The answer to one question, or why there is none."""

    answer: Fact | Unasked

    def get(self) -> Fact:
        """Raises Unasked."""
        if isinstance(self.answer, Unasked):
            raise self.answer
        return self.answer


@dataclass(frozen=True, slots=True)
class RedisServer:
    """What Redis says of itself. `memory_limit_bytes` 0: none. `skew_s`: its clock less that of this host.

    `skew_error_s` bounds the error of `skew_s`: half the time that the answer took.
    """

    product: str
    version: Version
    is_replica: bool
    policy: str
    append_only: bool
    failing: tuple[str, ...]
    memory_bytes: int
    memory_limit_bytes: int
    machine_bytes: int
    skew_s: float
    skew_error_s: float


@dataclass(frozen=True, slots=True)
class RedisRights:
    """The commands of a role that this user may not give; None: the server would not say."""

    role: str
    refused: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class RedisTurns:
    """The turns and jobs that Redis holds. Lists of ids are samples; the numbers beside them are whole."""

    pending: int
    oldest_pending_s: float | None
    late_commit: bool
    rejected: int
    rejected_turns: tuple[str, ...]
    blocked: int
    blocked_turns: tuple[str, ...]
    failed_jobs: int
    failed_turns: tuple[str, ...]
    quarantined: int
    quarantined_turns: tuple[str, ...]
    foreign_jobs: tuple[str, ...]
    endless_keys: tuple[str, ...]
    records_examined: int


@dataclass(frozen=True, slots=True)
class Fleets:
    """How many workers of each queue were heard of lately."""

    workers: int
    rewriters: int
    upkeep: int


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """All that was asked of Postgres. `revision` None: no migration ran. What needs the schema is empty without it.

    `silent_entries`: the turn ids of entries without the event that ended their turn, among the newest
    `entries_examined`. `home`: the deployment, None where that cannot be told.
    """

    version: Version
    takes_writes: bool
    revision: str | None
    needed_revision: str
    skew_s: float
    skew_error_s: float
    clock_runs: bool
    silent_entries: tuple[str, ...] = ()
    entries_examined: int = 0
    home: Home | None = None

    @property
    def migrated(self) -> bool:
        """Whether the schema is the one that this version needs."""
        return self.revision == self.needed_revision


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What holds for this host and this process alone. `config_fault` is empty where the live section can be used.

    `spooled` and `refused_spool` are files of any deployment.
    """

    rq_version: Version
    redis_py_version: Version
    imported_rq_prefix: str
    spooled: tuple[Path, ...]
    refused_spool: tuple[Path, ...]
    spool_fault: str
    config_fault: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything; each server's part was asked by itself, so that one refusal hides nothing else."""

    settings: CheckpointSettings
    host: HostFacts
    redis: Asked[RedisServer]
    rights: Asked[RedisRights]
    turns: Asked[RedisTurns]
    fleets: Asked[Fleets]
    postgres: Asked[PostgresFacts]

    def unanswered(self, *, away: bool) -> tuple[str, ...]:
        """Why questions were not answered, each reason once: of servers that are away, or of those that refused."""
        asked: tuple[Asked[object], ...] = (self.redis, self.rights, self.turns, self.fleets, self.postgres)  # type: ignore[assignment]  # read only
        answers = [each.answer for each in asked]
        return tuple(dict.fromkeys(str(each) for each in answers if isinstance(each, Unasked) and each.away is away))


def version_of(text: str) -> Version:
    """The leading numbers of a version: 8.1.0b2 is (8, 1, 0)."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def version_text(version: Version) -> str:
    """(6, 2, 14) is 6.2.14."""
    return ".".join(map(str, version))
