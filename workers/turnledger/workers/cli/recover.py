"""`turnledger recover`: completed turns that wait on this node's disk, or in a Redis that no worker can drain."""

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.direct import DirectCommits
from turnledger.checkpoint.spool import Spool
from turnledger.store import InvalidInput, check_revision, read_settings
from turnledger.workers.cli.output import Output, console, many, print_json
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.draining import drain


def run_recover(*, also_pending: bool, output: Output) -> None:
    """Commit what the spool of this machine holds and, if wanted, all that is pending in Redis.

    Raises:
        InvalidInput: the spool folder cannot be used, or the live section.
        StoreUnavailable, StoreBusy, SchemaMismatch: the rest waits on.
        StoreRefused, CorruptData: a spooled turn cannot be stored; names it.
        CheckpointUnavailable: Redis does not answer; the spool is done by then.
    """
    folder = read_settings(CheckpointSettings).spool_folder
    if fault := Spool(folder).fault():
        raise InvalidInput(f"{fault}; correct it, or TURNLEDGER_SPOOL_FOLDER")
    with the_database() as database, the_records() as records:
        check_revision(database)
        spooled = DirectCommits(records=records, database=database, spool=Spool(folder)).replay_spool()
        drained = drain(records=records, database=database) if also_pending else 0
    if output == "json":
        print_json({"spool": str(folder), "spooled": spooled, "drained": drained})
        return
    screen = console()
    screen.print(f"{many(spooled, 'turn')} recovered from {folder}.", soft_wrap=True)
    if also_pending:
        screen.print(f"{many(drained, 'pending turn')} committed without the queue.")
