"""The process `turnledger dashboard`, and the one that `turnledger up` starts (OP-4)."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.dashboards import ACCOUNTS
from tests.ledger_checks import wait_until
from tests.processes import Processes
from turnledger.store import InvalidInput
from turnledger.workers.cli.exits import INVALID, OK
from turnledger.workers.dashboard import serving
from turnledger.workers.dashboard.accounts import hash_password
from turnledger.workers.dashboard.settings import DashboardSettings


def _environment(database_url: str, redis_url: str, **more: str) -> dict[str, str]:
    return {"TURNLEDGER_DATABASE_URL": database_url, "TURNLEDGER_REDIS_URL": redis_url, **more}


def _get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urlopen(Request(url, headers={"Accept": "text/html", **headers}), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _once_served(url: str) -> str:
    """The page, as soon as somebody answers."""
    pages: list[str] = []

    def answers() -> None:
        try:
            pages.append(_get(url)[1])
        except OSError as error:
            raise AssertionError(str(error)) from None

    wait_until(answers)
    return pages[-1]


def test_it_serves_until_it_is_told_to_end(database_url: str, redis_url: str, processes: Processes) -> None:
    """Over a real socket, without saying what serves it; SIGTERM ends it well (OP-4, OP-6)."""
    started = processes.command("dashboard", "--port", "0", environment=_environment(database_url, redis_url))
    url = started.wait_for_line("The dashboard is at").split()[-1]
    assert url.startswith("http://127.0.0.1:")
    with urlopen(url, timeout=20) as answer:
        assert answer.status == 200
        assert answer.headers["Server"] is None
        assert "No worker is known" in answer.read().decode()
    assert _get(f"{url}rq/requeue/commits")[0] == 405
    assert _get(url, **{"X-Forwarded-For": "203.0.113.9"})[0] == 403
    started.signal(signal.SIGTERM)
    assert started.wait() == OK


def test_it_refuses_to_be_open_to_others(database_url: str, redis_url: str, processes: Processes) -> None:
    """Unless it has accounts (OP-4)."""
    environment = _environment(database_url, redis_url)
    refused = processes.command("dashboard", "--host", "0.0.0.0", "--port", "0", environment=environment)
    assert refused.wait() == INVALID
    assert "TURNLEDGER_DASHBOARD_OPERATORS" in refused.output
    accounts = {f"TURNLEDGER_{name.upper()}": value for name, value in ACCOUNTS.items()}
    started = processes.command(
        "dashboard", "--host", "0.0.0.0", "--port", "0", environment={**environment, **accounts}
    )
    port = started.wait_for_line("The dashboard is at").rstrip("/").rpartition(":")[2]
    status, page = _get(f"http://127.0.0.1:{port}/")
    assert (status, "Password" in page) == (200, True)


def test_a_port_that_is_taken_is_named(database_url: str, redis_url: str, processes: Processes) -> None:
    """In one line (OP-4)."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = processes.command("dashboard", "--port", port, environment=_environment(database_url, redis_url))
        assert refused.wait() == INVALID
        assert f"port {port}" in refused.output
        assert "choose another with --port" in refused.output
        free = serving.free_port(DashboardSettings(dashboard_port=int(port)))
    assert free != int(port)


def test_a_password_becomes_a_hash() -> None:
    """Which an account takes; the password is nowhere in it (OP-4)."""
    command = [sys.executable, "-m", "turnledger.workers", "dashboard", "--hash-password"]
    made = subprocess.run(command, input="correct horse\n", capture_output=True, text=True, check=True)
    assert re.fullmatch(r"scrypt:\S+\$\S+\$[0-9a-f]+\n", made.stdout)
    with pytest.raises(InvalidInput, match="empty"):
        hash_password("")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And `turnledger up` goes without it (OP-4)."""
    monkeypatch.setattr(serving, "find_spec", lambda name: None if name == "six" else object())
    assert not serving.is_installed()
    with pytest.raises(serving.DashboardMissing, match=r"turnledger\[dashboard\]"):
        serving.run_dashboard(host=None, port=None)


def test_up_starts_it_and_says_where_it_is(processes: Processes, tmp_path: Path) -> None:
    """With nobody's help (OP-4, OP-1)."""
    started = processes.command("up", "--workers", "1", "--folder", str(tmp_path / "data"))
    url = started.wait_for_line("The dashboard is at").split()[-1]
    assert "Pending" in _once_served(url)
    started.signal(signal.SIGTERM)
    assert started.wait() == OK
