"""`turnledger recover`: completed turns that wait on this node's disk, or in a Redis that no worker can drain."""

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.direct import DirectCommits
from turnledger.checkpoint.spool import Spool
from turnledger.store import InvalidInput, check_revision, read_settings
from turnledger.workers.cli.output import Output, console, many, print_json
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.draining import drain


def run_recover(*, also_pending: bool, output: Output) -> None:
    """Commit what this machine's spool holds of this deployment and, if wanted, all that is pending in Redis.

    Raises:
        InvalidInput: the spool folder cannot be used, or the live section.
        StoreUnavailable, StoreBusy, SchemaMismatch: the rest waits on.
        StoreRefused, CorruptData: a spooled turn cannot be stored, or does not say whose it is; names it.
        CheckpointUnavailable: Redis does not answer; the spool is done by then.
    """
    folder = read_settings(CheckpointSettings).spool_folder
    if fault := Spool(folder).fault():
        raise InvalidInput(f"{fault}; correct it, or TURNLEDGER_SPOOL_FOLDER")
    spool = Spool(folder)
    with the_database() as database, the_records() as records:
        check_revision(database)
        spooled = DirectCommits(records=records, database=database, spool=spool).replay_spool()
        drained = drain(records=records, database=database) if also_pending else 0
    home = database.home
    others = spool.whose(home).others
    if output == "json":
        told = {"spool": str(folder), "deployment": home.deployment_id, "spooled": spooled, "others": len(others)}
        print_json({**told, "drained": drained})
        return
    screen = console()
    screen.print(f"{many(spooled, 'turn')} recovered from {folder}.", soft_wrap=True)
    if others:
        left = f"{many(len(others), 'turn')} of other deployments left there, the oldest in {others[0]}; this one is "
        screen.print(f"{left}{home.deployment_id}.", soft_wrap=True)
    if also_pending:
        screen.print(f"{many(drained, 'pending turn')} committed without the queue.")
