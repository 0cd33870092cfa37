"""How many turns one process completes a second, against one bare script call that writes the same bytes."""

from collections.abc import Sequence
from typing import Any

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Report, Result
from tests.bench.rig import Rig
from tests.bench.seeding import complete, open_turns
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.checkpoint.queue import commit_job
from turnledger.checkpoint.turn import Turn

BLOCKS, BLOCK = 20, 100
_WRITES = """
local first_job_field, first_step = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('RPUSH', KEYS[2], unpack(ARGV, first_step))
redis.call('HSET', KEYS[3], unpack(ARGV, first_job_field, first_step - 1))
redis.call('RPUSH', KEYS[4], ARGV[1])
redis.call('RPUSH', KEYS[5], ARGV[1])
redis.call('ZADD', KEYS[6], redis.call('INCR', KEYS[7]), ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 4, first_job_field - 1))
return 'OK'
"""
_WRITTEN = (
    "entry", "entry_bytes", "fitting", "decision", "kept_steps", "events", "bytes", "state", "completion_no",
    "completed_at", "touched_at", "operation", "revision", "digest", "bootstrap", "lease_until",
)  # fmt: skip

Block = Sequence[tuple[Turn, SampleTurn]]


def measure(rig: Rig) -> Report:
    """`Turn.complete` and the bare call, in blocks in turns; no worker runs."""
    rig.empty()
    samples = sample_turns(BLOCKS * BLOCK + 1, ledgers=BLOCKS * BLOCK + 1)
    pairs = list(zip(open_turns(rig, samples), samples, strict=True))
    complete(*pairs.pop())
    bare = _Bare(rig, model=samples[-1].turn_id)
    blocks = iter([pairs[first : first + BLOCK] for first in range(0, len(pairs), BLOCK)])
    ours, theirs = in_turns(lambda: _calls_per_second(next(blocks)), bare.calls_per_second, rounds=BLOCKS)
    peer = "bare EVALSHA of the same bytes"
    result = Result("complete, one process", median(ours), "calls/s", peer, median(theirs))
    return Report("e. Completing turns", _how(bare.bytes_a_call), [result])


def _calls_per_second(block: Block) -> float:
    for _, sample in block:  # the words are made before the clock runs
        assert sample.steps
        assert sample.set_out_to
    return len(block) / seconds_of(lambda: _complete_all(block))


def _complete_all(block: Block) -> None:
    for turn, sample in block:
        complete(turn, sample)


class _Bare:
    """The writes of one completion, its arguments ready, in a script that checks nothing."""

    def __init__(self, rig: Rig, *, model: str) -> None:
        keys = rig.records.keys
        self._script = rig.redis.register_script(_WRITES)
        self._number = 0
        record = rig.redis.hgetall(keys.record(model))
        fields = [part for name in _WRITTEN for part in (name, record[name])]
        job = [part for pair in commit_job(model, settings=rig.records.settings).items() for part in pair]
        steps = rig.redis.lrange(keys.steps(model), 0, -1)
        self._arguments: list[Any] = [4 + len(fields), 4 + len(fields) + len(job), *fields, *job, *steps]
        self.bytes_a_call = sum(len(str(part).encode()) for part in self._arguments)

    def calls_per_second(self) -> float:
        return BLOCK / seconds_of(self._block)

    def _block(self) -> None:
        for _ in range(BLOCK):
            self._call()

    def _call(self) -> None:
        self._number += 1
        turn_id = f"bare-{self._number:08d}"
        record, job = f"{{bare}}ledger:turn:{turn_id}", f"{{bare}}:job:turn-{turn_id}"
        ledger = f"{{bare}}ledger:ledger:lead:bench%3A{self._number}"
        keys = [record, f"{record}:steps", job, "{bare}:queue:commits", f"{ledger}:pending", "{bare}ledger:backlog"]
        self._script(keys=[*keys, f"{ledger}:completions"], args=[turn_id, *self._arguments])


def _how(bytes_a_call: int) -> str:
    return (
        f"{BLOCKS} blocks of {BLOCK} calls a side, in turns, one process, one call at a time, no worker running. Ours "
        "builds entry and events from the turn's five steps, encodes them, and runs the fenced script. Bare is "
        f"redis-py's EVALSHA of a script that writes the same {bytes_a_call:,} bytes (steps, job, queue, pending list, "
        "index, record) and checks nothing, its arguments ready."
    )
