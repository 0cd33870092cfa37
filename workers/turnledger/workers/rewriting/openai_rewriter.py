"""The shipped rewriter: accounts by a model behind any OpenAI-compatible endpoint."""

import unicodedata
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from turnledger.store.rewriting import Rewriting
from turnledger.workers.rewriting.cache import RewriteCache, cache_key
from turnledger.workers.rewriting.chat import ChatModel
from turnledger.workers.rewriting.prompts import Kind, instructions
from turnledger.workers.rewriting.settings import RewriteSettings
from turnledger.workers.rewriting.splitting import split_text
from turnledger.workers.rewriting.time_left import TimeLeft

WHOLE_BYTES = 64 * 1024  # up to here a model sees the text in one piece
MOST_BYTES = 2 * 1024 * 1024  # beyond it an account would stand for too much; nobody is asked
PART_BYTES = 2_000  # the account of one part: those of 32 parts fit into one piece again
AT_ONCE = 4  # parts of one text that are asked about at the same time


class OpenAIRewriter:
    """Makes rewriters that share one cache; one per process, thread-safe."""

    def __init__(self, settings: RewriteSettings, *, cache: RewriteCache | None = None) -> None:
        self._settings = settings
        self._cache = cache or RewriteCache()

    @contextmanager
    def within(self, left: TimeLeft) -> Iterator["BoundRewriter"]:
        """A rewriter for the length of a block, which has no answer any more once this time is up."""
        chat = ChatModel(self._settings, left=left)
        try:
            yield BoundRewriter(self._settings, chat, cache=self._cache)
        finally:
            chat.close()


@dataclass(frozen=True, slots=True)
class _Request:
    """What an account is asked for, beside the text."""

    kind: Kind
    model: str
    question: str
    budget_bytes: int


class BoundRewriter:
    """A `turnledger.store.rewriting.Rewriter`, for a time."""

    def __init__(self, settings: RewriteSettings, chat: ChatModel, *, cache: RewriteCache) -> None:
        self._settings = settings
        self._chat = chat
        self._cache = cache

    def rewrite(self, text: str, *, question: str, budget_bytes: int, agent: str) -> Rewriting:
        """An account of all of the text: of its parts first where it is longer than 64 KiB, and none beyond 2 MiB."""
        if _size(text) > MOST_BYTES:
            return Rewriting(None, 0)
        model, tokens = self._settings.model_for(agent), 0
        while _size(text) > WHOLE_BYTES:
            parts = self._parts(text, request=_Request("part", model, question, PART_BYTES))
            tokens += parts.tokens
            if parts.text is None:
                return Rewriting(None, tokens)
            text = parts.text
        account = self._account(text, request=_Request("account", model, question, budget_bytes))
        return Rewriting(account.text, tokens + account.tokens)

    def _parts(self, text: str, *, request: _Request) -> Rewriting:
        """The accounts of all parts, one below the other; None as soon as one cannot be had."""
        parts = split_text(text, part_bytes=WHOLE_BYTES)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewrite") as pool:
            asked = {part: pool.submit(self._account, part, request=request) for part in dict.fromkeys(parts)}
            _wait(list(asked.values()))
        found = {part: future.result() for part, future in asked.items() if not future.cancelled()}
        tokens = sum(account.tokens for account in found.values())
        accounts = [found[part].text if part in found else None for part in parts]
        whole = [account for account in accounts if account is not None]
        return Rewriting("\n".join(whole) if len(whole) == len(parts) else None, tokens)

    def _account(self, text: str, *, request: _Request) -> Rewriting:
        """One account from one text: an answer over its budget is shortened once."""
        key = cache_key(
            text,
            kind=request.kind,
            model=request.model,
            question=request.question,
            budget_bytes=request.budget_bytes,
        )
        known = self._cache.get(key)
        if known is not None:
            return Rewriting(known, 0)
        answer = self._ask(text, request=request, kind=request.kind)
        over = 0 if answer.text is None else _size(answer.text) - request.budget_bytes
        if answer.text is not None and over > 0:
            shorter = self._ask(answer.text, request=request, kind="shorten", over_bytes=over)
            answer = Rewriting(shorter.text, answer.tokens + shorter.tokens)
        if answer.text is None or _size(answer.text) > request.budget_bytes:
            return Rewriting(None, answer.tokens)
        self._cache.put(key, answer.text)
        return answer

    def _ask(self, text: str, *, request: _Request, kind: Kind, over_bytes: int = 0) -> Rewriting:
        told = instructions(kind, question=request.question, budget_bytes=request.budget_bytes, over_bytes=over_bytes)
        answer = self._chat.ask(text, instructions=told, model=request.model)
        return Rewriting(_usable(answer.text), answer.tokens)


def _wait(futures: list[Future[Rewriting]]) -> None:
    """Until all have ended; those that were not begun are called off once one has failed."""
    for future in as_completed(futures):
        if not future.cancelled() and future.result().text is None:
            for other in futures:
                other.cancel()


def _usable(answer: str | None) -> str | None:
    """The answer on one line; None for one that is blank or no text."""
    if answer is None:
        return None
    line = " ".join(answer.split())
    is_text = not any(unicodedata.category(character) in ("Cc", "Cs") for character in line)
    return line if line and is_text else None


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
