"""`python -m tests.bench [names...]`: run the measurements and print them as ratios.

Names are those of the modules: draining, saving, starting, latency, completing. Without names all of them run.
"""

import argparse
import logging
import sys

import structlog
from rich.console import Console

from tests.bench import completing, draining, latency, saving, starting
from tests.bench.results import LATEST, print_report, write_results
from tests.bench.rig import Rig
from turnledger.workers.embedded import Durability, embedded_servers

MEASUREMENTS = {
    "draining": draining.measure,
    "saving": saving.measure,
    "starting": starting.measure,
    "latency": latency.measure,
    "completing": completing.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(MEASUREMENTS))
    names = parser.parse_args().names or list(MEASUREMENTS)
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        parser.error(f"no measurement is called {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    console = Console(width=None if sys.stdout.isatty() else 120)
    reports = []
    with embedded_servers(durability=Durability.KEPT) as servers:
        rig = Rig(servers)
        for name in names:
            with console.status(f"measuring: {name}"):
                reports.append(MEASUREMENTS[name](rig))
            print_report(console, reports[-1])
        rig.close()
    write_results(reports)
    console.print(f"written to {LATEST}")


if __name__ == "__main__":
    main()
