"""Repairs of records: each one atomic, and none at all once the record is no longer as it was seen.

No repair touches the fence of an unfinished turn: owner, revision and operation stay, so that a current owner's save
and complete are always accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from redis import Redis

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.keys import Keys, fit_job_id, job_id
from turnledger.checkpoint.scripting import flat, load_script
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.checkpoint.sighting import Sighting

Keeping = Literal["for ever", "for a while"]
Fields = Mapping[str, str | int]

HELPERS = ("_shared", "_guard")
_SCRIPTS = ("amend", "place", "conclude", "revive", "quarantine")
_SEEN = ("state", "owner", "revision", "touched_at", "cursor")


class Repairs:
    """Runs the scripts of repair over one Redis; each answers whether it found the record as it was seen.

    Thread-safe. A client to which bytes that are no text are no error can also repair records that hold such bytes.
    """

    def __init__(self, redis: Redis, *, keys: Keys, settings: CheckpointSettings) -> None:
        self._redis = redis
        self._keys = keys
        self._settings = settings
        self._scripts = {name: load_script(redis, name, helpers=HELPERS) for name in _SCRIPTS}

    def amend(self, seen: Sighting, changes: Fields) -> bool:
        """Set fields of a record; how long it lives stays as it is."""
        return self._run("amend", [self._keys.record(seen.turn_id)], [*_guard(seen), *flat(changes)])

    def place(self, seen: Sighting) -> bool:
        """Put a turn on the lists and indexes that its state wants, and take it off all others.

        A completed turn gets its place in the pending list by the number of its completion.
        """
        keys, ledger_keys = self._keys, self._ledger_keys(seen, "open", "pending", "rejected")
        places = [keys.record(seen.turn_id), keys.steps(seen.turn_id), *ledger_keys, keys.turns, keys.backlog]
        expiry_ms = round(self._settings.unfinished_expiry_s * 1000)
        return self._run("place", places, [seen.turn_id, seen.fields.get("state", ""), keys.turn_prefix, expiry_ms])

    def end(self, seen: Sighting, changes: Fields) -> bool:
        """Give a turn its last state: off every list, its job cleared, kept for the length of a spare copy."""
        return self._conclude(seen, spare_ms=round(self._settings.spare_copy_s * 1000), changes=changes)

    def drop(self, seen: Sighting) -> bool:
        """Delete record and steps: off every list, its job cleared."""
        return self._conclude(seen, spare_ms="", changes={})

    def revive(self, seen: Sighting) -> bool:
        """Make a committed turn a completed one again; it never expires from now on."""
        places = [self._keys.record(seen.turn_id), self._keys.steps(seen.turn_id)]
        return self._run("revive", [*places, *self._ledger_keys(seen, "completions")], _guard(seen))

    def quarantine(self, seen: Sighting, *, keep: Keeping) -> bool:
        """Move a record that cannot be read to a key of its own, with its steps."""
        keys, turn_id = self._keys, seen.turn_id
        places = [keys.record(turn_id), keys.steps(turn_id), keys.quarantine(turn_id), keys.quarantine_steps(turn_id)]
        kept_ms = "" if keep == "for ever" else round(self._settings.unfinished_expiry_s * 1000)
        head = [turn_id, kept_ms, seen.kind]
        return self._run("quarantine", [*places, keys.quarantined, keys.turns, keys.backlog], [*head, *_guard(seen)])

    def forget_expired(self) -> int:
        """Take turns off the index of the quarantine whose record has expired there; returns how many."""
        with translated():
            found: Any = self._redis.zrange(self._keys.quarantined, 0, -1)
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for turn_id in found:
                pipeline.exists(self._keys.quarantine(turn_id))
            kept = pipeline.execute() if found else []
            gone = [turn_id for turn_id, there in zip(found, kept, strict=True) if not there]
            return int(self._redis.zrem(self._keys.quarantined, *gone)) if gone else 0

    def _conclude(self, seen: Sighting, *, spare_ms: int | str, changes: Fields) -> bool:
        keys, turn_id = self._keys, seen.turn_id
        places = [keys.record(turn_id), keys.steps(turn_id)]
        places += self._ledger_keys(seen, "open", "pending", "rejected", "completions")
        jobs = [job_id(turn_id), fit_job_id(turn_id)]
        places += [keys.turns, keys.backlog]
        places += [key for job in jobs for key in (keys.job_prefix + job, keys.results(job))]
        places += keys.registries
        head = [turn_id, *jobs, spare_ms, round(self._settings.unfinished_expiry_s * 1000)]
        return self._run("conclude", places, [*head, *_guard(seen), *flat(changes)])

    def _ledger_keys(self, seen: Sighting, *kinds: str) -> list[str]:
        return [f"{self._keys.ledger_prefix}{seen.ledger}:{kind}" for kind in kinds]

    def _run(self, name: str, keys: Sequence[str], arguments: Sequence[Any]) -> bool:
        with translated():
            return bool(self._scripts[name](keys=list(keys), args=list(arguments)))


def _guard(seen: Sighting) -> list[str | int]:
    """What must not have changed since the turn was seen: a renewed lease counts as a change."""
    fields = flat({name: seen.fields.get(name, "") for name in _SEEN})
    return [len(fields), *fields]
