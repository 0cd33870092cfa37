"""`turnledger migrate`."""

from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.cli.servers import migrate_here


def run_migrate(*, output: Output) -> None:
    """Migrate the database of the environment and say where it stands.

    Raises:
        StoreUnavailable, StoreBusy, StoreMisconfigured, SchemaMismatch: it was not migrated.
    """
    revision = migrate_here()
    if output == "json":
        print_json({"revision": revision})
    else:
        console().print(f"The database is at schema revision {revision}, as this version needs it.")
