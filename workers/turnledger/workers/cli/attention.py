"""What a person should do something about, told from the figures of `turnledger status`."""

from collections.abc import Sequence

from turnledger.workers.cli.figures import Status
from turnledger.workers.cli.output import many


def attention(status: Status) -> list[str]:
    """A sentence for each thing that does not pass by itself; none: nothing needs a person."""
    return [*_set_aside(status), *_late(status), *_crowded(status)]


def _set_aside(status: Status) -> list[str]:
    found = []
    if status.rejected:
        found.append(
            f"{many(status.rejected, 'turn')} rejected at the commit{_named(status.rejected_turns, status.rejected)}: "
            "`turnledger show --turn ID` says why, `turnledger requeue ID` tries again"
        )
    if status.blocked:
        names = _named(status.blocked_turns, status.blocked)
        found.append(f"{many(status.blocked, 'turn')} blocked for resume{names}: `turnledger show --turn ID` says why")
    if status.quarantined:
        names = _named(status.quarantined_turns, status.quarantined)
        found.append(
            f"{many(status.quarantined, 'record')} unreadable and in quarantine{names}: "
            "`turnledger show --turn ID` says where it lies"
        )
    if status.failed_jobs > status.rejected:
        names = _listed([turn for turn in status.failed_turns if turn not in status.rejected_turns])
        found.append(
            f"{many(status.failed_jobs - status.rejected, 'commit job')} failed{names}: the clock commits such a turn "
            "within a minute; where it does not, the workers' log and rq-dashboard have the reason"
        )
    return found


def _late(status: Status) -> list[str]:
    found = []
    if status.late_commit:
        waited_s = status.oldest_pending_s or 0
        found.append(f"the oldest pending turn has waited for {waited_s:.0f} s: {_who_is_missing(status)}")
    if status.late_rewriting and not status.rewriters:
        found.append(
            f"{many(status.queued_rewrites, 'turn')} queued to be rewritten, and no worker does that; run "
            "`turnledger worker --queue rewrites`, or they are committed with names after a while"
        )
    return found


def _crowded(status: Status) -> list[str]:
    found = []
    if status.pending >= status.pending_limit:
        found.append(
            f"{many(status.pending, 'turn')} pending, and from {status.pending_limit:,} on engine nodes commit "
            "directly: run more workers, or see why they are slow"
        )
    share, limit = status.redis_memory_share, status.redis_memory_share_limit
    if share is not None and share > limit:
        found.append(
            f"Redis uses {share:.0%} of its memory limit, and beyond {limit:.0%} engine nodes commit directly: "
            "raise maxmemory, or let workers drain the queue"
        )
    return found


def _who_is_missing(status: Status) -> str:
    if not status.workers:
        return "no worker is alive; run `turnledger worker`"
    return "look into the log of the workers" if status.clock else "no clock runs; run `turnledger clock`"


def _listed(turn_ids: Sequence[str]) -> str:
    return f" ({', '.join(turn_ids)})" if turn_ids else ""


def _named(turn_ids: Sequence[str], number: int) -> str:
    rest = number - len(turn_ids)
    return f" ({', '.join(turn_ids)}{f', and {rest:,} more' if rest > 0 else ''})"
