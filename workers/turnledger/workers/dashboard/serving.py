"""`turnledger dashboard`: serves the application until it is told to end."""

import getpass
import logging
import socket
import sys
from contextlib import closing
from importlib.util import find_spec
from typing import Literal

from redis import Redis

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import connection_options, make_client
from turnledger.store import InvalidInput, TurnledgerError, check_revision, read_settings
from turnledger.workers.cli.output import console
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.cli.stopping import on_stop
from turnledger.workers.dashboard.settings import DashboardSettings

Announce = Literal["print", "silent"]
_EXTRA = ("rq_dashboard", "six", "flask", "waitress")


class DashboardMissing(TurnledgerError):
    """The extra `dashboard` is not installed: pip install "turnledger[dashboard]"."""


def is_installed() -> bool:
    """Whether everything that the dashboard needs is there."""
    return all(find_spec(name) for name in _EXTRA)


def check_installed() -> None:
    """Raises DashboardMissing unless everything that the dashboard needs is there."""
    if not is_installed():
        raise DashboardMissing


def print_password_hash() -> None:
    """Ask for a password and print what a setting holds in its place. Raises InvalidInput for an empty one."""
    check_installed()
    from turnledger.workers.dashboard.accounts import hash_password

    typed = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    sys.stdout.write(hash_password(typed) + "\n")


def check_accounts(settings: DashboardSettings) -> None:
    """Raises InvalidInput when the accounts cannot be read, or there are none where there have to be."""
    from turnledger.workers.dashboard.accounts import read_accounts

    read_accounts(settings)


def run_dashboard(*, host: str | None, port: int | None, announce: Announce = "print") -> None:
    """Serve until SIGINT or SIGTERM; requests in hand are finished.

    Raises:
        DashboardMissing: the extra is not installed.
        InvalidInput: the settings are wrong, the address is taken, or there are no accounts where there have to be.
        SchemaMismatch, StoreUnavailable, ...: it does not start.
    """
    check_installed()
    given = {"dashboard_host": host, "dashboard_port": port}
    settings = read_settings(DashboardSettings, **{name: value for name, value in given.items() if value is not None})
    on_stop(_end)
    with the_database() as database, the_records() as records:
        from turnledger.workers.dashboard.app import create_app
        from turnledger.workers.dashboard.survey import Surveyor

        check_accounts(settings)
        check_revision(database)
        surveyor = Surveyor(records, pause_s=settings.dashboard_survey_s)
        rq = _rq_client(records.settings)
        app = create_app(settings, records=records, database=database, rq=rq, surveyor=surveyor)
        surveyor.start()
        _serve(app, settings, announce=announce)


def _rq_client(settings: CheckpointSettings) -> Redis:
    """Bytes, as RQ wants them, and no patience: a Redis that does not answer must not hold the page up."""
    return make_client(settings, **connection_options(settings))


def free_port(settings: DashboardSettings) -> int:
    """The port of the settings where nobody listens there yet, else another one."""
    for port in (settings.dashboard_port, 0):
        with closing(socket.socket(_family(settings.dashboard_host))) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.dashboard_host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return settings.dashboard_port


def address(host: str, port: int) -> str:
    """Where a browser finds it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _serve(app: object, settings: DashboardSettings, *, announce: Announce) -> None:
    import waitress

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # warns of each request that waits for a thread
    host, port = settings.dashboard_host, settings.dashboard_port
    try:
        server = waitress.create_server(
            app,
            host=host,
            port=port,
            threads=settings.dashboard_threads,
            ident=None,
            clear_untrusted_proxy_headers=False,
        )
    except OSError as error:
        raise InvalidInput(
            f"the dashboard cannot listen on {host}, port {port}: {error.strerror or error}; choose another with "
            "--port or --host, or in TURNLEDGER_DASHBOARD_PORT or TURNLEDGER_DASHBOARD_HOST"
        ) from None
    listens = getattr(server, "effective_listen", None) or [(host, server.effective_port)]
    if announce == "print":
        console().print(f"The dashboard is at {address(host, int(listens[0][1]))}", soft_wrap=True, markup=False)
    server.run()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _end(*_: object) -> None:
    raise SystemExit(0)
