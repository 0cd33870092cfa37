"""`turnledger migrate`."""

from typing import Literal

from turnledger.store.migrate import make_roles, migrate
from turnledger.workers.cli.output import Output, console, print_json
from turnledger.workers.cli.servers import database_to_look_at

Roles = Literal["made", "as they are"]


def run_migrate(*, roles: Roles, output: Output) -> None:
    """Migrate the database of the environment and say where it stands.

    Raises:
        StoreUnavailable, StoreBusy, StoreMisconfigured, SchemaMismatch: it was not migrated, or the roles not made.
    """
    with database_to_look_at() as database:
        revision = migrate(database)
        made = make_roles(database) if roles == "made" else ()
    if output == "json":
        print_json({"revision": revision, "roles": list(made)})
        return
    screen = console()
    screen.print(f"The database is at schema revision {revision}, as this version needs it.", soft_wrap=True)
    if made:
        screen.print(f"The roles {', '.join(made)} have what they need; grant each to a login user.", soft_wrap=True)
