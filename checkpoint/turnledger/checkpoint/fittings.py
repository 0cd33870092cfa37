"""Turns that wait for their rewriting: begun, ended, given up. Each is one script; what has changed is left alone."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import decode_ledger, fit_job_id
from turnledger.checkpoint.records import JOB_HELPERS, Records
from turnledger.checkpoint.scripting import flat, load_script
from turnledger.checkpoint.turn_steps import byte_size
from turnledger.store import LedgerName

Fitted = Literal["done", "names"]
_SCRIPTS = {"begin_fitting": ("_shared",), "end_fitting": ("_shared",), "give_up_fitting": JOB_HELPERS}


class Unfitted(NamedTuple):
    """A turn that waits: its entry as the engine gave it, and the seconds that its rewriting may still take."""

    ledger: LedgerName
    left_s: float
    entry: str


class Fittings:
    """The rewriting of turns in one Redis. Thread-safe."""

    def __init__(self, records: Records) -> None:
        self._redis = records.redis
        self._records = records
        self._keys = records.keys
        self._scripts = {name: load_script(records.redis, name, helpers=helpers) for name, helpers in _SCRIPTS.items()}

    def begin(self, turn_id: str, *, within_s: float) -> Unfitted | None:
        """A worker begins on this turn; None when there is nothing to rewrite, or no longer.

        The time runs from the first call on: another worker that tries again gets what is left of it.
        """
        with translated():
            found = self._scripts["begin_fitting"](
                keys=[self._keys.record(turn_id)], args=[max(round(within_s * 1000), 1)]
            )
        if not found:
            return None
        ledger, left_ms, entry = found
        return Unfitted(decode_ledger(ledger), int(left_ms) / 1000, entry or "")

    def end(self, turn_id: str, *, fitted: Fitted, entry: str = "") -> bool:
        """Store what became of it and queue the turn's commit, both or neither; False: nobody waits for it any more.

        `entry` is the fitted one; with `names` it stays as it is, and whoever commits it names what is over-long.
        """
        job = self._records.commit_job(turn_id)
        places = [self._keys.record(turn_id), self._keys.job(turn_id), self._keys.queues, job.queue]
        arguments: list[Any] = [fitted, entry, byte_size(entry), job.queue, job.job_id, *flat(job.fields)]
        with translated():
            return bool(self._scripts["end_fitting"](keys=places, args=arguments))

    def give_up(self, turn_ids: Sequence[str]) -> list[str]:
        """Let those of these turns have names whose job of rewriting is gone; which these are, in one round trip."""
        queue, script = self._keys.rewrites, self._scripts["give_up_fitting"]
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                job = fit_job_id(turn_id)
                places = [self._keys.record(turn_id), self._keys.fit_job(turn_id), queue]
                places += [self._keys.taken(queue), self._keys.executions(job)]
                script(keys=places, args=[job], client=pipeline)
            answers = pipeline.execute() if turn_ids else []
        return [turn_id for turn_id, given_up in zip(turn_ids, answers, strict=True) if given_up]
