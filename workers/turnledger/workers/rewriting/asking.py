"""Asks a rewriter for accounts, as long as there is time and a budget for it, and counts what they cost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from turnledger.checkpoint.budgets import Budgets
from turnledger.checkpoint.records import new_token
from turnledger.store import TurnledgerError
from turnledger.store.logs import get_logger
from turnledger.store.rewriting import Rewriter, Rewriting
from turnledger.workers.rewriting.time_left import TimeLeft

log = get_logger(__name__)

RewriterFor = Callable[[TimeLeft], AbstractContextManager[Rewriter]]


class Asking:
    """The accounts for one agent, and the tokens that they cost so far. Without a rewriter there are none."""

    def __init__(self, agent: str, *, rewriter: Rewriter | None, budgets: Budgets, left: TimeLeft) -> None:
        self._agent = agent
        self._rewriter = rewriter
        self._budgets = budgets
        self._left = left
        self.tokens = 0

    def account(self, text: str, *, question: str, budget_bytes: int) -> str | None:
        """An account of the text; None where there is no time, no budget, or no usable answer."""
        rewriter = self._rewriter
        if rewriter is None or self._left.seconds() <= 0 or not self._budgets.has_room(self._agent):
            return None
        try:
            made = rewriter.rewrite(text, question=question, budget_bytes=budget_bytes, agent=self._agent)
        except Exception as error:  # noqa: BLE001  # a rewriter of the deployment's own may do anything
            log.error("rewriter_failed", agent=self._agent, error=type(error).__name__)
            return None
        self._count(made)
        return made.text

    def _count(self, made: Rewriting) -> None:
        """A model was called: that is spent, whatever it said."""
        if made.tokens <= 0:
            return
        self.tokens += made.tokens
        try:
            self._budgets.spend(agent=self._agent, tokens=made.tokens, operation=new_token())
        except TurnledgerError as error:
            log.error("spending_not_counted", agent=self._agent, tokens=made.tokens, reason=str(error))


@contextmanager
def asking_for(agent: str, *, rewriter: RewriterFor | None, budgets: Budgets, left: TimeLeft) -> Iterator[Asking]:
    """Ask a rewriter that is made for the length of the block; nobody, where it cannot be made."""
    with ExitStack() as opened:
        yield Asking(agent, rewriter=_opened(opened, rewriter, left), budgets=budgets, left=left)


def _opened(opened: ExitStack, rewriter: RewriterFor | None, left: TimeLeft) -> Rewriter | None:
    if rewriter is None:
        return None
    try:
        return opened.enter_context(rewriter(left))
    except Exception as error:  # noqa: BLE001  # whatever keeps it from being made
        log.error("rewriter_not_made", error=type(error).__name__)
        return None
