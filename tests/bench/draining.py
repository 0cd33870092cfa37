"""How fast queued turns become history, against plain RQ and against the bare limit."""

import time
from collections.abc import Callable, Sequence

import psycopg

from tests.bench.payload import check_size, sample_turns
from tests.bench.peer_worker import QUEUE as PLAIN_QUEUE
from tests.bench.peer_worker import enqueue as enqueue_plainly
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig, wait_until
from tests.bench.seeding import EVENT_COLUMNS, Heads, groups_of, seed_completed
from tests.bench.timing import in_turns, median, seconds_of
from tests.processes import Processes
from turnledger.checkpoint.loading import load_turns
from turnledger.store.commit import CommitPlan, Evidence, plan_commit

TURNS, LEDGERS, PLAIN_TURNS, ROUNDS = 10_000, 200, 1_000, 3
ENTRY_COLUMNS = "ledger_entry (ledger_id, ordinal, entry_id, turn_id, work_key, completed_at, entry)"
RUN_COLUMNS = "ledger_turn (turn_id, ledger_id, work_key, started_at, ended_at, outcome)"
_PEER = "from tests.bench.peer_worker import main; main()"
_PARKED = "bench:parked"

Copied = Sequence[tuple[str, Sequence[Sequence[object]]]]


def measure(rig: Rig) -> Report:
    """The drain by one, two and four workers, by plain RQ, and the bare COPY of the same rows."""
    spread = _Queued(rig, ledgers=LEDGERS)
    one, two, four, plain, bare = in_turns(
        lambda: spread.drained_by(1),
        lambda: spread.drained_by(2),
        lambda: spread.drained_by(4),
        spread.drained_plainly,
        spread.copied,
        rounds=ROUNDS,
    )
    single = _Queued(rig, ledgers=1)
    alone = [single.drained_by(1) for _ in range(2)]
    rate = median(one)
    rig.turns_per_second = rate
    results = (
        Result("one worker", rate, "turns/s", "plain RQ, one transaction a turn", median(plain), Goal("at least", 15)),
        Result("one worker", rate, "turns/s", "bare COPY of the same rows", median(bare), Goal("at least", 0.6)),
        Result("two workers", median(two), "turns/s", "one worker", rate, Goal("at least", 1)),
        Result("four workers", median(four), "turns/s", "one worker", rate),
        Result("one worker, 1 ledger", median(alone), "turns/s", f"{LEDGERS} ledgers", rate),
    )
    return Report("a. Turns committed per second", _how(spread.bytes_a_turn), results)


def one_worker_rate(rig: Rig) -> float:
    """Turns a second of one worker, measured once in this run."""
    if rig.turns_per_second is None:
        rig.turns_per_second = _Queued(rig, ledgers=LEDGERS).drained_by(1)
    return rig.turns_per_second


class _Queued:
    """Turns that are completed and queued; each drain begins from there."""

    def __init__(self, rig: Rig, *, ledgers: int) -> None:
        self._rig = rig
        self._samples = sample_turns(TURNS, ledgers=ledgers)
        rig.empty()
        heads = seed_completed(rig, self._samples)
        plans = self._plans(heads)
        self.bytes_a_turn = check_size(plans[0], turns=len(plans[0].entries))
        self._batches = [_rows(plan) for plan in plans]
        rig.keep()

    def drained_by(self, workers: int) -> float:
        """Turns a second, from the moment at which idle workers are given the whole queue to the last commit."""
        return self._drain(start_worker, processes=workers, queue=self._rig.records.keys.queue, turns=TURNS)

    def drained_plainly(self) -> float:
        return self._drain(_start_peer, processes=1, queue=f"rq:queue:{PLAIN_QUEUE}", turns=PLAIN_TURNS)

    def copied(self) -> float:
        """Turns a second of a bare COPY: one connection, one transaction for each group, rows made before."""
        self._rig.set_back()
        with psycopg.connect(self._rig.database_url, options="-c search_path=turnledger") as connection:
            connection.execute("TRUNCATE ledger_turn")  # the same rows are copied into it
            connection.commit()
            self._rig.settle()
            seconds = seconds_of(lambda: _copy_all(connection, self._batches))
        return TURNS / seconds

    def _plans(self, heads: Heads) -> list[CommitPlan]:
        """What the commit point will write, group by group."""
        plans = []
        for group in groups_of(load_turns(self._rig.records, [sample.turn_id for sample in self._samples])):
            plan = plan_commit(group, heads=heads, evidence=Evidence({}, {}, set()))
            heads = plan.heads
            plans.append(plan)
        return plans

    def _drain(self, start: Callable[[Processes], object], *, processes: int, queue: str, turns: int) -> float:
        rig = self._rig
        rig.set_back()
        enqueue_plainly(rig.redis_url, turn_ids=[sample.turn_id for sample in self._samples[:PLAIN_TURNS]])
        rig.redis.rename(queue, _PARKED)
        with Processes(rig.environment) as started:
            for _ in range(processes):
                start(started)
            wait_until(lambda: _idle_workers(rig) == processes, seconds=30)
            began = time.perf_counter()
            rig.redis.rename(_PARKED, queue)
            wait_until(lambda: backlog(rig) == TURNS - turns, seconds=300)
            seconds = time.perf_counter() - began
        check_committed(rig, turns=turns)
        return turns / seconds


def start_worker(processes: Processes) -> None:
    """One worker process of the product."""
    processes.command("worker")


def _start_peer(processes: Processes) -> None:
    processes.snippet(_PEER)


def _rows(plan: CommitPlan) -> Copied:
    runs = [
        (run.turn_id, run.ledger_id, run.work_key, started, ended, run.outcome)
        for run, (started, ended) in zip(plan.runs, plan.run_times, strict=True)
    ]
    return ((EVENT_COLUMNS, plan.events), (ENTRY_COLUMNS, plan.entries), (RUN_COLUMNS, runs))


def _copy_all(connection: psycopg.Connection, batches: Sequence[Copied]) -> None:
    for batch in batches:
        with connection.transaction(), connection.cursor() as cursor:
            for target, rows in batch:
                with cursor.copy(f"COPY {target} FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)


def _idle_workers(rig: Rig) -> int:
    return sum(rig.redis.hget(str(key), "state") == "idle" for key in rig.redis.smembers("rq:workers"))


def backlog(rig: Rig) -> int:
    return int(rig.redis.zcard(rig.records.keys.backlog))


def check_committed(rig: Rig, *, turns: int) -> None:
    """A wrong result is no measurement."""
    with psycopg.connect(rig.database_url, options="-c search_path=turnledger") as connection:
        row = connection.execute("SELECT count(*) FROM ledger_turn WHERE outcome = 'completed'").fetchone()
    assert row == (turns,), f"{row} turns are committed, not {turns}"


def _how(bytes_a_turn: float) -> str:
    return (
        f"{TURNS:,} queued turns in {LEDGERS} ledgers, 8 events and an entry each, {bytes_a_turn:,.0f} bytes of "
        "payload, content and entry a turn (counted). Workers are processes of their own (`turnledger worker`), idle "
        "when the whole queue is given to them; the clock stops when nothing is pending, and what Postgres then holds "
        f"is counted. Plain RQ is its SimpleWorker with a job of its own for each of {PLAIN_TURNS:,} of the turns: "
        "read, lock, commit_turns, mark as finished. Bare is psycopg's COPY of the very rows (events, entries, runs) "
        "into the same tables in groups of 200, one connection, rows made before; it looks nothing up, and trims and "
        f"updates nothing. Medians of {ROUNDS} rounds of all five in turns; servers set back and checkpointed before "
        "each."
    )
