"""The command `turnledger`: each command here says what it takes and leaves the work to a module of its own."""

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from turnledger.workers.cli.group import DEPLOY, FLAG, LOOK, TRY, command, new_app
from turnledger.workers.cli.logs import configure_logging
from turnledger.workers.cli.output import Output
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL, UP_FOLDER, use_servers
from turnledger.workers.cli.streams import open_streams

app = new_app(
    "A durable memory of its conversations for an agent engine: a turn is checkpointed in Redis while it runs, and "
    "committed to Postgres when it has ended.\n\n"
    "TURNLEDGER_DATABASE_URL and TURNLEDGER_REDIS_URL name the servers. Without them, commands find the "
    "`turnledger up` of the folder in which they run. New here? `turnledger demo` needs nothing."
)
_command = partial(command, app)

Json = Annotated[bool, typer.Option("--json", metavar=FLAG, help="One JSON object instead of text.")]
Parent = Annotated[int, typer.Option("--parent", hidden=True)]
Log = Annotated[Path | None, typer.Option("--log", hidden=True)]


def _output(*, as_json: bool) -> Output:
    return "json" if as_json else "text"


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    app(prog_name="turnledger")


def _show_version(*, value: bool) -> None:
    if value:
        typer.echo(version("turnledger"))
        raise typer.Exit


@app.callback()
def _every_command(
    *,
    _: Annotated[
        bool, typer.Option("--version", metavar=FLAG, callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    configure_logging()


@_command(TRY, "up --workers 2")
def up(
    *,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Worker processes.")] = 2,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the data is kept.")] = UP_FOLDER,
) -> None:
    """Run Postgres, Redis, workers, upkeep, the clock and the dashboard in the foreground; Ctrl-C stops them."""
    from turnledger.workers.cli.up import run_up

    raise typer.Exit(run_up(folder, workers=workers))


@_command(TRY, "demo")
def demo(
    *,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How often the sample is played.")] = 25,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Engine-node processes.")] = 2,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Worker processes.")] = 2,
) -> None:
    """Watch it work: conversations are played, a worker is killed on the way, and Postgres tells what became of them.

    It starts servers of its own and removes them afterwards, unless the environment names some.
    """
    from turnledger.workers.demo import run_demo

    raise typer.Exit(run_demo(rounds=rounds, nodes=nodes, workers=workers))


@_command(TRY, "replay chats.jsonl --nodes 2 --workers 2 --json")
def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", readable=False, help='A chat in OpenAI format a line: {"id": ..., "messages": [...]}.'
        ),
    ],
    *,
    nodes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Engine-node processes; they share the conversations.")
    ] = 1,
    workers: Annotated[int, typer.Option(metavar="N", min=0, help="Worker processes; 0: those that run already.")] = 1,
    as_json: Json = False,
) -> None:
    """Play conversations as an engine would, then check in Postgres that each turn is there once, in order, unchanged.

    Servers: those of the environment, else of the `turnledger up` of this folder, else its own, which it removes.
    """
    from turnledger.workers.replay import run_replay

    raise typer.Exit(run_replay(file, nodes=nodes, workers=workers, output=_output(as_json=as_json)))


@_command(DEPLOY, "worker --processes 4")
def worker(
    *,
    processes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Worker processes; several are kept alive by this one.")
    ] = 1,
    burst: Annotated[bool, typer.Option("--burst", metavar=FLAG, help="End when the queue is empty.")] = False,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The queue to work off: commits, or rewrites where a model condenses payloads."
        ),
    ] = None,
    parent: Parent = 0,
    log: Log = None,
) -> None:
    """Commit completed turns to Postgres. SIGTERM finishes the turns in hand and ends with 0.

    With `--queue rewrites` it has over-long tool arguments and errors condensed, before their turns are committed.
    """
    from turnledger.workers.cli.processes import be_a_child, work

    be_a_child(parent=parent, log=log)
    use_servers()
    raise typer.Exit(work(processes=processes, until="empty" if burst else "stopped", queue=queue))


@_command(DEPLOY, "clock")
def clock(*, parent: Parent = 0, log: Log = None) -> None:
    """Commit what a dead worker left lying. Run it on any number of replicas: one at a time does the work."""
    from turnledger.workers.cli.processes import be_a_child, tick

    be_a_child(parent=parent, log=log)
    use_servers()
    tick()


@_command(DEPLOY, "upkeep")
def upkeep(*, parent: Parent = 0, log: Log = None) -> None:
    """Repair turns on which Redis and Postgres disagree, whenever the clock or an engine node asks for it."""
    from turnledger.workers.cli.processes import be_a_child
    from turnledger.workers.cli.upkeep import run_upkeep

    be_a_child(parent=parent, log=log)
    use_servers()
    raise typer.Exit(run_upkeep())


