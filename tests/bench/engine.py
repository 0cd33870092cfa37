"""An engine process that completes turns at a fixed rate, whether or not anything keeps up with it."""

import sys
import time
from collections.abc import Sequence

from tests.bench.payload import SampleTurn, sample_turns
from tests.bench.rig import checkpoint_settings
from tests.bench.seeding import complete, open_turn, seed_started
from turnledger.checkpoint import Turns
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.turn import Turn
from turnledger.store import Database, StoreSettings, read_settings

GO = "bench:go"
READY = "ready"
DONE = "done"


def run(*, first: int, count: int, rate: float) -> None:
    """Open the turns, say so, wait for the common moment of beginning, then complete one every 1/rate seconds."""
    records = Records.from_settings(checkpoint_settings())
    database = Database(read_settings(StoreSettings))
    samples = sample_turns(count, ledgers=count, first=first)
    heads = seed_started(database, samples)
    handles = Turns(records=records, database=database)
    turns = [open_turn(handles, records, sample, head=heads[sample.ledger]) for sample in samples]
    for sample in samples:
        assert sample.steps  # its words are made now
        assert sample.set_out_to
    print(READY, flush=True)  # noqa: T201  # the process that started this one waits for it
    print(DONE, _send(turns, samples, began=_wait_for_go(records), rate=rate), flush=True)  # noqa: T201


def _send(turns: Sequence[Turn], samples: Sequence[SampleTurn], *, began: float, rate: float) -> float:
    """Returns how many seconds it took from the common moment to the last answer."""
    for number, (turn, sample) in enumerate(zip(turns, samples, strict=True)):
        pause_s = began + number / rate - time.time()
        if pause_s > 0:
            time.sleep(pause_s)
        complete(turn, sample)
    return time.time() - began


def _wait_for_go(records: Records) -> float:
    while True:
        moment = records.redis.get(GO)
        if moment is not None:
            return float(str(moment))
        time.sleep(0.01)


def main() -> None:
    run(first=int(sys.argv[1]), count=int(sys.argv[2]), rate=float(sys.argv[3]))
