"""What to do with a turn, decided from what Redis and Postgres say of it: pure, total, one action a case.

The rules of a state are tried in order and the first that fits decides; the last one of each state always fits. Each
rule is a conjunction of facts, so that the table can be enumerated, checked and printed. An action does one thing: the
turn is looked at again afterwards, until nothing is left to do.

No action takes the right to write from a live owner. The two exceptions leave it nothing to write: its run is
committed already, or its ledger was purged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class RecordState(Enum):
    """The record in Redis. In quarantine: it could not be read and was set aside. Foreign: of another format."""

    MISSING = "missing"
    QUARANTINED = "quarantined"
    RUNNING = "running"
    PARKED = "parked"
    COMPLETED = "completed"
    REJECTED = "rejected"
    COMMITTED = "committed"
    FAILED = "failed"
    ABANDONED = "abandoned"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"


class Lease(Enum):
    """Whether somebody renewed the turn's lease in time."""

    LIVE = "live"
    LAPSED = "lapsed"


class Delivery(Enum):
    """Whether the reply was being sent when the record was last written."""

    NONE = "none"
    UNDER_WAY = "under way"


class Block(Enum):
    """Whether the turn is marked as not to be resumed."""

    NONE = "none"
    SET = "set"


class Recording(Enum):
    """Whether anything of the turn goes to Postgres."""

    ON = "on"
    OFF = "off"


class Sql(Enum):
    """The turn's row in Postgres.

    Started: open. Advanced: open, and taken over since by somebody whose epoch the record does not have. Lost: ended
    provisionally. Done: completed by this run. Answered: not ended, and another run has completed its work. Duplicate:
    ended as the duplicate of another run. Failed: failed or abandoned. Gone: its ledger was purged since it began.
    """

    NONE = "none"
    STARTED = "started"
    ADVANCED = "advanced"
    LOST = "lost"
    DONE = "done"
    ANSWERED = "answered"
    DUPLICATE = "duplicate"
    FAILED = "failed"
    GONE = "gone"


class CursorState(Enum):
    """The history that the turn was built on, beside its ledger's.

    Older: history was replaced since. Marked: that, and the record says so. Own: replaced by this very turn. Ahead:
    Postgres does not have all of it. Other: another ledger row, or another turn's event where it ends. Unknown: it
    was made without Postgres.
    """

    SAME = "same"
    OLDER = "older"
    MARKED = "marked"
    OWN = "own"
    AHEAD = "ahead"
    OTHER = "other"
    UNKNOWN = "unknown"


class Indexes(Enum):
    """Whether the turn stands in those indexes that its state wants, and in no other."""

    RIGHT = "right"
    WRONG = "wrong"


class Pending(Enum):
    """How often the turn stands in its ledger's pending list."""

    ABSENT = "absent"
    ONCE = "once"
    TWICE = "twice"


class Rejected(Enum):
    """Whether the turn stands in its ledger's list of rejected turns."""

    ABSENT = "absent"
    LISTED = "listed"


class Job(Enum):
    """The job in RQ that the turn should have now: of its commit, or of its rewriting while it waits for one; failed or
    cancelled ones do not run. A turn that waits behind such a turn needs none, which counts as there.
    """

    NONE = "none"
    THERE = "there"
    FAILED = "failed"


class Copy(Enum):
    """Whether a committed turn's record still holds all that its commit needs."""

    WHOLE = "whole"
    GONE = "gone"


class Age(Enum):
    """Old: pending for longer than the queue takes, and not waiting for a rewriting; or without a record for longer
    than an unfinished one lives.
    """

    YOUNG = "young"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a decision rests on."""

    record: RecordState
    lease: Lease
    delivery: Delivery
    block: Block
    recording: Recording
    sql: Sql
    cursor: CursorState
    indexes: Indexes
    pending: Pending
    rejected: Rejected
    job: Job
    copy: Copy
    age: Age


class Do(Enum):
    """The one thing that an action does."""

    NOTHING = "nothing"
    LIST = "list"  # for an operator to decide
    PLACE = "place"  # on the lists and indexes that its state wants, off all others
    MARK_REPLACED = "mark replaced"
    ADVANCE = "advance"
    BLOCK = "block"
    PARK = "park"
    ABANDON = "abandon"
    FAIL = "fail"
    FINISH = "finish"
    FINISH_DUPLICATE = "finish as a duplicate"
    FINISH_UNRECORDED = "finish without an entry"
    DROP = "drop"
    MAKE_JOB = "make a job"
    COMMIT = "commit"
    REJECT = "reject"
    REVIVE = "complete again"
    WRITE_TERMINAL = "write the terminal"
    QUARANTINE = "quarantine for ever"
    QUARANTINE_FOR_A_WHILE = "quarantine for a while"
    LOSE = "report lost"
    SESSION_LOST = "session lost"


class Tone(Enum):
    """Whether somebody should hear of it."""

    QUIET = "quiet"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, under which requirement, and the reason that is stored or reported with it."""

    do: Do
    requirement: str
    reason: str = ""
    tone: Tone = Tone.QUIET


