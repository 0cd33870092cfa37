"""What the Redis side can be told, one named value each."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnledger.store import ENVIRONMENT_PREFIX


class CheckpointSettings(BaseSettings):
    """Settings of the Redis side, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    redis_url: str = Field(
        repr=False,
        description="Redis, as redis://user:password@host:port/number; or its sentinels, as "
        "redis+sentinel://user:password@host:port,host:port/service/number, of which the master is asked. Theirs are "
        "?sentinel_username= and sentinel_password=.",
    )
    prefix: str = Field(
        default="{turnledger}",
        pattern=r"^[A-Za-z0-9_.:{}-]+$",
        description="Starts every key of ours; its hash tag keeps all of them in one cluster slot.",
    )
    rq_prefix: str = Field(
        default="rq",
        validation_alias=AliasChoices("RQ_KEY_PREFIX", "rq_prefix"),
        description="RQ's own prefix, from RQ's own variable, so that both always read the same one.",
    )
    commit_queue: str = Field(
        default="commits",
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="The RQ queue of completed turns; a worker process listens to this queue alone.",
    )
    upkeep_queue: str = Field(
        default="upkeep",
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="The RQ queue of the reconciler: a long sweep must not hold up a commit.",
    )
    upkeep_timeout_s: int = Field(
        default=900, ge=1, description="RQ ends a job of upkeep after this long: a sweep of some million records."
    )
    rewriting: Literal["off", "on"] = Field(
        default="off",
        description="on: over-long tool arguments and errors go to a model before their turn is committed; off: they "
        "are named at once. Engine nodes and workers must agree.",
    )
    rewrite_queue: str = Field(
        default="rewrites",
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="The RQ queue of turns to be rewritten: a slow model must not hold up a commit.",
    )
    rewrite_wait_s: float = Field(
        default=600.0,
        gt=0,
        description="A turn that nobody has begun to rewrite by then is committed with names: its ledger waits for it.",
    )
    rewrite_job_timeout_s: int = Field(
        default=120, ge=1, description="RQ ends a job of rewriting after this long: twice what a turn may take."
    )
    budget_window_s: int = Field(
        default=86_400, ge=1, description="Token budgets begin anew after this long; a day, from midnight UTC."
    )
    redis_connect_timeout_s: float = Field(
        default=2.0, gt=0, description="A Redis that does not answer by then is down."
    )
    redis_reply_timeout_s: float = Field(
        default=5.0, gt=0, description="The longest wait for one reply; our slowest script takes milliseconds."
    )
    redis_retries: int = Field(
        default=3, ge=0, description="Repeats of a call whose connection broke; every script of ours allows it."
    )
    lease_s: float = Field(
        default=60.0, gt=0, description="A node silent for this long may lose its turn to another node."
    )
    renew_s: float = Field(
        default=15.0,
        gt=0,
        validate_default=True,
        description="How often a lease is renewed: three renewals may fail before it lapses. Shorten it with the "
        "lease: one that lapses before it is renewed is refused.",
    )
    lease_margin_s: float = Field(
        default=5.0,
        ge=0,
        description="A node stops trusting its lease this long before it lapses, for slow calls and slow clocks.",
    )
    slices: int = Field(
        default=5, ge=1, description="A turn taken up more often than this goes in circles, and is ended."
    )
    pending_turns: int = Field(
        default=100_000,
        ge=1,
        description="Beyond so many pending turns a node commits directly: Redis must never be filled up to refusal.",
    )
    redis_memory_share: float = Field(
        default=0.85, gt=0, le=1, description="Beyond this share of Redis' memory limit a node commits directly."
    )
    unconfirmed_turns: int = Field(
        default=10_000, ge=1, description="Completed turns a node remembers until it has seen them committed."
    )
    spool_folder: Path = Field(
        default=Path("~/.turnledger/spool"),
        validate_default=True,
        description="Where completed turns go when no store takes them; a disk that outlives the process. The next "
        "start of the same deployment on this host commits them; what others put there it leaves to them.",
    )
    unfinished_expiry_s: float = Field(
        default=86_400.0, gt=0, description="An unfinished turn nobody touched for a day is given up."
    )
    spare_copy_s: float = Field(
        default=3_600.0,
        gt=0,
        description="How long an ended turn stays readable, as a spare copy against a Postgres restored to the past.",
    )
    save_bytes: int = Field(
        default=16 * 1024 * 1024, ge=1, description="The most that one save may send: Redis serves nobody meanwhile."
    )
    group_turns: int = Field(
        default=200, ge=1, description="Turns in one transaction: beyond it a longer group gains nothing."
    )
    group_bytes: int = Field(
        default=32 * 1024 * 1024, ge=1, description="Bytes in one transaction, so that a worker's memory is bounded."
    )
    job_timeout_s: int = Field(
        default=180, ge=1, description="RQ ends a commit job after this long; six statement timeouts."
    )
    failure_ttl_s: int = Field(
        default=7 * 86_400, ge=1, description="How long RQ shows a failed commit job; the turn itself stays."
    )
    abandon_retries: int = Field(
        default=10, ge=1, description="How often RQ runs a commit job again whose worker died with it."
    )

    @field_validator("renew_s")
    @classmethod
    def _before_the_lease_lapses(cls, renew_s: float, others: ValidationInfo) -> float:
        lease_s = others.data.get("lease_s", renew_s + 1)  # absent where it was refused itself
        if renew_s >= lease_s:
            raise ValueError(
                f"every {renew_s:g} s is too late for a lease of {lease_s:g} s (TURNLEDGER_LEASE_S), of which others "
                "would take over the turns of a process that lives"
            )
        return renew_s

    @field_validator("spool_folder")
    @classmethod
    def _expanded(cls, folder: Path) -> Path:
        try:
            return folder.expanduser()
        except RuntimeError:
            raise ValueError("there is no home folder here to put it in; name another one") from None
