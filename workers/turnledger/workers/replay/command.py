"""`turnledger replay`."""

from pathlib import Path

from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.output import Output, console, error_console, many, print_json
from turnledger.workers.cli.servers import servers_in_words, use_up
from turnledger.workers.cli.stopping import unwind_on_stop
from turnledger.workers.replay.plan import Plan, read_plan
from turnledger.workers.replay.printing import print_problems, progress_bars, result_table
from turnledger.workers.replay.result import read_result
from turnledger.workers.replay.stage import stage


def run_replay(file: Path, *, nodes: int, workers: int, output: Output) -> int:
    """Play a file, check it in Postgres, print the result; the exit code, 1 when a number is wrong.

    Raises:
        InvalidInput: the file is refused, before anything was started.
        TurnledgerError: the servers or the processes did not come up.
    """
    unwind_on_stop()
    plan = read_plan(file, nodes=nodes, workers=workers)
    use_up()
    screen = console() if output == "text" else error_console()
    screen.print(_introduction(plan), soft_wrap=True, markup=False)
    with stage(plan, screen=screen) as playing:
        with progress_bars(screen, total=plan.turns) as show:
            playing.play(show)
        result = read_result(playing)
        playing.log.wanted = not result.right
    if output == "json":
        print_json(result.members())
    else:
        screen.print("\nRead back from Postgres, and compared with the file:\n")
        screen.print(result_table(result))
    print_problems(screen, result)
    return OK if result.right else NEEDS_A_PERSON


def _introduction(plan: Plan) -> str:
    lines = [
        f"{plan.file}: {many(plan.conversations, 'conversation')}, {many(plan.turns, 'turn')}.",
        f"{many(plan.nodes, 'engine node')} and {many(plan.workers, 'worker')}, on {servers_in_words()}.",
        f"The keys of these conversations begin with replay:{plan.run}:\n",
    ]
    if plan.messages_before:
        lines.insert(1, f"Not played, before the first user message: {many(plan.messages_before, 'message')}.")
    return "\n".join(lines)
