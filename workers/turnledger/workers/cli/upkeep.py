"""`turnledger upkeep` and `turnledger reconcile`: turns on which Redis and Postgres disagree are put right."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from turnledger.checkpoint import CheckpointSettings
from turnledger.store import check_revision, read_settings
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.output import Output, console, many, print_json, visible
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.reconciler import Finding, Reconciler, Report
from turnledger.workers.reconciler.decisions import Tone
from turnledger.workers.reconciler.sweeping import Mode
from turnledger.workers.settings import WorkerSettings
from turnledger.workers.worker import run_worker


def run_upkeep() -> int:
    """Work off the jobs of upkeep until SIGTERM; the exit code. Raises as `run_worker`."""
    return run_worker(queue=read_settings(CheckpointSettings).upkeep_queue)


def run_reconcile(*, mode: Mode, output: Output) -> int:
    """Sweep once and print what was done, or would be; the exit code, 1 when somebody should look at a turn.

    Raises:
        StoreUnavailable, CheckpointUnavailable: a server went away; what was done stays done.
        StoreMisconfigured, CheckpointMisconfigured, SchemaMismatch: a person has to act.
    """
    findings: list[Finding] = []
    with the_database() as database, the_records() as records:
        check_revision(database)
        reconciler = Reconciler(records=records, database=database, settings=read_settings(WorkerSettings))
        try:
            report = reconciler.sweep(mode=mode, tell=findings.append)
        finally:
            reconciler.close()
    if output == "json":
        print_json({**asdict(report), "mode": mode, "findings": [_plain(finding) for finding in findings]})
    else:
        _print(report, findings, mode=mode)
    return NEEDS_A_PERSON if report.reported else OK


def _plain(finding: Finding) -> dict[str, Any]:
    action = finding.action
    return {
        "turn_id": finding.turn_id,
        "agent": finding.agent,
        "conversation": finding.conversation,
        "action": action.do.value,
        "requirement": action.requirement,
        "reason": action.reason,
        "reported": action.tone is Tone.REPORTED,
        "outcome": finding.outcome,
    }


def _print(report: Report, findings: list[Finding], *, mode: Mode) -> None:
    screen = console()
    if findings:
        screen.print(_table(findings, mode=mode))
    looked = f"{many(report.examined, 'turn')} looked at"
    if mode == "look":
        screen.print(f"{looked}, {many(sum(report.done.values()), 'action')} would follow; nothing was written.")
        return
    left = f"{report.changed} changed meanwhile, {report.postponed} postponed"
    screen.print(f"{looked}, {many(sum(report.done.values()), 'action')} done, {left}.", soft_wrap=True)


def _table(findings: list[Finding], *, mode: Mode) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("turn", "agent", "conversation", "would" if mode == "look" else "action", "reason", "rule"):
        table.add_column(heading, overflow="fold")
    if mode == "repair":
        table.add_column("outcome")
    for finding in findings:
        action = finding.action
        row = [finding.turn_id, finding.agent, finding.conversation, action.do.value, action.reason, action.requirement]
        row += [finding.outcome] if mode == "repair" else []
        style = "yellow" if action.tone is Tone.REPORTED else None
        table.add_row(*map(visible, row), style=style)
    return table
