"""The protocol broken in one place each: what every rule is there for. Each has to be caught."""

from dataclasses import dataclass

from tests.model import scenarios
from tests.model.editing import Edit, ScriptEdit
from tests.model.scenarios import Scenario


@dataclass(frozen=True)
class Variant:
    """A rule that is left out, and the scenario in which that shows."""

    name: str
    scenario: Scenario
    edits: tuple[Edit, ...] = ()
    scripts: tuple[ScriptEdit, ...] = ()


def _checkpoint(place: str, old: str, new: str) -> Edit:
    return Edit(f"turnledger.checkpoint.{place}", old, new)


def _store(place: str, old: str, new: str) -> Edit:
    return Edit(f"turnledger.store.{place}", old, new)


_NOTE, _FINISH = "note(ledgers=len(heads), turns=len(turns))", "return self._finish(turns, outcomes)"
_NO_OWNER = tuple(
    ScriptEdit(script, "found[2] ~= owner or found[3] ~= revision", "found[3] ~= revision")
    for script in ("save", "complete", "end")
)
_LOOK_LATE = """begin(self._database, request, LedgerView.unknown(now_ms=view.now_ms))
    view = self._records.look(request.ledger, turn_id=request.turn_id)"""
_OWN_VERSION = """int(row.content.rpartition("@")[2][:-1]) if row.type == "agent_step" else version"""

VARIANTS = (
    Variant("no owner token: the revision alone decides", scenarios.TWO_TAKE_OVERS, scripts=_NO_OWNER),
    Variant(
        "a start reads Redis after Postgres",
        scenarios.WHILE_COMMITTING,
        (_checkpoint("turns:Turns._begin_recorded", "begin(self._database, request, view)", _LOOK_LATE),),
    ),
    Variant(
        "turns are finished in Redis before they are committed",
        scenarios.WHILE_COMMITTING,
        (_checkpoint("commit_point:CommitPoint._commit_counted", _NOTE, f"    {_FINISH}"),),
    ),
    Variant(
        "a job ends well although its own turn is pending",
        scenarios.COMMITTERS,
        (
            Edit(
                "turnledger.workers.committer:Committer._advance",
                "return decided[turn_id]",
                'return decided[turn_id]\n        return "finished"',
            ),
        ),
    ),
    Variant(
        "steps keep the version that their turn knew, for a reader that goes by it",
        scenarios.REPLACEMENT,
        (
            _store("commit:_plan_rows", "(ledger_id, seq, version,", f"(ledger_id, seq, {_OWN_VERSION},"),
            _store(
                "history:replay",
                "if base.turn_id is not None:",
                "query = query.where(or_(_event.seq < base.seq, _event.history_version == wanted))\n"
                "    if base.turn_id is not None:",
            ),
        ),
    ),
    Variant(
        "a direct commit names no epoch",
        scenarios.TAKE_OVER,
        (_checkpoint("submission:Submission._completed_turn", "epoch=record.epoch", "epoch=1_000_000"),),
    ),
    Variant(
        "a direct commit takes another holder's for its own",
        scenarios.TAKE_OVER,
        (_checkpoint("direct:DirectCommits._commit", " or run.epoch > turn.epoch", ""),),
    ),
    Variant(
        "a take-over raises the epoch without looking whether it still holds the turn",
        scenarios.TWO_TAKE_OVERS,
        (_checkpoint("taking_over:_fence", "if not still_held():", "if still_held() is None:"),),
    ),
    Variant(
        "a start that is repeated raises the epoch before the record is its own",
        scenarios.REPEATED_START,
        (
            _store(
                "ledger:begin_run",
                "begun = run or Run",
                "begun = (run and raise_epoch(connection, turn_id, known=1)) or Run",
            ),
            _store("ledger:begin_run", "again=run is not None", "again=False"),
        ),
    ),
    Variant(
        "a completion does not name its holder's epoch",
        scenarios.REPEATED_START,
        (_checkpoint("submission:_draft", ', "epoch": record.epoch', ""),),
    ),
    Variant(
        "a replacement covers whatever is in the log when it is written",
        scenarios.REPLACEMENT,
        (
            _store(
                "replacement:replace_history",
                "check_replacement(replacement)",
                "replacement = replace(replacement, through_seq=head.next_seq - 1)",
            ),
        ),
    ),
    Variant(
        "a replay has the steps that a replacement covers once more",
        scenarios.REPLACEMENT,
        (_store("history:replay", "query.where(or_(_event.turn_id.is_(None), ~covered))", "query"),),
    ),
    Variant(
        "a bootstrap outlives the history that it was made for",
        scenarios.RESUMED_AFTER,
        (
            _checkpoint(
                "turns:Turns._taken_over",
                "if taken.cursor.history_version != record.cursor.history_version:",
                "if taken.cursor.history_version < 0:",
            ),
        ),
    ),
    Variant(
        "steps that Redis lost after a replacement wrote them stay lost",
        scenarios.REPLACEMENT_TAKEN_OVER,
        (_checkpoint("taking_over:_forgotten", "run.steps_written <= saved_steps", "saved_steps >= 0"),),
    ),
    Variant(
        "the lease keeper takes any completion of its turn for its own",
        scenarios.TAKE_OVER_FORGOTTEN,
        (_checkpoint("leases:LeaseKeeper._confirm_all", " and owner == turn.claim.owner", ""),),
    ),
    Variant(
        "the commit point does not ask whether a turn is committed",
        scenarios.COMMITTERS,
        (_store("commit:_judge", 'if run.outcome == "completed":', 'if run.outcome == "never":'),),
    ),
    Variant(
        "a reply is sent without a mark",
        scenarios.DELIVERY,
        (_checkpoint("turn:Turn.deliver", "self._mark_delivering()", "self._delivered = None"),),
    ),
)
