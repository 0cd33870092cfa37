"""A short soak; `make soak` is the long one."""

import signal
import subprocess
import sys

from tests.processes import ROOT

SECONDS = 25
PATIENCE_S = 240.0


def test_nothing_is_lost_or_doubled_while_everything_is_killed_in_turn() -> None:
    """Nodes, workers, upkeep, clocks and both servers; each kill is recovered from in time (FL-7, QU-4, HV-8)."""
    soak = subprocess.Popen(
        [sys.executable, "-m", "tests.soak", "--seconds", str(SECONDS), "--pace", "quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = soak.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        soak.send_signal(signal.SIGINT)  # it ends what it has started
        output, _ = soak.communicate()
    assert soak.returncode == 0, output