Condition = tuple[str, tuple[Enum, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """Facts that must all hold, by name the values that fit, and the action then."""

    action: Action
    when: tuple[Condition, ...] = ()

    def fits(self, facts: Facts) -> bool:
        """Whether all conditions hold."""
        for name, values in self.when:  # noqa: SIM110  # a sweep asks this a million times; twice as fast
            if getattr(facts, name) not in values:
                return False
        return True


def decide(facts: Facts) -> Action:
    """The action of the first rule of the record's state that fits."""
    for rule in RULES[facts.record]:
        if rule.fits(facts):
            return rule.action
    raise AssertionError("the last rule of every state fits")


def _quiet(do: Do, requirement: str, reason: str = "", **when: Enum | tuple[Enum, ...]) -> Rule:
    return Rule(Action(do, requirement, reason), _conditions(when))


def _reported(do: Do, requirement: str, reason: str = "", **when: Enum | tuple[Enum, ...]) -> Rule:
    return Rule(Action(do, requirement, reason, Tone.REPORTED), _conditions(when))


def _conditions(when: Mapping[str, Enum | tuple[Enum, ...]]) -> tuple[Condition, ...]:
    return tuple((name, values if isinstance(values, tuple) else (values,)) for name, values in when.items())


_ON, _OFF = Recording.ON, Recording.OFF
_LAPSED = Lease.LAPSED
_IN_PENDING = (Pending.ONCE, Pending.TWICE)
_BY_ANOTHER = (Sql.ANSWERED, Sql.DUPLICATE)
_NOT_THERE = (CursorState.AHEAD, CursorState.OTHER)
_OPEN = (Sql.STARTED, Sql.ADVANCED, Sql.ANSWERED)
_UNDECIDED = (Sql.NONE, Sql.STARTED, Sql.LOST)


def _misplaced(requirement: str) -> tuple[Rule, ...]:
    """For turns that belong on neither list of completed turns."""
    return (_quiet(Do.PLACE, requirement, pending=_IN_PENDING), *_astray(requirement))


def _astray(requirement: str) -> tuple[Rule, ...]:
    """For turns that do not belong on the list of rejected turns, or stand in the wrong indexes."""
    return (
        _quiet(Do.PLACE, requirement, rejected=Rejected.LISTED),
        _quiet(Do.PLACE, requirement, indexes=Indexes.WRONG),
    )


_UNFINISHED = (
    _reported(Do.DROP, "RC-5", "ledger_purged", recording=_ON, sql=Sql.GONE),
    _quiet(Do.FINISH, "RC-5", recording=_ON, sql=Sql.DONE),
    _quiet(Do.ABANDON, "RC-5", recording=_ON, sql=_BY_ANOTHER, lease=_LAPSED),
    _quiet(Do.FAIL, "RC-5", recording=_ON, sql=Sql.FAILED, lease=_LAPSED),
    _reported(Do.BLOCK, "RC-4", "delivery_unknown", delivery=Delivery.UNDER_WAY, lease=_LAPSED, block=Block.NONE),
    _quiet(Do.ADVANCE, "RC-2", recording=_ON, cursor=CursorState.OWN),
    _quiet(Do.MARK_REPLACED, "RC-2", recording=_ON, cursor=CursorState.OLDER),
    _reported(Do.BLOCK, "RC-3", "cursor_ahead", recording=_ON, cursor=CursorState.AHEAD, block=Block.NONE),
    _reported(Do.BLOCK, "RC-3", "other_history", recording=_ON, cursor=CursorState.OTHER, block=Block.NONE),
)
_LAPSED_OWNER = (_quiet(Do.PARK, "RC-4", "owner_lost", lease=_LAPSED, delivery=Delivery.NONE),)
_WELL = (*_misplaced("RC-1"), _quiet(Do.NOTHING, "RC-1"))

_COMPLETED = (
    _quiet(Do.FINISH_UNRECORDED, "RC-7", recording=_OFF),
    _reported(Do.DROP, "RC-7", "ledger_purged", sql=Sql.GONE),
    _quiet(Do.FINISH, "RC-7", sql=Sql.DONE),
    _quiet(Do.FINISH_DUPLICATE, "RC-7", sql=_BY_ANOTHER),
    _reported(Do.REJECT, "RC-7", "superseded", sql=(Sql.FAILED, Sql.ADVANCED)),
    _quiet(Do.PLACE, "RC-6", pending=(Pending.ABSENT, Pending.TWICE)),
    *_astray("RC-6"),
    _quiet(Do.MAKE_JOB, "RC-14", job=(Job.NONE, Job.FAILED)),
    _reported(Do.COMMIT, "RC-7", "cursor_ahead", cursor=_NOT_THERE),
    _quiet(Do.COMMIT, "RC-6", age=Age.OLD),
    _quiet(Do.NOTHING, "RC-6"),
)
_REJECTED = (
    _quiet(Do.FINISH_UNRECORDED, "RC-7", recording=_OFF),
    _reported(Do.DROP, "RC-7", "ledger_purged", sql=Sql.GONE),
    _quiet(Do.FINISH, "RC-8", sql=Sql.DONE),
    _quiet(Do.FINISH_DUPLICATE, "RC-8", sql=_BY_ANOTHER),
    _quiet(Do.PLACE, "RC-8", pending=_IN_PENDING),
    _quiet(Do.PLACE, "RC-8", rejected=Rejected.ABSENT),
    _quiet(Do.PLACE, "RC-8", indexes=Indexes.WRONG),
    _quiet(Do.LIST, "RC-8", "rejected"),
)
_COMMITTED = (
    _reported(Do.REVIVE, "RC-9", "lost_by_postgres", recording=_ON, sql=_UNDECIDED, copy=Copy.WHOLE),
    _quiet(Do.WRITE_TERMINAL, "RC-9", recording=_ON, sql=Sql.ANSWERED),
    *_misplaced("RC-9"),
    _reported(Do.LIST, "RC-9", "lost_by_postgres", recording=_ON, sql=_UNDECIDED),
    _reported(Do.LIST, "RC-9", "contradiction", recording=_ON, sql=(Sql.FAILED, Sql.ADVANCED)),
    _quiet(Do.NOTHING, "RC-9"),
)
_ENDED = (
    _reported(Do.FINISH, "RC-10", "contradiction", recording=_ON, sql=Sql.DONE),
    _quiet(Do.WRITE_TERMINAL, "RC-10", recording=_ON, sql=(Sql.STARTED, Sql.ANSWERED)),
    *_misplaced("RC-14"),
    _quiet(Do.NOTHING, "RC-10"),
)
_UNREADABLE = (
    _reported(Do.QUARANTINE, "RC-11", "unreadable", sql=(*_UNDECIDED, Sql.ADVANCED)),
    _reported(Do.QUARANTINE_FOR_A_WHILE, "RC-11", "unreadable"),
)
_SESSION_LOST = _reported(Do.SESSION_LOST, "RC-13", "session_lost", sql=_OPEN, age=Age.OLD)
_MISSING = (
    _quiet(Do.PLACE, "RC-12", pending=_IN_PENDING, sql=(Sql.DONE, *_BY_ANOTHER, Sql.GONE)),
    _reported(Do.LOSE, "RC-12", "persistence_failed", pending=_IN_PENDING),
    _reported(Do.PLACE, "RC-14", "rejected_turn_lost", rejected=Rejected.LISTED, sql=(*_UNDECIDED, Sql.ADVANCED)),
    _SESSION_LOST,  # before what is put right besides: a dry run names one action a turn
    *_astray("RC-14"),
    _quiet(Do.NOTHING, "RC-13"),
)
_QUARANTINED = (_SESSION_LOST, *_misplaced("RC-11"), _quiet(Do.NOTHING, "RC-11"))

RULES: Mapping[RecordState, tuple[Rule, ...]] = {
    RecordState.MISSING: _MISSING,
    RecordState.QUARANTINED: _QUARANTINED,
    RecordState.RUNNING: (*_UNFINISHED, *_LAPSED_OWNER, *_WELL),
    RecordState.PARKED: (*_UNFINISHED, *_WELL),
    RecordState.COMPLETED: _COMPLETED,
    RecordState.REJECTED: _REJECTED,
    RecordState.COMMITTED: _COMMITTED,
    RecordState.FAILED: _ENDED,
    RecordState.ABANDONED: _ENDED,
    RecordState.UNREADABLE: _UNREADABLE,
    RecordState.FOREIGN: (_quiet(Do.NOTHING, "RC-11"),),
}
