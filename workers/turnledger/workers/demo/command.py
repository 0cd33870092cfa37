"""`turnledger demo`."""

from importlib.resources import as_file, files

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.output import console, many, visible_lines
from turnledger.workers.cli.servers import environment, servers_in_words, the_records
from turnledger.workers.cli.stopping import unwind_on_stop
from turnledger.workers.demo.watching import Watcher
from turnledger.workers.replay.plan import Plan, read_plan
from turnledger.workers.replay.printing import print_problems, progress_bars, result_table
from turnledger.workers.replay.result import Result, read_result
from turnledger.workers.replay.stage import Stage, stage

SHOWN_CONVERSATION = "invoice-4471"
# The clock is made quicker than in a deployment, so that one can watch it.
QUICK_CLOCK = {"TURNLEDGER_OVERDUE_S": "3", "TURNLEDGER_SWEEP_S": "1"}


def run_demo(*, rounds: int, nodes: int, workers: int) -> int:
    """Play the sample, tell what is seen, read it back; the exit code, 1 when a number is wrong.

    Raises:
        TurnledgerError: the servers or the processes did not come up.
    """
    unwind_on_stop()
    screen = console()
    with as_file(files("turnledger.workers") / "sample" / "conversations.jsonl") as sample:
        plan = read_plan(sample, nodes=nodes, workers=workers, rounds=rounds)
        _introduce(screen, plan)
        with environment(QUICK_CLOCK), stage(plan, screen=screen) as playing:
            result = _play(screen, playing)
            _show_block(screen, playing)
            playing.log.wanted = not result.right
        _conclude(screen, result)
    return OK if result.right else NEEDS_A_PERSON


def _introduce(screen: Console, plan: Plan) -> None:
    screen.print("\n[bold]turnledger demo[/bold]\n")
    screen.print(
        "An agent's turns are checkpointed in Redis while they run. When a turn ends, a worker commits it to Postgres: "
        "only then is it history. The next turn of the conversation is given what happened before.\n"
    )
    parts = Table.grid(padding=(0, 2))
    parts.add_row(
        "  played", f"{many(plan.turns, 'turn')} of {many(plan.conversations, 'conversation')}, on {servers_in_words()}"
    )
    parts.add_row("  engine nodes", f"{plan.nodes}: play the turns, and wait for no commit")
    parts.add_row("  workers", f"{plan.workers}: commit them; one is killed in the middle of its work")
    parts.add_row("  clock", "1: commits what a dead worker left lying, here after 3 seconds, otherwise after 30")
    screen.print(parts)


def _play(screen: Console, playing: Stage) -> Result:
    _heading(screen, "1  The conversations are played")
    with the_records() as records, progress_bars(screen, total=playing.plan.turns) as show:
        watcher = Watcher(playing=playing, records=records, screen=screen, show=show)
        playing.play(watcher)
        watcher.finish()
    return read_result(playing)


def _show_block(screen: Console, playing: Stage) -> None:
    """What the last turn of one conversation was given."""
    turn_ids = _turns_of_shown(playing)
    if not turn_ids:
        return
    with the_records() as records:
        record, _ = records.read(turn_ids[-1])
    _heading(screen, "2  What a turn knows of the turns before it")
    screen.print(f"The last turn of the conversation {SHOWN_CONVERSATION} found this in its prompt:\n")
    screen.print(Panel(Text(visible_lines(record.earlier)), border_style="dim", padding=(1, 2)))


def _turns_of_shown(playing: Stage) -> list[str]:
    plan = playing.plan
    keys = [conversation.key(run) for run, conversation in plan.performances() if conversation.id == SHOWN_CONVERSATION]
    return playing.nodes.turns.get(keys[-1], [])


def _conclude(screen: Console, result: Result) -> None:
    _heading(screen, "3  Read back from Postgres")
    screen.print("Compared with what was played, message by message:\n")
    screen.print(result_table(result))
    screen.print()
    print_problems(screen, result)
    if result.right:
        screen.print("Every turn is there once, in order and unchanged.\n", style="bold green")
    else:
        screen.print("Something is wrong: see the numbers in red.\n", style="bold red")


def _heading(screen: Console, title: str) -> None:
    screen.print()
    screen.print(Rule(Text(title, style="bold"), align="left", style="dim"))
    screen.print()
