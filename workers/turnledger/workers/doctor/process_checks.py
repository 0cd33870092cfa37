"""Checks of the processes that a deployment needs, and of what waits on this host."""

from collections.abc import Sequence
from pathlib import Path

from turnledger.checkpoint.spool import told_apart
from turnledger.workers.cli.output import many
from turnledger.workers.doctor.checks import Check, Look, either
from turnledger.workers.doctor.facts import Facts, Unasked


def _clock(facts: Facts) -> Look:
    return either("" if facts.postgres.get().clock_runs else "no clock holds its lock", fine="a clock runs")


def _workers(facts: Facts) -> Look:
    fleets = facts.fleets.get()
    wanted = {"commits": fleets.workers, "upkeep": fleets.upkeep}
    if facts.settings.rewriting == "on":
        wanted["rewrites"] = fleets.rewriters
    missing = [f"no worker of the {queue} was heard of lately" for queue, number in wanted.items() if not number]
    numbers = ", ".join(f"{number} of the {queue}" for queue, number in wanted.items())
    return either("; ".join(missing), fine=f"heard of lately: {numbers}")


def _spool(facts: Facts) -> Look:
    waiting, refused = _ours(facts.host.spooled, facts), _ours(facts.host.refused_spool, facts)
    faults = [facts.host.spool_fault] if facts.host.spool_fault else []
    if waiting:
        faults.append(f"{many(len(waiting), 'completed turn')} on this host's disk, the oldest in {waiting[0]}")
    if refused:
        faults.append(f"{many(len(refused), 'turn')} that Postgres refused for good, the first in {refused[0]}")
    others = len(facts.host.spooled) - len(waiting)
    left = f" but {many(others, 'turn')} of other deployments" if others else ""
    return either("; ".join(faults), fine=f"nothing waits on this host's disk{left}")


def _ours(paths: Sequence[Path], facts: Facts) -> Sequence[Path]:
    """Without those of other deployments; all, where it cannot be told which this one is."""
    postgres = facts.postgres.answer
    if isinstance(postgres, Unasked) or postgres.home is None:
        return paths
    whose = told_apart(paths, home=postgres.home)
    return [path for path in paths if path not in whose.others]


def _config(facts: Facts) -> Look:
    return either(facts.host.config_fault, fine="the live section can be used")


PROCESS_CHECKS = (
    Check(
        name="config",
        asks="Can the file that `TURNLEDGER_CONFIG` names be used?",
        why="A process that starts refuses it, and one that runs goes on with the last section that was good.",
        fix="Correct what the finding names, or unset `TURNLEDGER_CONFIG`.",
        look=_config,
    ),
    Check(
        name="clock",
        asks="Does some process hold the lock of the clock?",
        why="It commits what dead workers left, and asks for the sweeps of upkeep and retention: without it no "
        "recovery happens.",
        fix="Run `turnledger clock`, on two hosts where you can.",
        look=_clock,
    ),
    Check(
        name="workers",
        asks="Was a worker of each queue heard of within its time to live?",
        why="Without workers completed turns pile up until the clock takes them; without upkeep nothing is repaired.",
        fix="Run `turnledger worker`, `turnledger upkeep` and, where rewriting is on, `turnledger worker --queue "
        "rewrites`.",
        look=_workers,
    ),
    Check(
        name="spool",
        asks="Does nothing of this deployment wait in the spool folder of this host?",
        why="A turn in it is completed and in no server: later turns do not see it, and the disk is its only copy.",
        fix="`turnledger recover` on this host commits what waits, or names a file whose name does not say which "
        "deployment it is of. A file that ends in .refused was refused for good: "
        "read its reason in the log of that time, keep it or delete it. Where the folder cannot be used, let "
        "`TURNLEDGER_SPOOL_FOLDER` name one that this user may write to.",
        look=_spool,
    ),
)
