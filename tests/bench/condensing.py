"""A conversation that has long outgrown its block: who calls the model, and what a start is shown."""

from pydantic import SecretStr

from tests.bench.results import Goal, Report, Result
from tests.bench.rig import Rig, checkpoint_settings
from tests.endpoint import Endpoint, saying, served
from turnledger.checkpoint import Turns
from turnledger.checkpoint.records import Records
from turnledger.store import LedgerName, Replied
from turnledger.workers.committer import Committer
from turnledger.workers.rewriting import Condenser, OpenAIRewriter, RewriteSettings
from turnledger.workers.settings import WorkerSettings

TURNS = 2_000
NAME = LedgerName("lead", "slack:D4")
REPLY = (
    "The surveyor has looked at the pallet, and the photographs are in the folder. " * 38
)  # 3 KB: 20 outgrow a block


def measure(rig: Rig) -> Report:
    """2,000 turns of one direct message, each committed, and its account made, before the next one starts."""
    rig.empty()
    with served() as endpoint:
        endpoint.says(saying("The pallets were surveyed."))
        deployment = _Deployment(rig, endpoint)
        condensed = sum(deployment.play(number) for number in range(TURNS))
    asked, in_starts = len(endpoint.asked), deployment.asked_in_starts
    results = [
        Result("starts that called a model", in_starts, "", "all starts", TURNS, Goal("at most", 0)),
        Result("starts that were shown an account", condensed, "", "all starts", TURNS),
        Result("calls of the model by workers", asked - in_starts, "", "all commits", TURNS),
    ]
    return Report("m. Condensing a long conversation", _how(), results)


class _Deployment:
    """One engine node, one worker of either queue, in one process; the model is an HTTP server beside it."""

    def __init__(self, rig: Rig, endpoint: Endpoint) -> None:
        settings = checkpoint_settings(redis_url=rig.redis_url, rewriting="on")
        records, database = Records.from_settings(settings), rig.database
        self._redis, self._keys, self._endpoint = rig.redis, records.keys, endpoint
        self._turns = Turns(records=records, database=database)
        self._committer = Committer(records=records, database=database, settings=WorkerSettings())
        model = RewriteSettings(rewrite_base_url=endpoint.url, rewrite_model="m", rewrite_key=SecretStr("k"))
        self._condenser = Condenser(
            database=database,
            records=records,
            rewriter=OpenAIRewriter(model).within,
            within_s=model.rewrite_turn_s,
            stopped=lambda: False,
        )
        self.asked_in_starts = 0

    def play(self, number: int) -> bool:
        """One turn to its end; whether it was shown an account of older ones."""
        before = len(self._endpoint.asked)
        turn = self._turns.start(agent=NAME.agent, conversation=NAME.conversation, triggered_by=f"And pallet {number}?")
        self.asked_in_starts += len(self._endpoint.asked) - before
        turn.complete(reply=Replied(REPLY))
        self._committer.persist(turn.turn_id)
        while self._redis.lpop(self._keys.rewrites):
            self._condenser.condense(NAME)
        self._redis.flushdb()  # what is committed needs it no more
        return "condensed" in turn.earlier


def _how() -> str:
    return (
        f"{TURNS:,} turns of one direct message with replies of 3 KB, so that a block holds six of 20 entries. Each "
        "turn is committed by the worker's own code, which asks for an account; the account is written by the worker's "
        "own code and a model behind HTTP before the next turn starts."
    )
