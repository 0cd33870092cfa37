"""What an engine node does for the turns of others: it marks those whose history it replaced, and asks for upkeep.

Nothing here touches the fence: owner, revision and operation stay, so that a current owner's save and complete are
always accepted.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import encode_ledger
from turnledger.checkpoint.queue import (
    INVALIDATE_FUNCTION,
    RECONCILE_FUNCTION,
    RETENTION_FUNCTION,
    condense_job,
    upkeep_job,
)
from turnledger.checkpoint.record import RECORD_FORMAT, UNFINISHED, Cursor
from turnledger.checkpoint.records import Records
from turnledger.checkpoint.repairs import HELPERS
from turnledger.checkpoint.scripting import flat, load_script
from turnledger.store import InvalidInput, LedgerName
from turnledger.store.errors import without_content
from turnledger.store.logs import get_logger

log = get_logger(__name__)

_SCRIPTS = ("amend", "enqueue")
SWEEP_JOB = "reconcile"
RETENTION_JOB = "retention"
_MARKED_BY = ("state", "format", "cursor", "replaced_by")
UNREADABLE = (InvalidInput, ValueError, TypeError)  # what decoding a field of a broken record raises


class Upkeep:
    """Marks turns and queues jobs of upkeep in one Redis. Thread-safe."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._keys = records.keys
        self._redis = records.redis
        self._scripts = {name: load_script(records.redis, name, helpers=HELPERS) for name in _SCRIPTS}

    def mark_replaced(self, ledger: LedgerName, *, version: int, by: str) -> int:
        """Mark the ledger's other open turns that were built on an older history; returns how many it marked.

        A marked turn loses its bootstrap and learns at its next resume that history moved on; its owner may go on
        writing. Found by the ledger's index of open turns: what the index lacks, the reconciler finds. A repeat
        changes nothing.

        Raises:
            CheckpointUnavailable: some may be marked; the reconciler marks the rest.
        """
        turn_ids = sorted(self._open_turns(ledger) - {by})
        found = zip(turn_ids, self._fields(turn_ids, _MARKED_BY), strict=True)
        stale = {turn_id: fields for turn_id, fields in found if _is_older(turn_id, fields, version=version)}
        return self._mark(stale, version=version)

    def request_sweep(self) -> bool:
        """Ask for a sweep of everything; True when it was not asked for, or under way, already."""
        return self._request(upkeep_job(RECONCILE_FUNCTION, [], name=SWEEP_JOB, settings=self._records.settings))

    def request_retention(self) -> bool:
        """Ask for a sweep of what is past its age; True as `request_sweep`."""
        return self._request(upkeep_job(RETENTION_FUNCTION, [], name=RETENTION_JOB, settings=self._records.settings))

    def request_invalidation(self, ledger: LedgerName) -> bool:
        """Ask for a look at one ledger's open turns, after its history was replaced; True as `request_sweep`."""
        name = encode_ledger(ledger)
        job = f"invalidate-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return self._request(upkeep_job(INVALIDATE_FUNCTION, [name], name=job, settings=self._records.settings))

    def request_account(self, ledger: LedgerName) -> bool:
        """Ask for the account of one ledger's older entries; True as `request_sweep`."""
        name = encode_ledger(ledger)
        job = f"condense-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return self._request(condense_job(name, name=job, settings=self._records.settings))

    def _request(self, job: Mapping[str, str | bytes]) -> bool:
        """The id of a job is its description."""
        prefix, job_id, origin = self._keys.rq_prefix, str(job["description"]), str(job["origin"])
        queue = f"{prefix}:queue:{origin}"
        places = [f"{prefix}:job:{job_id}", self._keys.queues, queue, f"{prefix}:failed:{origin}"]
        kept_ms = 2_000 * int(job["timeout"])
        with translated():
            return bool(self._scripts["enqueue"](keys=places, args=[job_id, queue, kept_ms, *flat(job)]))

    def _open_turns(self, ledger: LedgerName) -> set[str]:
        with translated():
            found: Any = self._redis.smembers(self._keys.open(ledger))
        return set(found)

    def _fields(self, turn_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                pipeline.hmget(self._keys.record(turn_id), names)
            return [{name: value or "" for name, value in zip(names, row, strict=True)} for row in pipeline.execute()]

    def _mark(self, stale: Mapping[str, Mapping[str, str]], *, version: int) -> int:
        changes = flat({"replaced_by": version, "bootstrap": ""})
        script = self._scripts["amend"]
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for turn_id, fields in stale.items():
                seen = flat({name: fields[name] for name in ("state", "cursor", "replaced_by")})
                script(keys=[self._keys.record(turn_id)], args=[len(seen), *seen, *changes], client=pipeline)
            return sum(pipeline.execute()) if stale else 0


def _is_older(turn_id: str, fields: Mapping[str, str], *, version: int) -> bool:
    if fields["state"] not in UNFINISHED or fields["format"] != RECORD_FORMAT:
        return False
    try:
        cursor = Cursor.decode(fields["cursor"])
        marked = int(fields["replaced_by"] or 0)
    except UNREADABLE as error:
        log.warning("record_unreadable", turn_id=turn_id, reason=without_content(error))
        return False
    return cursor.ledger_id is not None and cursor.history_version < version and marked < version
