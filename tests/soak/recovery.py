"""From a kill to the moment at which nothing of what it left behind is left."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records

_PENDING = "completed"
_AWAY = (CheckpointUnavailable, CheckpointMisconfigured)


@dataclass
class Watch:
    """One kill. `pending` are the turns that were on their way to Postgres, `held` what a killed node had in hand."""

    kind: str
    is_back: Callable[[], bool]
    pending: set[str] = field(default_factory=set)
    held: str | None = None
    held_by: str = ""
    began: float = field(default_factory=time.monotonic)
    took_s: float | None = None

    def look(self, records: Records) -> None:
        """Note the time once the process is back and all its turns have gone on."""
        try:
            if self.took_s is None and self.is_back() and self._has_gone_on(records):
                self.took_s = time.monotonic() - self.began
        except _AWAY:
            return

    def _has_gone_on(self, records: Records) -> bool:
        turn_ids = sorted(self.pending)
        states = records.states(turn_ids) if turn_ids else []
        self.pending = {turn_id for turn_id, state in zip(turn_ids, states, strict=True) if state == _PENDING}
        return not self.pending and (self.held is None or self._is_taken_over(records, self.held))

    def _is_taken_over(self, records: Records, turn_id: str) -> bool:
        """Somebody else has it, it has ended, or it is blocked because nobody knows whether its reply was sent."""
        record = look_at(records, turn_id)
        if record.get("state") == "running" and record.get("owner") == self.held_by and not record.get("blocked"):
            return False
        self.held = None
        return True


def look_at(records: Records, turn_id: str) -> Mapping[str, str]:
    """The fields of a record that tell who has it."""
    names = ("state", "owner", "blocked")
    with translated():
        found: Any = records.redis.hmget(records.keys.record(turn_id), names)
    return {name: value or "" for name, value in zip(names, found, strict=True)}


def pending_turns(records: Records) -> set[str]:
    """All turns on their way to Postgres; none while Redis is away."""
    try:
        with translated():
            found: Any = records.redis.zrange(records.keys.backlog, 0, -1)
    except _AWAY:
        return set()
    return set(found)
