"""What the ledger's Postgres side can be told, one named value each."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnledger.store.errors import InvalidInput

ENVIRONMENT_PREFIX = "TURNLEDGER_"


class StoreSettings(BaseSettings):
    """Settings of the Postgres side, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    config: Path | None = Field(
        default=None,
        description="A YAML file whose section `turn_engine.conversation_session` is read anew whenever it changes; "
        "the same file for every process. Without it the defaults hold.",
    )
    database_url: str = Field(
        repr=False,
        description="Postgres, as postgresql://user:password@host:port/database. Of several servers, "
        "host:port,host:port with ?target_session_attrs=read-write, the one that takes writes is found anew after a "
        "failover.",
    )
    schema_name: str = Field(
        default="turnledger",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="All tables live in this one Postgres schema, so that a shared database stays tidy.",
    )
    role_prefix: str = Field(
        default="turnledger",
        pattern=r"^[a-z_][a-z0-9_]{0,50}$",
        description="`migrate --roles` makes the roles {prefix}_owner, _engine, _worker and _reader. Roles belong to "
        "the whole server: two deployments on one need two prefixes.",
    )
    database_connect_timeout_s: int = Field(
        default=5, ge=1, description="A server that does not answer by then is treated as down."
    )
    database_silence_s: int = Field(
        default=10,
        ge=2,
        description="A connection whose other end has not acknowledged anything for so long is given up, by us and by "
        "the server: TCP alone would take a quarter of an hour, with the ledgers of a vanished host locked.",
    )
    database_patience_s: float = Field(
        default=5.0,
        gt=0,
        description="A server that says nothing for so long past what a statement may take, or at a start past the "
        "wait for the ledger, is treated as down.",
    )
    lock_timeout_ms: int = Field(
        default=1_000,
        ge=1,
        description="The longest `start` waits for its ledger: a person is waiting for that turn.",
    )
    commit_lock_timeout_ms: int = Field(
        default=5_000,
        ge=1,
        description="The longest an engine node waits for a ledger whose turns it commits itself.",
    )
    statement_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        description="Far above any statement of ours, far below a job's timeout: a stuck server is noticed here.",
    )
    idle_in_transaction_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        description="A process frozen inside a transaction gives its ledgers back after this long.",
    )
    pool_size: int = Field(
        default=5, ge=1, description="Connections a process keeps; a worker uses one, an engine node a few."
    )
    block_bytes: int = Field(
        default=24_000, ge=1_000, description="The budget of one prompt block, about 6,000 tokens."
    )

    @field_validator("config", mode="before")
    @classmethod
    def _unset_when_empty(cls, value: object) -> object:
        return None if value == "" else value


Settings = TypeVar("Settings", bound=BaseSettings)


def read_settings(kind: type[Settings], **given: Any) -> Settings:
    """Build settings of one kind from the environment; what is given wins.

    Raises:
        InvalidInput: a value is missing or wrong; names its variable and what is wrong with it.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ENVIRONMENT_PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        if first["type"] == "missing":
            raise InvalidInput(
                f"{name} is not set; set it, for instance to the URL that `turnledger up` prints"
            ) from None
        raise InvalidInput(f"the setting {name} is wrong: {first['msg']}; set it and try again") from None
