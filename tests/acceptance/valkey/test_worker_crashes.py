"""Turns that are committed from a Valkey, by workers of which one is killed."""

import pytest

from tests.acceptance.workers.test_worker_crashes import POINTS
from tests.acceptance.workers.test_worker_crashes import (
    test_another_worker_alone_takes_over_from_a_killed_one as _whole,
)
from tests.engine import Engine
from tests.processes import Processes


@pytest.mark.parametrize("point", POINTS)
def test_another_worker_takes_over_from_a_killed_one_over_valkey(
    engine: Engine, processes: Processes, point: str
) -> None:
    """With RQ's blocking moves, its maintenance and all our scripts (CK-14, FL-7, QU-9)."""
    _whole(engine, processes, point)
