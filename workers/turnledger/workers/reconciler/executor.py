"""Carries out one action on one turn. Every write checks the record once more; what has changed is left alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from turnledger.checkpoint.commit_point import CommitPoint
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.repairs import Fields, Repairs
from turnledger.store import LedgerName
from turnledger.store.crash_points import crash_point
from turnledger.workers.reconciler.cases import Case
from turnledger.workers.reconciler.decisions import Do
from turnledger.workers.reconciler.terminals import Terminals

LOOKING = frozenset({Do.NOTHING, Do.LIST})  # actions that write nothing
_PENDING = "completed"


class Executor:
    """Repairs turns of one Redis and one Postgres. `apply` answers whether the action was done."""

    def __init__(self, *, records: Records, repairs: Repairs, terminals: Terminals, commit_point: CommitPoint) -> None:
        self._records = records
        self._repairs = repairs
        self._terminals = terminals
        self._commit_point = commit_point
        self._handlers: Mapping[Do, Callable[[Case], bool]] = {
            Do.PLACE: lambda case: repairs.place(case.seen),
            Do.MARK_REPLACED: self._mark_replaced,
            Do.ADVANCE: self._advance,
            Do.BLOCK: lambda case: repairs.amend(case.seen, {"blocked": case.action.reason}),
            Do.PARK: self._park,
            Do.ABANDON: self._abandon,
            Do.FAIL: lambda case: repairs.end(case.seen, {"state": case.run.outcome or "failed"}),
            Do.FINISH: lambda case: self._finish(case, outcome="completed"),
            Do.FINISH_DUPLICATE: self._finish_duplicate,
            Do.FINISH_UNRECORDED: lambda case: self._finish(case, outcome="not recorded"),
            Do.DROP: lambda case: repairs.drop(case.seen),
            Do.MAKE_JOB: self._make_job,
            Do.COMMIT: self._commit,
            Do.REJECT: self._reject,
            Do.REVIVE: lambda case: repairs.revive(case.seen),
            Do.WRITE_TERMINAL: self._write_terminal,
            Do.QUARANTINE: lambda case: repairs.quarantine(case.seen, keep="for ever"),
            Do.QUARANTINE_FOR_A_WHILE: lambda case: repairs.quarantine(case.seen, keep="for a while"),
            Do.LOSE: self._lose,
            Do.SESSION_LOST: self._lose_session,
        }

    def apply(self, case: Case) -> bool:
        """Carry out the case's action; False when the turn has changed since it was seen.

        Raises:
            StoreBusy, StoreRefused, CorruptData: this turn's ledger is in trouble; its action is for another time.
            StoreUnavailable, CheckpointUnavailable, StoreMisconfigured, CheckpointMisconfigured: a server is.
        """
        return self._handlers[case.action.do](case)

    def _mark_replaced(self, case: Case) -> bool:
        assert case.standing.head is not None, "an older history is older than its ledger's"
        version = case.standing.head.history_version
        return self._repairs.amend(case.seen, {"replaced_by": version, "bootstrap": ""})

    def _advance(self, case: Case) -> bool:
        assert case.standing.own_version is not None, "the turn has replaced its ledger's history"
        cursor = replace(case.content.cursor, history_version=case.standing.own_version)
        changes: Fields = {
            "cursor": cursor.encode(),
            "covered": case.run.steps_written,
            "bootstrap": "",
            "replaced_by": "",
        }
        return self._repairs.amend(case.seen, changes)

    def _park(self, case: Case) -> bool:
        return self._repairs.amend(case.seen, {"state": "parked", "reason": case.action.reason, "lease_until": 0})

    def _abandon(self, case: Case) -> bool:
        ended = self._repairs.end(case.seen, {"state": "abandoned", "outcome": "duplicate", "first": case.first})
        crash_point("upkeep.ended")
        return ended and self._write_duplicate(case)

    def _finish(self, case: Case, *, outcome: str) -> bool:
        return self._repairs.end(case.seen, {"state": "committed", "outcome": outcome})

    def _finish_duplicate(self, case: Case) -> bool:
        self._write_duplicate(case)
        crash_point("upkeep.told")
        return self._repairs.end(case.seen, {"state": "committed", "outcome": "duplicate", "first": case.first})

    def _make_job(self, case: Case) -> bool:
        return self._records.restore(case.turn_id, ledger=_ledger(case), job="make") == _PENDING

    def _commit(self, case: Case) -> bool:
        self._commit_point.commit_pending(_ledger(case))
        return self._records.states([case.turn_id]) != [_PENDING]

    def _reject(self, case: Case) -> bool:
        return self._records.reject(case.turn_id, ledger=_ledger(case), reason=case.action.reason)

    def _write_terminal(self, case: Case) -> bool:
        fields = case.seen.fields
        if fields["first"] or fields["state"] == "committed":
            return self._write_duplicate(case)
        return self._terminals.ended(
            case.run,
            ledger=_ledger(case),
            outcome="abandoned" if fields["state"] == "abandoned" else "failed",
            code=fields["code"],
            failure_id=fields["failure_id"],
            started_at=fields["started_at"],
            ended_at_ms=int(fields["touched_at"]),
        )

    def _write_duplicate(self, case: Case) -> bool:
        return self._terminals.duplicate(
            case.run,
            ledger=_ledger(case),
            first=case.seen.fields["first"] or case.first,
            started_at=case.seen.fields["started_at"],
            now_ms=case.seen.now_ms,
        )

    def _lose(self, case: Case) -> bool:
        self._terminals.lost_work(
            case.turn_id, ledger=_ledger(case), now_ms=case.seen.now_ms, still=lambda: self._has_no_record(case)
        )
        crash_point("upkeep.told")
        return self._repairs.place(case.seen)

    def _lose_session(self, case: Case) -> bool:
        return self._terminals.lost_session(
            case.turn_id, ledger=_ledger(case), now_ms=case.seen.now_ms, still=lambda: self._has_no_record(case)
        )

    def _has_no_record(self, case: Case) -> bool:
        return self._records.states([case.turn_id]) == [None]


def _ledger(case: Case) -> LedgerName:
    assert case.content.ledger is not None, "no action that needs the ledger is decided without one"
    return case.content.ledger
