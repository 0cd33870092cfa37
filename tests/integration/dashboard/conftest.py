"""Dashboards over the servers of a test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dashboards import ACCOUNTS, Dashboard
from tests.stores import Stores

MakeDashboard = Callable[..., Dashboard]


@pytest.fixture
def make_dashboard(stores: Stores) -> Iterator[MakeDashboard]:
    """Makes dashboards with the settings that are given."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Dashboard:
            made = Dashboard(stores, **settings)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def dashboard(make_dashboard: MakeDashboard) -> Dashboard:
    """One with an operator, anna, and a viewer, victor."""
    return make_dashboard(**ACCOUNTS)


@pytest.fixture
def open_dashboard(make_dashboard: MakeDashboard) -> Dashboard:
    """One without accounts, as on a developer's machine."""
    return make_dashboard()
