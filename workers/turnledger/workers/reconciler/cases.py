"""One turn with all that was read of it, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnledger.checkpoint.sighting import Sighting
from turnledger.store.ledger import Run
from turnledger.store.standing import Standing
from turnledger.workers.reconciler.decisions import Action, Facts
from turnledger.workers.reconciler.facts import Content


@dataclass(frozen=True, slots=True)
class Case:
    """A turn as Redis and then Postgres had it, and the action that follows."""

    seen: Sighting
    content: Content
    standing: Standing
    facts: Facts
    action: Action

    @property
    def turn_id(self) -> str:
        """Whose case it is."""
        return self.seen.turn_id

    @property
    def run(self) -> Run:
        """Its row in Postgres, or the row it would have."""
        if self.standing.run is not None:
            return self.standing.run
        return Run(self.turn_id, 0, self.content.work_key or "", self.content.epoch, 0, None, None)

    @property
    def first(self) -> str:
        """The run that completed its work before it; '' when none did."""
        return self.run.duplicate_of or self.standing.answered_by or ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was done, or would be, with one turn. `outcome` is `done`, `changed` (meanwhile, so it was left),
    `postponed` (a server was busy or refused) or `would` (nothing was to be written).
    """

    turn_id: str
    agent: str
    conversation: str
    action: Action
    outcome: str


@dataclass(frozen=True, slots=True)
class Report:
    """One sweep: turns looked at, what was done by kind of action, and the rest by why it was not.

    `reported` counts what an operator should hear of, `whole` is False for a sweep that was stopped.
    """

    examined: int
    done: Mapping[str, int]
    changed: int
    postponed: int
    reported: int
    whole: bool
