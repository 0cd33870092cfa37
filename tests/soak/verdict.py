"""The count at the end: what Postgres has against what the nodes were told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from tests.ledger_checks import Told, check_ledgers
from tests.soak.summary import is_summary_of
from tests.soak.told import Acknowledged
from turnledger.checkpoint.records import Records
from turnledger.store import Database
from turnledger.store.history import replay
from turnledger.store.ledger import Head
from turnledger.store.replacement import decode_replacement

_RUNS = text("SELECT turn_id, outcome, epoch, duplicate_of, work_key FROM ledger_turn")
_LEDGERS = text("SELECT ledger_id, history_version, next_seq, turn_count FROM ledger")
_STEPS = text(
    "SELECT seq, type, turn_id, payload, content::text AS content FROM ledger_event"
    " WHERE ledger_id = :ledger_id AND type IN ('agent_step', 'compaction', 'handoff') ORDER BY seq"
)
MOST_PROBLEMS = 10


@dataclass
class Verdict:
    """What became of the acknowledged turns. Superseded: another holder of the same turn completed it instead."""

    told: int
    committed: int = 0
    duplicates: int = 0
    superseded: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    replaced: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.problems)


def judge(told: Sequence[Acknowledged], *, database: Database, records: Records) -> Verdict:
    """Read everything back."""
    verdict = Verdict(told=len(told))
    with database.snapshot() as connection:
        runs = {row.turn_id: row for row in connection.execute(_RUNS)}
        for ledger in connection.execute(_LEDGERS).all():
            rows = connection.execute(_STEPS, {"ledger_id": ledger.ledger_id}).all()
            contents = [step.content for step in replay(connection, Head(*ledger))]
            _judge_history(verdict, rows, contents)
    own = [turn for turn in told if _is_counted(verdict, turn, runs)]
    try:
        told_now = [Told(turn.turn_id, turn.agent, turn.conversation, turn.work_key, turn.steps) for turn in own]
        check_ledgers(database.settings.database_url, records.settings.redis_url, told=told_now)
    except AssertionError as error:
        verdict.problems.append(str(error)[:500])
    return verdict


def _is_counted(verdict: Verdict, turn: Acknowledged, runs: Mapping[str, Any]) -> bool:
    """Whether this holder's own completion is what Postgres must have."""
    run = runs.get(turn.turn_id)
    if run is None or run.outcome not in ("completed", "duplicate"):
        verdict.lost.append(f"turn {turn.turn_id} is {run.outcome if run else 'unknown'}")
        return False
    if run.outcome == "duplicate":
        first = runs[run.duplicate_of]
        if (first.outcome, first.work_key) != ("completed", turn.work_key):
            verdict.lost.append(f"turn {turn.turn_id} is called a duplicate of {first.turn_id}, which is not so")
        verdict.duplicates += 1
        return False
    if run.epoch > turn.epoch:
        verdict.superseded += 1
        return False
    verdict.committed += 1
    return True


def _judge_history(verdict: Verdict, rows: Sequence[Any], replayed: Sequence[str]) -> None:
    """Fold the log by the rule of replacement; each summary says itself what it stands for."""
    steps = [row.content for row in rows if row.type == "agent_step"]
    verdict.doubled += sorted({content for content in steps if steps.count(content) > 1}) if _has_twins(steps) else []
    history: list[tuple[int, str | None, str]] = []
    for row in rows:
        if row.type == "agent_step":
            history.append((row.seq, row.turn_id, row.content))
            continue
        verdict.replaced += 1
        through = row.payload["through_seq"]
        gone = [each for each in history if each[0] <= through or each[1] == row.turn_id]
        (summary,) = [step.content for step in decode_replacement(row.content)]
        if not is_summary_of(summary, [content for *_, content in gone]):
            verdict.problems.append(f"the replacement at {row.seq} stands for other steps than it was made of")
        history = [(row.seq, None, summary), *(each for each in history if each not in gone)]
    if list(replayed) != [content for *_, content in history]:
        verdict.problems.append("a ledger's replay is not what its log says")


def _has_twins(contents: Sequence[str]) -> bool:
    return len(set(contents)) < len(contents)
