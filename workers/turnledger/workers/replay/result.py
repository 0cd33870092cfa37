"""What a replay came to, in numbers."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnledger.store import Database, LedgerName
from turnledger.workers.cli.servers import the_database, the_records
from turnledger.workers.replay.conversations import AGENT
from turnledger.workers.replay.reading import CommitTimes, read_commit_times, read_first_start, read_ledger
from turnledger.workers.replay.stage import POLL_S, Stage
from turnledger.workers.replay.verdict import Verdict, judge_ledger

MILLISECONDS = 1_000
LATEST_S = 2.0  # a worker tells Redis of a commit at once


@dataclass(frozen=True, slots=True)
class Result:
    """All of it read back, from Postgres and from the records of the turns.

    `completed` counts the turns whose completion was acknowledged to an engine node, `committed` those of them that
    are in Postgres, `lost` those that are not, `doubled` those that are there more than once. `turns_per_second`
    runs from the first start to the last commit. A time is None where no record is left to tell it.
    """

    conversations: int
    turns: int
    completed: int
    committed: int
    lost: int
    doubled: int
    problems: tuple[str, ...]
    turns_per_second: float | None
    commit_ms_p50: int | None
    commit_ms_p99: int | None
    commit_ms_max: int | None

    @property
    def right(self) -> bool:
        """Whether every turn of the file is in Postgres once, in order and unchanged."""
        return self.turns == self.completed == self.committed and not (self.lost or self.doubled or self.problems)

    def members(self) -> dict[str, Any]:
        """As one JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {"right": self.right}


def read_result(played: Stage) -> Result:
    """Read back what was played and compare it with the file, message by message.

    Raises:
        StoreUnavailable, CheckpointUnavailable, ...: a server cannot be asked.
    """
    nodes, plan = played.nodes, played.plan
    with the_database() as database:
        verdict = _verdict(database, played)
        times = _commit_times(played)
        rate = _rate(database, played, times=times)
    waits = sorted(each.waited_ms for each in times)
    return Result(
        conversations=plan.conversations,
        turns=plan.turns,
        completed=nodes.completed,
        committed=verdict.committed,
        lost=verdict.lost,
        doubled=verdict.doubled,
        problems=(*nodes.failures(), *nodes.problems, *verdict.problems),
        turns_per_second=rate,
        commit_ms_p50=percentile(waits, 50),
        commit_ms_p99=percentile(waits, 99),
        commit_ms_max=percentile(waits, 100),
    )


def percentile(ordered: Sequence[int], percent: float) -> int | None:
    """The smallest of these sorted numbers that so many percent do not exceed; None of none."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def _verdict(database: Database, played: Stage) -> Verdict:
    total = Verdict()
    plan = played.plan
    with database.snapshot() as connection:
        for run, conversation in plan.performances():
            key = conversation.key(run)
            turn_ids = played.nodes.turns.get(key, [])
            content = read_ledger(connection, LedgerName(AGENT, key))
            if content is None:
                total.add(Verdict(lost=len(turn_ids)))
                continue
            verdict = judge_ledger(
                content,
                turns=conversation.turns,
                work_keys=[conversation.work_key(run, turn) for turn in conversation.turns],
                played=turn_ids,
                most=database.config.current().max_entries,
            )
            verdict.problems = [f"{key}: {problem}" for problem in verdict.problems]
            total.add(verdict)
    return total


def _commit_times(played: Stage) -> list[CommitTimes]:
    turn_ids = [turn_id for turns in played.nodes.turns.values() for turn_id in turns]
    deadline = time.monotonic() + LATEST_S
    with the_records() as records:
        while True:
            times = read_commit_times(records, turn_ids)
            if len(times) == len(turn_ids) or time.monotonic() > deadline:
                return times
            time.sleep(POLL_S)


def _rate(database: Database, played: Stage, *, times: Sequence[CommitTimes]) -> float | None:
    with database.snapshot() as connection:
        first = read_first_start(connection, agent=AGENT, keys=list(played.nodes.turns))
    if first is None or not times:
        return None
    last_ms = max(each.committed_at_ms for each in times)
    return round(len(times) / (last_ms / MILLISECONDS - first.timestamp()), 1)
