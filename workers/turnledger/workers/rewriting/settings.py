"""Which model rewrites, where it is, and how long it may take."""

import json
from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from turnledger.store import ENVIRONMENT_PREFIX, InvalidInput, read_settings


class RewriteSettings(BaseSettings):
    """Settings of the shipped rewriter, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    rewrite_base_url: str = Field(
        default="",
        description="An OpenAI-compatible endpoint, as https://host/v1. There is no default: content goes nowhere that "
        "was not named.",
    )
    rewrite_model: str = Field(default="", description="The model that rewrites, as the endpoint calls it.")
    rewrite_key: SecretStr = Field(
        default=SecretStr(""), description="The endpoint's key; empty for an endpoint that asks for none. Never shown."
    )
    rewrite_models: Annotated[dict[str, str], NoDecode] = Field(
        default={}, description='Other models for some agents, as JSON: {"lead": "large-model"}.'
    )
    rewrite_call_s: float = Field(
        default=20.0,
        gt=0,
        le=25.0,
        description="The longest silence of the model; within the grace of a stopping worker.",
    )
    rewrite_turn_s: float = Field(
        default=60.0, gt=0, le=60.0, description="How long the rewriting of one turn may take in all; then names."
    )

    @field_validator("rewrite_base_url")
    @classmethod
    def _is_http(cls, text: str) -> str:
        if text and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname):
            raise ValueError("write it as https://host/v1")
        return text

    @field_validator("rewrite_models", mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('write a JSON object such as {"lead": "large-model"}') from None

    def model_for(self, agent: str) -> str:
        """The model that rewrites for this agent."""
        return self.rewrite_models.get(agent, self.rewrite_model)


def read_rewrite_settings() -> RewriteSettings:
    """The settings of the environment, complete.

    Raises:
        InvalidInput: a variable is missing or wrong, or the extra is not installed; says what to do.
    """
    settings = read_settings(RewriteSettings)
    for name in ("rewrite_base_url", "rewrite_model"):
        if not getattr(settings, name):
            raise InvalidInput(f"nothing can be rewritten: {ENVIRONMENT_PREFIX}{name.upper()} is not set; set it")
    if find_spec("openai") is None:
        raise InvalidInput("nothing can be rewritten: the openai client is missing; pip install 'turnledger[rewrite]'")
    return settings


def configured_settings() -> RewriteSettings | None:
    """The settings of the environment; None where neither endpoint nor model is named.

    Raises:
        InvalidInput: as `read_rewrite_settings`.
    """
    settings = read_settings(RewriteSettings)
    return read_rewrite_settings() if settings.rewrite_base_url or settings.rewrite_model else None
