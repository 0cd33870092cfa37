"""What workers and the clock can be told, one named value each."""

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnledger.store import ENVIRONMENT_PREFIX


class WorkerSettings(BaseSettings):
    """Settings of workers and clock, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    transient_wait_s: float = Field(
        default=15.0,
        gt=0,
        description="How long a job waits out trouble before it goes back to the queue: half the grace.",
    )
    held_ledger_wait_ms: int = Field(
        default=200,
        ge=1,
        description="How long a job waits for its own ledger when that is held; all others wait with it.",
    )
    first_pause_s: float = Field(default=0.1, gt=0, description="The first pause after trouble; it doubles from there.")
    longest_pause_s: float = Field(default=2.0, gt=0, description="No pause is longer: trouble often ends quickly.")
    worker_ttl_s: int = Field(default=60, ge=1, description="A worker silent for this long counts as dead.")
    heartbeat_s: float = Field(
        default=15.0,
        gt=0,
        validate_default=True,
        description="How often a working worker says that it lives: three times may fail before it counts as dead.",
    )
    maintenance_s: int = Field(default=30, ge=1, description="How often a worker looks for jobs that a dead one left.")
    recycle_jobs: int = Field(default=50_000, ge=1, description="A worker process is replaced after so many jobs.")
    grace_s: float = Field(
        default=30.0, gt=0, description="How long a stopping process may finish what it has in hand."
    )
    alive_folder: Path | None = Field(
        default=None,
        description="Where workers, upkeep and clock leave signs of life, for `turnledger alive`: a folder of this "
        "host alone, best in memory. Unset: nowhere.",
    )
    alive_s: float = Field(
        default=120.0,
        gt=0,
        description="A process without a sign of life for so long hangs: twice what a worker waits for a silent Redis.",
    )
    sweep_s: float = Field(default=15.0, gt=0, description="How often the clock looks for overdue turns.")
    overdue_s: float = Field(
        default=30.0, gt=0, description="A turn pending for longer is committed by the clock itself."
    )
    sweep_turns: int = Field(
        default=1_000, ge=1, description="The most overdue turns looked at in one step of a sweep."
    )
    clock_retry_s: float = Field(default=5.0, gt=0, description="How often an idle clock asks for the lock.")
    reconcile_s: float = Field(
        default=60.0, gt=0, description="How often the clock asks for a whole sweep: what nobody told is found by then."
    )
    sweep_interval_s: float = Field(
        default=900.0,
        gt=0,
        description="How often the clock asks for a sweep of retention, which deletes nothing younger than this.",
    )
    retention_batch_rows: int = Field(
        default=1_000,
        ge=1,
        description="Rows that one transaction of retention deletes, or those of one turn: a start waits milliseconds.",
    )
    retention_run_s: float = Field(
        default=10.0,
        gt=0,
        description="A sweep of retention goes back to its queue after so long: the reconciler waits behind it.",
    )
    reconcile_page: int = Field(
        default=500, ge=1, description="Keys that one step of a sweep looks at: a few milliseconds of Redis, in parts."
    )

    @field_validator("heartbeat_s")
    @classmethod
    def _before_it_counts_as_dead(cls, heartbeat_s: float, others: ValidationInfo) -> float:
        ttl_s = others.data.get("worker_ttl_s", heartbeat_s + 1)  # absent where it was refused itself
        if heartbeat_s >= ttl_s:
            raise ValueError(
                f"every {heartbeat_s:g} s is too late where a worker counts as dead after {ttl_s:g} s "
                "(TURNLEDGER_WORKER_TTL_S): its job would be run again beside it"
            )
        return heartbeat_s

    @field_validator("alive_folder", mode="before")
    @classmethod
    def _unset_when_empty(cls, value: object) -> object:
        return None if value == "" else value
