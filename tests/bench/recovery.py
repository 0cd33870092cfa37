"""How long a completed turn waits for its commit when the worker that has it in hand is killed."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.mortal_worker import DIE_AT
from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig, wait_until
from tests.bench.seeding import complete, open_turns
from tests.bench.timing import median
from tests.processes import Process, Processes
from turnledger.checkpoint.turn import Turn
from turnledger.workers.cli.fleet import Fleet
from turnledger.workers.worker import rq_connection

KILLS, WORKERS, BEHIND = 20, 2, 4
POINTS = ("commit.taken", "commit.locked", "commit.read", "commit.written", "commit.committed")
BOUND_S = 60.0
SPREAD_S = 120.0  # two rounds of whole sweeps, eight ticks of the clock: the kills meet them at any moment
GIVEN_UP_S = 3 * BOUND_S
_SEED = 20_261_130
_WORKER = "from tests.bench.mortal_worker import main; main()"

Pair = tuple[Turn, SampleTurn]


@dataclass
class _Kill:
    """One killed worker: how long each of the turns took that were completed in the same moment."""

    waiting: set[str]
    died_at: float
    waited_s: list[float] = field(default_factory=list)

    def look(self, rig: Rig) -> None:
        turn_ids = sorted(self.waiting)
        for turn_id, state in zip(turn_ids, rig.records.states(turn_ids) if turn_ids else [], strict=True):
            if state == "committed":
                self.waiting.discard(turn_id)
                self.waited_s.append(time.monotonic() - self.died_at)


def measure(rig: Rig) -> Report:
    """Twenty workers killed in the middle of a commit, one after the other, everything at its default settings."""
    rig.empty()
    turns = KILLS * (1 + BEHIND)
    samples = sample_turns(turns, ledgers=turns)
    pairs = list(zip(open_turns(rig, samples), samples, strict=True))
    with Processes(rig.environment) as started:
        started.command("clock")
        started.command("upkeep")
        kills = _Killing(rig, started).all(pairs)
    slowest = [max(kill.waited_s) for kill in kills]
    behind = [second for kill in kills for second in sorted(kill.waited_s)[:-1]]
    results = (
        Result("its turn committed, p50", median(slowest), "s", "bound", BOUND_S),
        Result(f"its turn committed, max of {KILLS}", max(slowest), "s", "bound", BOUND_S, Goal("at most", 1)),
        Result("the turns behind it, max", max(behind), "s", "bound", BOUND_S),
    )
    return Report("i. Recovering from a killed worker", _HOW, results)


class _Killing:
    """Two workers at any time; one of them dies, another is started in its place."""

    def __init__(self, rig: Rig, started: Processes) -> None:
        self._rig = rig
        self._started = started
        self._fleet = Fleet(rq_connection(rig.records.settings), queue=rig.records.settings.commit_queue)
        self._workers = [started.snippet(_WORKER) for _ in range(WORKERS)]
        self._chance = random.Random(_SEED)
        self._kills: list[_Kill] = []

    def all(self, pairs: Sequence[Pair]) -> list[_Kill]:
        """Kill, go on with the next, and wait for whatever is still to be recovered at the end."""
        began = time.monotonic()
        for number in range(KILLS):
            self._look_until(began + (number + self._chance.random()) * SPREAD_S / KILLS)
            self._wait_for_workers()
            self._kill(pairs[number::KILLS], at=POINTS[number % len(POINTS)])
        wait_until(self._all_recovered, seconds=GIVEN_UP_S)
        return self._kills

    def _kill(self, pairs: Sequence[Pair], *, at: str) -> None:
        self._rig.redis.set(DIE_AT, at)
        for turn, sample in pairs:
            complete(turn, sample)
        wait_until(lambda: self._dead() is not None, seconds=BOUND_S)
        self._kills.append(_Kill({turn.turn_id for turn, _ in pairs}, time.monotonic()))
        dead = self._dead()
        assert dead is not None
        self._workers[self._workers.index(dead)] = self._started.snippet(_WORKER)

    def _dead(self) -> Process | None:
        return next((worker for worker in self._workers if not worker.running), None)

    def _wait_for_workers(self) -> None:
        process_ids = {worker.pid for worker in self._workers}

        def all_listen() -> bool:
            self._all_recovered()
            return self._fleet.at_work(process_ids) == process_ids

        wait_until(all_listen, seconds=BOUND_S)

    def _look_until(self, moment: float) -> None:
        while time.monotonic() < moment:
            self._all_recovered()
            time.sleep(0.01)

    def _all_recovered(self) -> bool:
        for kill in self._kills:
            kill.look(self._rig)
        return not any(kill.waiting for kill in self._kills)


_HOW = (
    f"{KILLS} workers, two at a time, all at default settings, die by SIGKILL with a turn in hand, in turns at: "
    f"{', '.join(point.removeprefix('commit.') for point in POINTS)} (what was done last), spread by chance over "
    f"{SPREAD_S:g} s. Beside them run clock and upkeep; each dead worker is replaced at once. Each time {1 + BEHIND} "
    "turns had just been completed, each of a ledger of its own: nothing that comes later brings one along. Time runs "
    "from the death to the moment at which the record says committed. The clock takes over what is pending for 30 s, "
    "and looks every 15 s; a whole sweep, every 60 s, may come before it."
)
