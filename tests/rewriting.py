"""What tests of rewriting share: turns with something over-long in them, and a fitter in this process."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pydantic import SecretStr

from tests.endpoint import Endpoint
from tests.engine import Engine
from turnledger.checkpoint import Turn
from turnledger.checkpoint.keys import fit_job_id
from turnledger.checkpoint.records import Records
from turnledger.store import CallRecord, NoReplyOwed
from turnledger.store.fitting import CONDENSED, name_payload
from turnledger.store.rewriting import Rewriter, Rewriting
from turnledger.workers.rewriting import Fitter, OpenAIRewriter, RewriteSettings
from turnledger.workers.settings import WorkerSettings

LONG = "a long letter " * 40
ANOTHER = "another long letter " * 40
ACCOUNT = f"{CONDENSED}short"


def complete_long(
    engine: Engine, *texts: str, conversation: str = "jira:POC-1", agent: str = "lead", **more: Any
) -> Turn:
    """A completed turn with a call for each text, which is too long for an entry."""
    turn = engine.start(conversation, agent=agent)
    calls = tuple(CallRecord("send", {"text": text, "copies": 3}, "success") for text in texts or (LONG,))
    turn.complete(reply=NoReplyOwed(), calls=calls, **more)
    return turn


def answering(does: Callable[[], Rewriting]) -> Callable[[object], AbstractContextManager[Rewriter]]:
    """Makes rewriters of somebody's own, which say this of every piece."""
    return lambda _: nullcontext(_Own(does))


class _Own:
    def __init__(self, does: Callable[[], Rewriting]) -> None:
        self._does = does

    def rewrite(self, text: str, *, question: str, budget_bytes: int, agent: str) -> Rewriting:
        del text, question, budget_bytes, agent
        return self._does()


class Fitting:
    """A fitter over an endpoint, and the queue it works off."""

    def __init__(self, engine: Engine, endpoint: Endpoint | None) -> None:
        self._engine = engine
        self._rewriter = endpoint and OpenAIRewriter(
            RewriteSettings(
                rewrite_base_url=endpoint.url,
                rewrite_model="small",
                rewrite_key=SecretStr("sk-1"),
                rewrite_call_s=5.0,
            )
        )

    def fitter(
        self, *, records: Records | None = None, within_s: float = 30.0, stopped: Callable[[], bool] = lambda: False
    ) -> Fitter:
        return Fitter(
            records=records or self._engine.records,
            rewriter=self._rewriter.within if self._rewriter else None,
            within_s=within_s,
            settings=WorkerSettings(transient_wait_s=0.5, first_pause_s=0.01, longest_pause_s=0.05),
            stopped=stopped,
        )

    def queued(self) -> list[str]:
        return list(self._engine.redis.lrange(self._engine.keys.rewrites, 0, -1))

    def run_all(self) -> None:
        """What a worker of the queue would do, in this process."""
        fitter = self.fitter()
        while job := self._engine.redis.lpop(self._engine.keys.rewrites):
            fitter.fit(job.removeprefix("fit-"))
            self._engine.redis.delete(f"rq:job:{job}")


def lose_job(engine: Engine, turn: Turn) -> None:
    """An operator deletes the job of a rewriting."""
    engine.redis.lrem(engine.keys.rewrites, 0, fit_job_id(turn.turn_id))
    engine.redis.delete(engine.keys.fit_job(turn.turn_id))


def entries(engine: Engine) -> dict[str, Any]:
    """The committed entries by turn."""
    with engine.connected() as connection:
        rows = connection.execute("SELECT turn_id, entry FROM turnledger.ledger_entry ORDER BY ledger_id, ordinal")
        return dict(rows.fetchall())


def sent(engine: Engine, turn: Turn) -> list[str]:
    """The texts of a committed turn's calls, as they are stored."""
    return [call["arguments"]["text"] for call in entries(engine)[turn.turn_id]["calls"]]


def named(*texts: str) -> list[str]:
    return [name_payload(text) for text in texts]
