"""`turnledger alive`: whether the processes of this host or container still move."""

from collections.abc import Sequence
from dataclasses import asdict

from turnledger.store import InvalidInput, read_settings
from turnledger.workers.alive import Sign, signs
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.settings import WorkerSettings


def run_alive(*, output: Output) -> int:
    """Say it; the exit code, NEEDS_A_PERSON when no process lives or one of them hangs.

    Raises:
        InvalidInput: nothing says where processes leave their signs.
    """
    settings = read_settings(WorkerSettings)
    if settings.alive_folder is None:
        raise InvalidInput("TURNLEDGER_ALIVE_FOLDER is not set; set it to the folder where the processes leave signs")
    found = signs(settings.alive_folder)
    silent = [sign for sign in found if sign.silent_s > settings.alive_s]
    if output == "json":
        print_json({"alive": bool(found) and not silent, "signs": [asdict(sign) for sign in found]})
    else:
        console().print(_sentence(found, silent), soft_wrap=True, markup=False)
    return OK if found and not silent else NEEDS_A_PERSON


def _sentence(found: Sequence[Sign], silent: Sequence[Sign]) -> str:
    if silent:
        return " ".join(f"Process {sign.process} has been silent for {sign.silent_s:.0f} s." for sign in silent)
    if not found:
        return "No worker, upkeep or clock lives here."
    return f"Each moves: process {', '.join(str(sign.process) for sign in found)}."
