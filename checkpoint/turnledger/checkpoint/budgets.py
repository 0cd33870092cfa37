"""Budgets of tokens: one an agent and one for the whole deployment, each for a window of time, in Redis.

What is not set is unlimited. Spending is counted whole, also past the ceiling: a budget says when to stop asking.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records, new_token
from turnledger.checkpoint.scripting import load_script
from turnledger.store import InvalidInput, TurnledgerError
from turnledger.store.identity import check_agent
from turnledger.store.logs import get_logger

log = get_logger(__name__)

REMEMBERED_S = 3_600  # far longer than a client goes on repeating a call whose reply was lost
MOST_TOKENS = 10**12  # a year of everything; a larger figure is a mistake, and Redis' counters end at 2**63
_DEPLOYMENT = "deployment"
_AGENT = "agent:"


@dataclass(frozen=True, slots=True)
class Balance:
    """One budget in this window: `limit` tokens, None without one, of which `spent` are gone."""

    limit: int | None
    spent: int

    @property
    def left(self) -> int | None:
        """The tokens that are left, never below 0; None without a limit."""
        return None if self.limit is None else max(self.limit - self.spent, 0)

    @property
    def has_room(self) -> bool:
        """Whether a model may still be asked."""
        return self.left != 0


@dataclass(frozen=True, slots=True)
class Balances:
    """Every budget that is set or was drawn upon in this window, which ends at `until`."""

    deployment: Balance
    agents: Mapping[str, Balance]
    until: datetime


class Budgets:
    """The budgets of one deployment. Thread-safe."""

    def __init__(self, records: Records) -> None:
        self._redis = records.redis
        self._prefix = f"{records.settings.prefix}:spend:"
        self._limits = f"{records.settings.prefix}:budgets"
        self._window_ms = records.settings.budget_window_s * 1000
        self._scripts = {name: load_script(records.redis, name) for name in ("spend", "budget")}

    def spend(self, *, agent: str, tokens: int, operation: str | None = None) -> bool:
        """Count tokens that a model was asked for in this agent's name; an engine may count its own.

        The whole figure counts, also past the ceiling. Under the same `operation` it counts once, within an hour;
        False: it was counted before.

        Raises:
            InvalidInput: no agent, or no number of tokens.
            CheckpointUnavailable: it may or may not be counted; repeat it under its operation.
        """
        check_agent(agent)
        if not 0 <= tokens <= MOST_TOKENS:
            raise InvalidInput(f"tokens is {tokens!r}; it is a whole number from 0 to {MOST_TOKENS}", where="tokens")
        key = f"{self._prefix}operation:{operation or new_token()}"
        arguments: list[Any] = [self._prefix, self._window_ms, agent, tokens, REMEMBERED_S * 1000]
        with translated():
            return bool(self._scripts["spend"](keys=[key], args=arguments))

    def has_room(self, agent: str) -> bool:
        """Whether a model may be asked in this agent's name; a budget that cannot be read has room."""
        try:
            found = self._read(agent)
            return found.deployment.has_room and found.agents.get(agent, Balance(None, 0)).has_room
        except (TurnledgerError, ValueError) as error:
            log.warning("budget_not_read", agent=agent, reason=str(error))
            return True

    def balances(self) -> Balances:
        """All budgets, as they stand.

        Raises:
            CheckpointUnavailable: try again.
        """
        return self._read("")

    def set_limit(self, tokens: int | None, *, agent: str | None = None) -> None:
        """Set a budget, of the deployment unless an agent is named; None: unlimited. In force at once, everywhere.

        Raises:
            InvalidInput: no agent, or no number of tokens.
            CheckpointUnavailable: it may or may not be set; a repeat is safe.
        """
        name = _DEPLOYMENT if agent is None else _AGENT + check_agent(agent)
        if tokens is not None and not 0 <= tokens <= MOST_TOKENS:
            raise InvalidInput(f"{tokens} is no budget; give 0 to {MOST_TOKENS} tokens", where="tokens")
        with translated():
            if tokens is None:
                self._redis.hdel(self._limits, name)
            else:
                self._redis.hset(self._limits, name, tokens)

    def _read(self, agent: str) -> Balances:
        with translated():
            answer = self._scripts["budget"](keys=[self._limits], args=[self._prefix, self._window_ms, agent])
        began_ms, limits, spent = int(answer[0]), _numbers(answer[1]), _numbers(answer[2])
        found = {name: Balance(limits.get(name), spent.get(name, 0)) for name in sorted({*limits, *spent})}
        return Balances(
            deployment=found.pop(_DEPLOYMENT, Balance(None, 0)),
            agents={name.removeprefix(_AGENT): balance for name, balance in found.items()},
            until=datetime.fromtimestamp((began_ms + self._window_ms) / 1000, tz=UTC),
        )


def _numbers(flat: list[str]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
