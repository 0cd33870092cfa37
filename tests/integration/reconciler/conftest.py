"""A reconciler over the test's own servers."""

from collections.abc import Iterator

import pytest

from tests.stores import Stores
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings


@pytest.fixture
def reconciler(stores: Stores) -> Iterator[Reconciler]:
    """With the settings of a deployment."""
    made = Reconciler(records=stores.records, database=stores.database, settings=WorkerSettings())
    yield made
    made.close()
