"""A served dashboard, and people who look at it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, Page, chromium
from tests.dashboards import ACCOUNTS, PASSWORD
from tests.processes import Processes
from tests.stores import Stores


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """One Chromium for all tests."""
    with chromium() as started:
        yield started


@dataclass(frozen=True)
class Served:
    """The process `turnledger dashboard`, and a browser to look at it."""

    url: str
    browser: Chromium

    def person(self, name: str) -> Page:
        """Somebody who has logged in under this name."""
        page = self.browser.person()
        page.open(self.url)
        page.type_into("[name=name]", name)
        page.type_into("[name=password]", PASSWORD)
        page.click("button")
        page.wait("document.getElementById('figures') !== null && document.readyState === 'complete'")
        return page


@pytest.fixture
def served(stores: Stores, processes: Processes, browser: Chromium) -> Served:
    """A dashboard with an operator, anna, and a viewer, victor; it counts turns every second."""
    settings = {f"TURNLEDGER_{name.upper()}": value for name, value in ACCOUNTS.items()}
    environment = {
        "TURNLEDGER_DATABASE_URL": stores.database_url,
        "TURNLEDGER_REDIS_URL": stores.redis_url,
        "TURNLEDGER_DASHBOARD_SURVEY_S": "0.5",
        "TURNLEDGER_DASHBOARD_REFRESH_S": "1",
        **settings,
    }
    process = processes.command("dashboard", "--port", "0", environment=environment)
    found = re.search(r"http://\S+", process.wait_for_line("The dashboard is at"))
    assert found
    return Served(found[0], browser)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: the folder PICTURES, to look at them afterwards."""
    folder = Path(os.environ.get("PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
