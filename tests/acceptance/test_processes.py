"""The helper for processes sees what they print and leaves none behind."""

import signal

import psutil
import pytest

from tests.ledger_checks import wait_for
from tests.processes import Processes, lives


def test_a_line_is_awaited_and_the_exit_code_is_seen(processes: Processes) -> None:
    process = processes.snippet("import sys; print('ready', sys.argv[1]); sys.exit(3)", "now")
    assert process.wait_for_line("ready") == "ready now"
    assert process.wait() == 3


def test_a_line_that_never_comes_fails_with_the_output(processes: Processes) -> None:
    process = processes.snippet("print('something else')")
    with pytest.raises(AssertionError, match="something else"):
        process.wait_for_line("ready")


def test_settings_of_this_process_are_not_handed_on_but_given_ones_are(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os; print(os.environ.get('TURNLEDGER_A'), os.environ.get('TURNLEDGER_B'))"
    monkeypatch.setenv("TURNLEDGER_A", "leaked")
    with Processes() as started:
        process = started.snippet(source, environment={"TURNLEDGER_B": "given"})
        assert process.wait_for_line("given") == "None given"


def test_a_log_line_in_the_middle_of_a_printed_one_leaves_it_whole(processes: Processes) -> None:
    source = "import sys; print('ready', end=' '); print('a warning', file=sys.stderr); print('now')"
    process = processes.snippet(source)
    assert process.wait_for_line("ready") == "ready now"
    assert process.wait_for_line("warning") == "a warning"


def test_a_signal_reaches_the_process(processes: Processes) -> None:
    process = processes.snippet("import time; print('ready'); time.sleep(60)")
    process.wait_for_line("ready")
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


def test_descendants_in_sessions_of_their_own_are_gone_afterwards() -> None:
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    print("child", os.getpid(), flush=True)
time.sleep(60)
"""
    with Processes() as started:
        process = started.snippet(source)
        child = psutil.Process(int(process.wait_for_line("child").split()[1]))
        process.kill()
        assert child.is_running()
    wait_for(lambda: not lives(child))