@_command(DEPLOY, "dashboard", "dashboard --hash-password")
def dashboard(
    *,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to listen on, else that of the settings.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65_535, help="The port; 0: a free one.")
    ] = None,
    hash_password: Annotated[
        bool,
        typer.Option(
            "--hash-password", metavar=FLAG, help="Ask for a password and print the hash that an account needs."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", hidden=True)] = False,
    parent: Parent = 0,
    log: Log = None,
) -> None:
    """Serve the page for operators, with rq-dashboard behind the same login. Needs the extra `dashboard`.

    It listens on loopback, where it needs no login; anywhere else it does not start without accounts.
    """
    from turnledger.workers.cli.processes import be_a_child
    from turnledger.workers.dashboard.serving import print_password_hash, run_dashboard

    if hash_password:
        print_password_hash()
        return
    be_a_child(parent=parent, log=log)
    use_servers()
    run_dashboard(host=host, port=port, announce="silent" if quiet else "print")


@_command(DEPLOY, "migrate --roles")
def migrate(
    *,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", metavar=FLAG, help="Also make the roles owner, engine, worker and reader, without passwords."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring the database to this version's schema. Safe to repeat, and from many replicas at once."""
    from turnledger.workers.cli.migrating import run_migrate

    use_servers(DATABASE_URL)
    run_migrate(roles="made" if roles else "as they are", output=_output(as_json=as_json))


@_command(DEPLOY, "acl > turnledger.acl")
def acl(*, as_json: Json = False) -> None:
    """Print what engine nodes, workers and readers may do in Redis, as lines of an ACL file. No server is asked."""
    from turnledger.workers.cli.acl import run_acl

    run_acl(output=_output(as_json=as_json))


@_command(DEPLOY, "alive")
def alive(*, as_json: Json = False) -> None:
    """Tell whether the worker, upkeep or clock of this host or container still moves. No server is asked.

    They leave signs of life where TURNLEDGER_ALIVE_FOLDER says.
    """
    from turnledger.workers.cli.alive import run_alive

    raise typer.Exit(run_alive(output=_output(as_json=as_json)))


@_command(DEPLOY, "wire > wire.json")
def wire(*, as_json: Json = False) -> None:
    """Print what an engine in another language builds upon: scripts, statements, versions. No server is asked.

    It is one JSON object, with `--json` on one line.
    """
    from turnledger.workers.cli.wire import run_wire

    run_wire(output=_output(as_json=as_json))


@_command(LOOK, "status --json")
def status(*, as_json: Json = False) -> None:
    """Show what is on its way, what is stored, who works, and what needs a person."""
    from turnledger.workers.cli.status import run_status

    use_servers()
    raise typer.Exit(run_status(output=_output(as_json=as_json)))


@_command(LOOK, "doctor --role engine")
def doctor(
    *,
    role: Annotated[
        Literal["engine", "worker", "reader"],
        typer.Option(metavar="engine|worker|reader", help="Whose rights in Redis this user should have."),
    ] = "worker",
    as_json: Json = False,
) -> None:
    """Check servers and deployment: what is wrong, why it matters, and what to do. Nothing is changed."""
    from turnledger.workers.cli.doctor import run_doctor

    use_servers()
    raise typer.Exit(run_doctor(role=role, output=_output(as_json=as_json)))


@_command(LOOK, "show lead jira:POC-7 --events", "show --turn 6f1c0a52-77d1-4f0e-9d2b-8a3f5f0d9e11")
def show(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="The agent, e.g. lead.")] = None,
    conversation: Annotated[
        str | None, typer.Argument(metavar="CONVERSATION", help="The conversation key, e.g. jira:POC-7.")
    ] = None,
    *,
    turn: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Instead, one turn, whole. The first 8 characters of its id or more will do."),
    ] = None,
    log: Annotated[
        bool, typer.Option("--events", metavar=FLAG, help="Instead, its events in order, without their contents.")
    ] = False,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="How many of the newest events.")] = 100,
    before: Annotated[
        int | None, typer.Option(metavar="SEQ", min=0, help="With --events: only those before this seq.")
    ] = None,
    history: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="Instead, the model history of this version.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one ledger, which is one agent's history of one conversation; or one turn.

    Of a ledger: its entries, its newest events, and the turns on their way.
    """
    from turnledger.workers.cli.event_log import show_events
    from turnledger.workers.cli.show import show_history, show_ledger, show_turn

    output = _output(as_json=as_json)
    _check_show(agent, conversation, turn=turn, log=log, before=before, history=history)
    use_servers()
    if agent is None or conversation is None:
        show_turn(turn or "", output=output)
    elif log:
        show_events(agent, conversation=conversation, last=last, before=before, output=output)
    elif history is not None:
        show_history(agent, conversation=conversation, version=history, output=output)
    else:
        show_ledger(agent, conversation=conversation, last=last, output=output)


def _check_show(
    agent: str | None,
    conversation: str | None,
    *,
    turn: str | None,
    log: bool,
    before: int | None,
    history: int | None,
) -> None:
    """Raises BadParameter when this does not name one thing to show."""
    if turn is not None and (agent is not None or log or history is not None):
        raise typer.BadParameter("--turn ID stands alone")
    if turn is None and (agent is None or conversation is None):
        raise typer.BadParameter("name AGENT and CONVERSATION, or --turn ID alone")
    if log and history is not None:
        raise typer.BadParameter("--events and --version show different things: give one of them")
    if before is not None and not log:
        raise typer.BadParameter("--before goes with --events")


@_command(LOOK, "block lead jira:POC-7 > block.txt")
def block(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent, e.g. lead.")],
    conversation: Annotated[str, typer.Argument(metavar="CONVERSATION", help="The conversation key, e.g. jira:POC-7.")],
    *,
    task: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the whole user message for this task.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what the next turn would be shown of the earlier ones, byte for byte; its size goes to standard error.

    Turns that are completed and not yet committed are in it, as they will be in the next start. Nothing is written.
    """
    from turnledger.workers.cli.block import print_block

    use_servers()
    print_block(agent, conversation=conversation, task=task, output=_output(as_json=as_json))


