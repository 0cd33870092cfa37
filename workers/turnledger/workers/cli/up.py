"""`turnledger up`: everything on this machine, in the foreground."""

import threading
from pathlib import Path

from rich.console import Console

from turnledger.checkpoint import CheckpointSettings
from turnledger.store import TurnledgerError, read_settings
from turnledger.workers.cli.exits import NEEDS_A_PERSON
from turnledger.workers.cli.output import complain, console, many
from turnledger.workers.cli.processes import check_servers, child_command, rewriting_is_on, worker_command
from turnledger.workers.cli.servers import environment, migrate_here, urls
from turnledger.workers.cli.stopping import on_stop, unwind_on_stop
from turnledger.workers.dashboard.serving import address, check_accounts, free_port, is_installed
from turnledger.workers.dashboard.settings import DashboardSettings
from turnledger.workers.embedded import EmbeddedServers, embedded_servers, running_servers
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.supervisor import Supervisor

POLL_S = 0.2


class AlreadyUp(TurnledgerError):
    """turnledger is up in this folder already."""


def run_up(folder: Path, *, workers: int) -> int:
    """Run the stack until SIGINT or SIGTERM; the exit code, 0 when everything ended cleanly.

    Raises:
        AlreadyUp: the servers run in this folder.
        EmbeddedMissing, EmbeddedServerFailed: the servers cannot run here.
    """
    screen = console()
    unwind_on_stop()
    _refuse_second(folder)
    screen.print("Starting Postgres and Redis ...")
    with embedded_servers(folder) as servers, environment(urls(servers)):
        migrate_here()
        check_servers()
        rewriting_is_on()
        page = _free_address()
        _introduce(screen, servers, folder=folder, workers=workers)
        if page is not None:
            screen.print(f"The dashboard is at {address(*page)}\n", soft_wrap=True, markup=False)
        screen.print("Ctrl-C stops it; the data stays for the next `turnledger up`.\n")
        code = _supervise(screen, servers, commands=_commands(workers=workers, page=page))
    screen.print("Stopped.")
    return code


def _refuse_second(folder: Path) -> None:
    found = running_servers(folder)
    if found is not None:
        raise AlreadyUp(
            f"another `turnledger up` runs in {folder.resolve()}, with {found.database_url} and {found.redis_url}; "
            "use it, stop it with Ctrl-C where it runs, or choose another --folder"
        )


def _introduce(screen: Console, servers: EmbeddedServers, *, folder: Path, workers: int) -> None:
    screen.print(
        f"""
[bold]turnledger is up[/bold]: Postgres, Redis, {many(workers, "worker")}, upkeep and the clock.
Its data is in {folder.resolve()}.

Commands of turnledger that run in this folder find it. For everything else:
""",
        soft_wrap=True,
    )
    for name, url in urls(servers).items():
        screen.print(f"  export {name}={url}", soft_wrap=True, markup=False)
    screen.print()


def _free_address() -> tuple[str, int] | None:
    """Where the dashboard can listen; None: its extra is not installed.

    Raises:
        InvalidInput: its settings are wrong.
    """
    if not is_installed():
        return None
    settings = read_settings(DashboardSettings)
    check_accounts(settings)
    return settings.dashboard_host, free_port(settings)


def _commands(*, workers: int, page: tuple[str, int] | None) -> list[list[str]]:
    commands = [*[child_command("worker")] * workers, child_command("upkeep"), child_command("clock")]
    if rewriting_is_on():
        commands.append(worker_command(read_settings(CheckpointSettings).rewrite_queue))
    if page is not None:
        commands.append([*child_command("dashboard"), "--port", str(page[1]), "--quiet"])
    return commands


def _supervise(screen: Console, servers: EmbeddedServers, *, commands: list[list[str]]) -> int:
    """Keep the processes alive until a signal, or until a server is gone; then end them."""
    stopped = threading.Event()
    supervisor = Supervisor(commands, settings=read_settings(WorkerSettings))
    on_stop(lambda *_: stopped.set())
    while not stopped.wait(POLL_S):
        supervisor.tend()
        if gone := _gone(servers):
            name, log = gone
            complain(f"{name} has ended; its log is {log}. Start `turnledger up` again: it goes on with what is there")
            supervisor.end()
            return NEEDS_A_PERSON
    on_stop(_hurry)
    screen.print(
        "\nStopping: the workers finish what they have in hand. A second Ctrl-C does not wait for them.", soft_wrap=True
    )
    return supervisor.end()


def _gone(servers: EmbeddedServers) -> tuple[str, Path] | None:
    named = (("Postgres", servers.postgres), ("Redis", servers.redis))
    return next(((name, server.log.resolve()) for name, server in named if not server.runs_somewhere()), None)


def _hurry(number: int, _: object) -> None:
    raise SystemExit(128 + number)
