"""What the dashboard can be told, one named value each."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnledger.store import ENVIRONMENT_PREFIX


class DashboardSettings(BaseSettings):
    """Settings of the dashboard, read from ``TURNLEDGER_*`` variables when not given."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    dashboard_host: str = Field(
        default="127.0.0.1",
        description="The address it listens on. Anything but loopback needs accounts, or it does not start.",
    )
    dashboard_port: int = Field(default=8181, ge=0, le=65_535, description="The port it listens on; 0: a free one.")
    dashboard_operators: str = Field(
        default="",
        repr=False,
        description="Accounts that may change things, as name=hash with a space between accounts; "
        "`turnledger dashboard --hash-password` makes a hash.",
    )
    dashboard_viewers: str = Field(
        default="", repr=False, description="Accounts that may look and change nothing, in the same form."
    )
    dashboard_secret: str = Field(
        default="",
        repr=False,
        description="Signs sessions, 32 random characters or more; the same for all replicas. Empty: a random one, and "
        "sessions end with the process.",
    )
    dashboard_https: Literal["off", "on"] = Field(
        default="off",
        description="on: a proxy serves it over HTTPS, so cookies are sent over HTTPS alone.",
    )
    dashboard_session_s: float = Field(
        default=43_200.0, gt=0, description="A login holds for so long: a working day and a little."
    )
    dashboard_failed_logins: int = Field(
        default=10, ge=1, description="Failed logins a minute, of all accounts together, before all have to wait."
    )
    dashboard_refresh_s: float = Field(default=5.0, ge=1, description="How often an open page asks for new figures.")
    dashboard_survey_s: float = Field(
        default=10.0,
        gt=0,
        description="The pause between two counts of turns by state, or three times what one took where that is "
        "longer: a count looks at each turn on its way.",
    )
    dashboard_threads: int = Field(default=4, ge=1, description="Requests answered at once; others wait their turn.")
