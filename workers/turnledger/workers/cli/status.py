"""`turnledger status`: what is on its way, what is stored, who works, and what needs a person."""

from dataclasses import asdict

from rich.table import Table

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.connection import place_of
from turnledger.store import read_settings
from turnledger.workers.cli.attention import attention
from turnledger.workers.cli.exits import NEEDS_A_PERSON, OK
from turnledger.workers.cli.figures import Status, read_status
from turnledger.workers.cli.output import Output, console, print_json, visible
from turnledger.workers.settings import WorkerSettings

MIB = 1024 * 1024

Row = tuple[str, str, str]


def run_status(*, output: Output) -> int:
    """Look and print; the exit code, 1 when something needs a person. Raises as `read_status`."""
    status = read_status()
    sentences = attention(status)
    if output == "json":
        print_json({**asdict(status), "attention": sentences})
    else:
        _print(status, sentences)
    return NEEDS_A_PERSON if sentences else OK


def _print(status: Status, sentences: list[str]) -> None:
    screen = console()
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim", overflow="fold")
    for row in [*_on_their_way(status), *_set_aside(status), *_at_work(status), *_stored(status)]:
        table.add_row(*row)
    screen.print(table)
    screen.print()
    for sentence in sentences:
        screen.print(f"! {visible(sentence)}", style="yellow", markup=False, soft_wrap=True)
    if not sentences:
        screen.print("Nothing needs a person.", style="green")


def _on_their_way(status: Status) -> list[Row]:
    oldest = "" if status.oldest_pending_s is None else f"the oldest for {status.oldest_pending_s:.1f} s"
    return [
        ("running turns", f"{status.running:,}", "an engine node has them"),
        ("parked turns", f"{status.parked:,}", "they wait for a resume"),
        ("  blocked", f"{status.blocked:,}", "of these; nobody may resume them"),
        ("  replaced", f"{status.replaced:,}", "of these; their history was replaced meanwhile"),
        ("pending turns", f"{status.pending:,}", oldest or "completed, not committed yet"),
        ("queued jobs", f"{status.queued_jobs:,}", ""),
        ("queued rewrites", f"{status.queued_rewrites:,}", "turns with over-long payloads"),
    ]


def _set_aside(status: Status) -> list[Row]:
    return [
        ("rejected turns", f"{status.rejected:,}", "kept until somebody decides"),
        ("in quarantine", f"{status.quarantined:,}", "records that cannot be read"),
        ("failed jobs", f"{status.failed_jobs:,}", ""),
    ]


def _at_work(status: Status) -> list[Row]:
    share = status.redis_memory_share
    limit = "it has no limit" if share is None else f"{share:.0%} of its limit"
    return [
        ("Redis memory", f"{status.redis_memory_bytes / MIB:,.1f} MiB", limit),
        ("workers", f"{status.workers:,}", _heard(status)),
        ("rewriters", f"{status.rewriters:,}", "likewise; workers of the queue of rewrites"),
        ("upkeep", f"{status.upkeep:,}", "likewise"),
        ("clock", "runs" if status.clock else "none", "in this database"),
    ]


def _heard(status: Status) -> str:
    """A killed worker counts until its time is over, and those of another Redis, number or prefix never do."""
    seconds = f"{read_settings(WorkerSettings).worker_ttl_s} s"
    if status.workers or status.upkeep:
        return f"heard of within {seconds}: one that was killed counts for so long"
    settings = read_settings(CheckpointSettings)
    place = f"{place_of(settings.redis_url)}, prefix {settings.rq_prefix}"
    return f"none heard of within {seconds} in {place}: one that runs may use another Redis, number or prefix"


def _stored(status: Status) -> list[Row]:
    about = "about " if status.estimated else ""
    return [
        ("ledgers", f"{about}{status.ledgers:,}", "in Postgres"),
        ("turns", f"{about}{status.turns:,}", "recorded ever"),
        ("events", f"{about}{status.events:,}", "recorded ever"),
        ("swept entries", f"{status.swept_entries:,}", f"since {status.swept_since}" if status.swept_since else ""),
        ("swept events", f"{status.swept_events:,}", f"the last sweep ended {status.swept_at or 'never'}"),
    ]
