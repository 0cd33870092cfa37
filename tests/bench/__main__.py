"""`python -m tests.bench [names...]`: run the measurements and print them as ratios.

Names are those of the modules, or how they begin: draining, saving, starting, latency, completing, sweeping, replay,
resume, recovery, retaining, ageing, rendering, condensing, dashboard, memory. Without names all of them run.
"""

import argparse
import logging
import os
import sys

import structlog
from rich.console import Console

from tests.bench import (
    ageing,
    completing,
    condensing,
    dashboard,
    draining,
    latency,
    memory,
    recovery,
    rendering,
    replay,
    resume,
    retaining,
    saving,
    starting,
    sweeping,
)
from tests.bench.results import LATEST, print_report, print_verdict, write_results
from tests.bench.rig import Rig
from turnledger.workers.embedded import Durability, embedded_servers

MEASUREMENTS = {
    "draining": draining.measure,
    "saving": saving.measure,
    "starting": starting.measure,
    "latency": latency.measure,
    "completing": completing.measure,
    "sweeping": sweeping.measure,
    "replay": replay.measure,
    "resume": resume.measure,
    "recovery": recovery.measure,
    "retaining": retaining.measure,
    "ageing": ageing.measure,
    "rendering": rendering.measure,
    "condensing": condensing.measure,
    "dashboard": dashboard.measure,
    "memory": memory.measure,
}


def main() -> None:
    names = chosen_names()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"{os.cpu_count()} cores; load before: {os.getloadavg()[0]:.1f}", style="dim", highlight=False)
    console.print()
    reports = []
    with embedded_servers(durability=Durability.KEPT) as servers:
        rig = Rig(servers)
        for name in names:
            with console.status(f"measuring: {name}"):
                reports.append(MEASUREMENTS[name](rig))
            print_report(console, reports[-1])
        rig.close()
    write_results(reports)
    print_verdict(console, reports)
    console.print(f"written to {LATEST}")


def chosen_names() -> list[str]:
    """What the command line asks for, in the order in which it is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(MEASUREMENTS))
    asked = parser.parse_args().names or list(MEASUREMENTS)
    unknown = [name for name in asked if not any(known.startswith(name) for known in MEASUREMENTS)]
    if unknown:
        parser.error(f"no measurement is called {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
    return [known for known in MEASUREMENTS if known.startswith(tuple(asked))]


if __name__ == "__main__":
    main()
