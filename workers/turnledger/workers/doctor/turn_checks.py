"""Checks of what the servers hold: turns, jobs, records, entries."""

from collections.abc import Sequence

from turnledger.workers.cli.figures import LONGEST_WAIT_S
from turnledger.workers.cli.output import many
from turnledger.workers.doctor.checks import Check, Look, either
from turnledger.workers.doctor.facts import Facts


def _rejected(facts: Facts) -> Look:
    turns = facts.turns.get()
    fault = f"{many(turns.rejected, 'turn')} rejected at the commit{_named(turns.rejected_turns)}"
    return either(fault if turns.rejected else "", fine="no turn was refused")


def _failed(facts: Facts) -> Look:
    """Of turns that were refused nothing: their jobs failed as well."""
    turns = facts.turns.get()
    number = turns.failed_jobs - turns.rejected
    names = _named([turn for turn in turns.failed_turns if turn not in turns.rejected_turns])
    return either(f"{many(number, 'commit job')} failed{names}" if number > 0 else "", fine="no commit job failed")


def _oldest(facts: Facts) -> Look:
    turns = facts.turns.get()
    waited_s = turns.oldest_pending_s
    if turns.late_commit:
        return Look(wrong=f"the oldest pending turn has waited for {waited_s or 0:.0f} s")
    return Look(fine=f"no turn has been pending for more than {LONGEST_WAIT_S:.0f} s")


def _blocked(facts: Facts) -> Look:
    turns = facts.turns.get()
    fault = f"{many(turns.blocked, 'turn')} blocked for resume{_named(turns.blocked_turns)}" if turns.blocked else ""
    return either(fault, fine="no turn is blocked")


def _quarantined(facts: Facts) -> Look:
    turns = facts.turns.get()
    names = _named(turns.quarantined_turns)
    fault = f"{many(turns.quarantined, 'record')} in quarantine{names}" if turns.quarantined else ""
    return either(fault, fine="no record is in quarantine")


def _endless(facts: Facts) -> Look:
    turns = facts.turns.get()
    fault = f"keys that never expire: {', '.join(turns.endless_keys)}" if turns.endless_keys else ""
    return either(fault, fine=f"each of {many(turns.records_examined, 'record')} looked at expires as it should")


def _silent(facts: Facts) -> Look:
    postgres = facts.postgres.get()
    if not postgres.migrated:
        return Look(unknown="there is no schema of this version to look into")
    names = ", ".join(postgres.silent_entries)
    fault = f"entries whose turn has no event that ended it: {names}" if names else ""
    return either(fault, fine=f"each of the newest entries, {postgres.entries_examined:,}, has its event")


def _backpressure(facts: Facts) -> Look:
    pending, limit = facts.turns.get().pending, facts.settings.pending_turns
    fault = f"{many(pending, 'turn')} pending, and from {limit:,} on engine nodes commit directly"
    return either(fault if pending >= limit else "", fine=f"{many(pending, 'turn')} pending, of at most {limit:,}")


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


TURN_CHECKS = (
    Check(
        name="rejected",
        asks="Did Postgres refuse a turn for good?",
        why="The turn is no history: later turns are shown it, but it is not stored, and it waits for a decision.",
        fix="`turnledger show --turn ID` says why. Mend the cause, then `turnledger requeue ID`.",
        look=_rejected,
    ),
    Check(
        name="failed jobs",
        asks="Did a commit job fail whose turn was not refused?",
        why="Its turn is pending, and the clock commits it within a minute, which ends the job too. One that stays "
        "tells of trouble that time does not mend.",
        fix="Look again after a minute. Where it stays, the workers' log and rq-dashboard have the reason, and "
        "`turnledger show --turn ID` says how its turn stands.",
        look=_failed,
    ),
    Check(
        name="oldest pending",
        asks="Is every completed turn committed within a minute?",
        why="Whatever dies on the way, a turn is committed by then: workers and clock both fail to.",
        fix="Start a `turnledger worker` and a `turnledger clock`; where they run, their logs say what stops them.",
        look=_oldest,
    ),
    Check(
        name="blocked",
        asks="May every unfinished turn be resumed?",
        why="A blocked turn is never taken up by itself: its history is not the one that Postgres has, or nobody knows "
        "whether its reply was sent.",
        fix="`turnledger show --turn ID` says why, and what ends it. Look whether its reply arrived before the work is "
        "begun anew.",
        look=_blocked,
    ),
    Check(
        name="quarantine",
        asks="Can every record be read?",
        why="Somebody else wrote into a record, or Redis lost a part of it; a completed turn may be in it.",
        fix="`turnledger show --turn ID` says under which key it lies. Save what you need of it, then delete the key.",
        look=_quarantined,
    ),
    Check(
        name="expiry",
        asks="Do the records of unfinished and of ended turns expire, with their steps? (A sample of 5,000.)",
        why="Only completed and rejected turns may stay for ever; others fill Redis until it refuses new ones.",
        fix="Find what wrote to the key from outside (a restore, a tool, PERSIST), then `PEXPIRE` it, by a day for an "
        "unfinished turn and an hour for an ended one.",
        look=_endless,
    ),
    Check(
        name="entries",
        asks="Has each of the newest 1,000 entries the event that ended its turn? (Swept events are no fault.)",
        why="A commit writes both or none: somebody changed the tables past it, or restored one without the other.",
        fix="Restore ledger_event, ledger_entry and ledger_turn from one backup; find who wrote to them, and give that "
        "user a role that cannot.",
        look=_silent,
    ),
    Check(
        name="backpressure",
        asks="Are fewer turns pending than the limit from which engine nodes commit themselves?",
        why="Beyond it each reply waits for Postgres, so that Redis is never filled up.",
        fix="Run more workers, or see why they are slow.",
        look=_backpressure,
    ),
)
