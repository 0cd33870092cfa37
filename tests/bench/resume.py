"""What it takes to take a parked turn up again, by the number of its saved steps."""

from collections.abc import Callable

import psycopg

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.results import Report, Result
from tests.bench.rig import Rig, checkpoint_settings
from tests.bench.saving import STEP_BYTES, sample_step
from tests.bench.seeding import start
from tests.bench.timing import in_turns, median, seconds_of
from turnledger.checkpoint import Turns
from turnledger.checkpoint.records import Records

SAVED = (10, 100, 1_000)  # steps
ROUNDS = 100
ENDLESS = 1_000_000  # slices: the same turn is taken up again and again
_FENCE = "UPDATE ledger_turn SET epoch = epoch WHERE turn_id = %s"


def measure(rig: Rig) -> Report:
    """`Turns.resume` of parked turns of three lengths, each beside the bare reads and one bare transaction."""
    rig.empty()
    node = Turns(
        records=Records.from_settings(checkpoint_settings(redis_url=rig.redis_url, slices=ENDLESS)),
        database=rig.database,
    )
    samples = sample_turns(len(SAVED), ledgers=len(SAVED))
    for sample, steps in zip(samples, SAVED, strict=True):
        _park(node, sample, steps=steps)
    with psycopg.connect(rig.database_url, options="-c search_path=turnledger", autocommit=True) as connection:
        bare = [_bare(rig, connection, sample) for sample in samples]
        times = in_turns(*(_resumed(node, sample) for sample in samples), *bare, rounds=ROUNDS)
    node.close()
    p50 = [median(side) * 1_000 for side in times]
    results = [
        Result(f"resume, {steps:,} saved steps", ours, "ms", "bare reads and one UPDATE", theirs)
        for steps, ours, theirs in zip(SAVED, p50[: len(SAVED)], p50[len(SAVED) :], strict=True)
    ]
    return Report("h. Resuming turns", _HOW, results)


def _park(node: Turns, sample: SampleTurn, *, steps: int) -> None:
    turn = start(node, sample)
    turn.save(steps=[sample_step() for _ in range(steps)])
    turn.park(reason="bench")


def _resumed(node: Turns, sample: SampleTurn) -> Callable[[], float]:
    def side() -> float:
        resumed = []
        seconds = seconds_of(lambda: resumed.append(node.resume(sample.turn_id)))
        resumed[0].park(reason="bench")
        return seconds

    return side


def _bare(rig: Rig, connection: psycopg.Connection, sample: SampleTurn) -> Callable[[], float]:
    keys = rig.records.keys

    def read_and_write() -> None:
        with rig.redis.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(keys.record(sample.turn_id))
            pipeline.lrange(keys.steps(sample.turn_id), 0, -1)
            pipeline.execute()
        connection.execute(_FENCE, [sample.turn_id])

    return lambda: seconds_of(read_and_write)


_HOW = (
    f"Three parked turns with {', '.join(f'{steps:,}' for steps in SAVED)} saved steps of {STEP_BYTES:,} characters, "
    f"each resumed and parked again {ROUNDS} times, in turns; the park is not measured. A resume looks at the history "
    "in Postgres, claims the record, raises the epoch there in a durable transaction, and decodes all steps. Bare is "
    "HGETALL and LRANGE of the same record in MULTI/EXEC, nothing decoded, and one UPDATE of one row."
)
