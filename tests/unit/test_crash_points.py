"""Crash points: places where a process may be killed, and nothing at all without being asked."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnledger.store.crash_points import CRASH_POINTS, crash_point

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"""crash_point\(["']([a-z.]+)["']\)""")


def run(crash_at: str, passes: int) -> int:
    source = (
        f"from turnledger.store.crash_points import crash_point\nfor _ in range({passes}): crash_point('save.sent')"
    )
    return subprocess.run([sys.executable, "-c", source], env={"TURNLEDGER_CRASH_AT": crash_at}, check=False).returncode


def test_every_crash_point_stands_at_one_place_or_more_and_no_place_is_unlisted() -> None:
    """What a test names exists (FL-7)."""
    source = "\n".join(
        path.read_text() for folder in ("store", "checkpoint", "workers") for path in (ROOT / folder).rglob("*.py")
    )
    assert set(CALL.findall(source)) == set(CRASH_POINTS)


@pytest.mark.parametrize(
    ("crash_at", "passes", "code"),
    [
        ("save.sent", 1, -signal.SIGKILL),
        ("save.sent:3", 2, 0),
        ("save.sent:3", 3, -signal.SIGKILL),
        ("end.sent", 1, 0),
        ("", 1, 0),
    ],
)
def test_a_process_dies_where_its_environment_says_and_nowhere_else(crash_at: str, passes: int, code: int) -> None:
    """At the pass that is named, the first one otherwise (FL-7)."""
    assert run(crash_at, passes) == code


def test_without_being_asked_a_crash_point_does_nothing() -> None:
    """This very process goes on (FL-7)."""
    for name in CRASH_POINTS:
        crash_point(name)
