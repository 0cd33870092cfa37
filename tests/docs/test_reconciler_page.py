"""The page that shows the reconciler's table is written from the table itself."""

from enum import Enum
from pathlib import Path

from turnledger.workers.reconciler.decisions import (
    RULES,
    Age,
    Block,
    Condition,
    Copy,
    CursorState,
    Delivery,
    Do,
    Indexes,
    Job,
    Lease,
    Pending,
    Recording,
    RecordState,
    Rejected,
    Rule,
    Sql,
    Tone,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reconciler.md"
TABLE = "<!-- the table: python -m tests.docs.test_reconciler_page writes it -->\n"

STATES = {
    RecordState.MISSING: "No record",
    RecordState.QUARANTINED: "In quarantine",
    RecordState.RUNNING: "Running",
    RecordState.PARKED: "Parked",
    RecordState.COMPLETED: "Completed",
    RecordState.REJECTED: "Rejected",
    RecordState.COMMITTED: "Committed",
    RecordState.FAILED: "Failed",
    RecordState.ABANDONED: "Abandoned",
    RecordState.UNREADABLE: "Unreadable",
    RecordState.FOREIGN: "Of another format",
}
FACTS: dict[Enum, str] = {
    Lease.LAPSED: "nobody holds it",
    Delivery.UNDER_WAY: "its reply was being sent",
    Delivery.NONE: "no reply was being sent",
    Block.NONE: "it is not blocked yet",
    Recording.ON: "",
    Recording.OFF: "it is not to be recorded",
    Sql.NONE: "Postgres does not know it",
    Sql.STARTED: "it is open in Postgres",
    Sql.ADVANCED: "it was taken over since, by a holder the record does not know",
    Sql.LOST: "it counts as lost for now",
    Sql.DONE: "it is committed",
    Sql.ANSWERED: "another run completed its work",
    Sql.DUPLICATE: "it is on record as a duplicate",
    Sql.FAILED: "it failed or was abandoned in Postgres",
    Sql.GONE: "its ledger was purged",
    CursorState.OWN: "it replaced the history it is built on",
    CursorState.OLDER: "history was replaced since",
    CursorState.AHEAD: "Postgres lacks history it was built on",
    CursorState.OTHER: "Postgres has another history",
    Indexes.WRONG: "an index is wrong about it",
    Pending.ABSENT: "it is not in the pending list",
    Pending.ONCE: "it is in the pending list",
    Pending.TWICE: "it is there more than once",
    Rejected.ABSENT: "the list of rejected turns lacks it",
    Rejected.LISTED: "it is in the list of rejected turns",
    Job.NONE: "it has no job",
    Job.FAILED: "its job failed or was cancelled",
    Copy.WHOLE: "its spare copy is whole",
    Age.OLD: "for too long",
}
ACTIONS = {
    Do.NOTHING: "nothing",
    Do.LIST: "nothing: left to a person",
    Do.PLACE: "put where it belongs",
    Do.MARK_REPLACED: "marked `replaced_by`, bootstrap dropped; its holder may go on",
    Do.ADVANCE: "moved to the history it made; the steps that covers are named",
    Do.BLOCK: "blocked for resume; its holder may still complete it",
    Do.PARK: "parked; any node may resume it",
    Do.ABANDON: "abandoned, `turn_duplicate` written",
    Do.FAIL: "ended as Postgres says",
    Do.FINISH: "committed, its job cleared",
    Do.FINISH_DUPLICATE: "committed as a duplicate, `turn_duplicate` written, its job cleared",
    Do.FINISH_UNRECORDED: "committed without an entry",
    Do.DROP: "deleted",
    Do.MAKE_JOB: "gets a job",
    Do.COMMIT: "its ledger's pending turns are committed",
    Do.REJECT: "rejected",
    Do.REVIVE: "completed again, to be committed again",
    Do.WRITE_TERMINAL: "its terminal is written",
    Do.QUARANTINE: "moved to quarantine, for ever",
    Do.QUARANTINE_FOR_A_WHILE: "moved to quarantine, for a day",
    Do.LOSE: "off the pending list; `turn_failed` with `persistence_failed`",
    Do.SESSION_LOST: "`turn_failed` with `session_lost`, until a completion overrules it",
}


def table() -> str:
    """One block of rows a state; states with the same rules share one."""
    lines: list[str] = []
    for states, rules in _grouped():
        lines += [f"### {states}", "", "| when | then | because |", "|---|---|---|"]
        lines += [_row(rule) for rule in rules]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _grouped() -> list[tuple[str, tuple[Rule, ...]]]:
    groups: dict[tuple[Rule, ...], list[str]] = {}
    for state, rules in RULES.items():
        groups.setdefault(rules, []).append(STATES[state])
    return [(" or ".join([names[0], *map(str.lower, names[1:])]), rules) for rules, names in groups.items()]


def _row(rule: Rule) -> str:
    action = rule.action
    said = " **and** ".join(words for condition in rule.when if (words := _words(condition))) or "otherwise"
    then = ACTIONS[action.do] + (f" (`{action.reason}`)" if action.reason else "")
    return f"| {said} | {then}{' **reported**' if action.tone is Tone.REPORTED else ''} | {action.requirement} |"


def _words(condition: Condition) -> str:
    name, values = condition
    if name == "pending" and values == (Pending.ONCE, Pending.TWICE):
        return FACTS[Pending.ONCE]
    return " or ".join(FACTS[value] for value in values)


def test_the_table_on_the_page_is_the_table_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(TABLE)[2] == table(), "run: python -m tests.docs.test_reconciler_page"


def test_every_reason_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(TABLE)[0]
    reasons = {rule.action.reason for rules in RULES.values() for rule in rules} - {""}
    assert [reason for reason in sorted(reasons) if f"| `{reason}` |" not in text] == []


if __name__ == "__main__":
    prose, mark, _ = PAGE.read_text(encoding="utf-8").partition(TABLE)
    PAGE.write_text(prose + mark + table(), encoding="utf-8")
