"""What a save costs early and late in a turn, against a bare pipeline that writes the same bytes."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import open_turns
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.checkpoint.turn import Turn
from turnledger.store import Step, openai_step
from turnledger.store.steps import encode_step

EARLY, LATE = 10, 1_000
EARLY_TURNS, LATE_TURNS, SAMPLES = 300, 15, 20
STEP_BYTES = 1_000
_DAY_MS = 86_400_000
_TEXT = "The flight of the fourteenth is full; the next one with two seats left leaves at noon. "


def measure(rig: Rig) -> Report:
    """`Turn.save` at its 10th and its 1,000th time, each beside the bare pipeline at the same place."""
    rig.empty()
    early = _pairs(rig, turns=EARLY_TURNS, saved=EARLY - 1, samples=1)
    late = _pairs(rig, turns=LATE_TURNS, saved=LATE - 1, samples=SAMPLES)
    ours_early, bare_early, ours_late, bare_late = in_turns(
        *(lambda times=times: next(times) for pair in (early, late) for times in pair),
        rounds=EARLY_TURNS,
    )
    peer = "bare pipeline of the same bytes"
    at_most_twice = Goal("at most", 2)
    results = (
        Result("10th save, p50", _ms(ours_early), "ms", peer, _ms(bare_early), at_most_twice),
        Result("1,000th save, p50", _ms(ours_late), "ms", peer, _ms(bare_late), at_most_twice),
        Result("1,000th save, p50", _ms(ours_late), "ms", "10th save", _ms(ours_early), Goal("at most", 1.2)),
    )
    return Report("b. Saving one step of 1 KB", _HOW, results)


def _pairs(rig: Rig, *, turns: int, saved: int, samples: int) -> tuple[Iterator[float], Iterator[float]]:
    """Seconds of one save each, ours and bare, at the same place of as many turns."""
    all_samples = sample_turns(turns, ledgers=turns, first=saved * 1_000)
    ours = [_Ours(turn) for turn in open_turns(rig, all_samples)]
    bare = [_Bare(rig, sample) for sample in all_samples]
    sides: list[_Side] = [*ours, *bare]
    for side in sides:
        for _ in range(saved):
            side.save()
    return _times(ours, samples=samples), _times(bare, samples=samples)


def _times(sides: "Sequence[_Side]", *, samples: int) -> Iterator[float]:
    for side in itertools.chain.from_iterable(itertools.repeat(side, samples) for side in sides):
        yield seconds_of(side.save)


class _Side(Protocol):
    def save(self) -> None: ...


class _Ours:
    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._step = sample_step()

    def save(self) -> None:
        self._turn.save(steps=[self._step])


class _Bare:
    """The writes of `save.lua` without its checks: what is left of a save when nothing can go wrong."""

    def __init__(self, rig: Rig, sample: SampleTurn) -> None:
        self._redis = rig.redis
        self._turn_id = sample.turn_id
        self._record = f"{{bare}}ledger:turn:{sample.turn_id}"
        self._steps = f"{self._record}:steps"
        self._step = encode_step(sample_step())
        self._revision = 0

    def save(self) -> None:
        now = time.time_ns() // 1_000_000
        self._revision += 1
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.rpush(self._steps, self._step)
            pipeline.zadd("{bare}ledger:turns", {self._turn_id: now})
            pipeline.hset(self._record, mapping=self._fields(now))
            pipeline.pexpireat(self._record, now + _DAY_MS)
            pipeline.pexpireat(self._steps, now + _DAY_MS)
            pipeline.execute()

    def _fields(self, now: int) -> dict[Any, Any]:
        return {
            "operation": "0123456789abcdef0123456789abcdef",
            "revision": self._revision,
            "lease_until": now + 60_000,
            "touched_at": now,
            "bootstrap": "",
        }


def sample_step() -> Step:
    """An assistant's answer of `STEP_BYTES` characters."""
    return openai_step({"role": "assistant", "content": (_TEXT * 20)[:STEP_BYTES]})


def _ms(seconds: list[float]) -> float:
    return median(seconds) * 1_000


_HOW = (
    f"One step of {STEP_BYTES:,} characters a save. The 10th save of {EARLY_TURNS} turns and saves 1,000 to "
    f"{LATE + SAMPLES - 1:,} of {LATE_TURNS} turns, the bare pipeline after as many of its own. Ours checks the step, "
    "encodes it and runs one script (fence, lease, expiry). Bare is redis-py with a ready text: RPUSH, ZADD, "
    "HSET of the same fields, PEXPIREAT twice, in MULTI/EXEC. All four in turns, one by one."
)
