"""`turnledger migrate`."""

from typing import Literal

from turnledger.store.migrate import make_roles
from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.cli.servers import migrate_here, the_database

Roles = Literal["made", "as they are"]


def run_migrate(*, roles: Roles, output: Output) -> None:
    """Migrate the database of the environment and say where it stands.

    Raises:
        StoreUnavailable, StoreBusy, StoreMisconfigured, SchemaMismatch: it was not migrated, or the roles not made.
    """
    revision = migrate_here()
    made = _make_roles() if roles == "made" else ()
    if output == "json":
        print_json({"revision": revision, "roles": list(made)})
        return
    screen = console()
    screen.print(f"The database is at schema revision {revision}, as this version needs it.", soft_wrap=True)
    if made:
        screen.print(f"The roles {', '.join(made)} have what they need; grant each to a login user.", soft_wrap=True)


def _make_roles() -> tuple[str, ...]:
    with the_database() as database:
        return make_roles(database)