@_command(LOOK, "requeue 6f1c0a52-77d1-4f0e-9d2b-8a3f5f0d9e11")
def requeue(
    turn: Annotated[
        str, typer.Argument(metavar="ID", help="The turn's id; `turnledger status` names the rejected ones.")
    ],
    *,
    as_json: Json = False,
) -> None:
    """Try the commit of a rejected turn again, once the cause is repaired."""
    from turnledger.workers.cli.requeue import run_requeue

    use_servers()
    run_requeue(turn, output=_output(as_json=as_json))


@_command(LOOK, "reconcile --dry-run")
def reconcile(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar=FLAG, help="Only print what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Look at every turn once and repair those on which Redis and Postgres disagree.

    Safe to repeat, and beside others.
    """
    from turnledger.workers.cli.upkeep import run_reconcile

    use_servers()
    raise typer.Exit(run_reconcile(mode="look" if dry_run else "repair", output=_output(as_json=as_json)))


@_command(LOOK, "recover --drain")
def recover(
    *,
    drain: Annotated[
        bool, typer.Option("--drain", metavar=FLAG, help="Also commit all that is pending, without the queue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Commit the turns that wait on this machine's disk because no store took them. Safe to repeat."""
    from turnledger.workers.cli.recover import run_recover

    use_servers()
    run_recover(also_pending=drain, output=_output(as_json=as_json))


@_command(DEPLOY, "budget", "budget --agent lead --tokens 100000", "budget --deployment --tokens unlimited")
def budget(
    *,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Set this agent's budget.")] = None,
    deployment: Annotated[
        bool, typer.Option("--deployment", metavar=FLAG, help="Set the budget of the whole deployment.")
    ] = False,
    tokens: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Tokens a window, or unlimited; 0 asks no model.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or set how many tokens may be spent on condensing payloads in a window, which is a day. In force at once."""
    from turnledger.workers.cli.budget import set_budget, show_budgets

    if (agent is not None) + deployment > 1 or (tokens is None) != (agent is None and not deployment):
        raise typer.BadParameter("to set a budget, give --tokens and either --agent NAME or --deployment")
    use_servers(REDIS_URL)
    if tokens is None:
        show_budgets(output=_output(as_json=as_json))
    else:
        set_budget(tokens, agent=agent, output=_output(as_json=as_json))


@app.command(hidden=True)
def node(
    file: Path,
    *,
    run: Annotated[str, typer.Option()],
    rounds: Annotated[int, typer.Option(metavar="N", min=1)],
    share: Annotated[str, typer.Option()],
    parent: Parent = 0,
    log: Log = None,
) -> None:
    """Play a share of a file's conversations, for `replay` and `demo`."""
    from turnledger.workers.cli.processes import be_a_child
    from turnledger.workers.replay.node import play_share

    be_a_child(parent=parent, log=log)
    play_share(file, run=run, rounds=rounds, share=share)
