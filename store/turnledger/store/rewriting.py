"""What a rewriter is: whoever gives a short account of a long text. One that asks a model comes with the workers."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The account, None when none could be had, and the tokens it cost: also of answers that were of no use."""

    text: str | None
    tokens: int


class Rewriter(Protocol):
    """Gives accounts of texts. An account answers the question within so many bytes of UTF-8, or is None.

    It raises nothing: whatever goes wrong is an account that could not be had. `agent` is whose text it is.
    """

    def rewrite(self, text: str, *, question: str, budget_bytes: int, agent: str) -> Rewriting: ...
