"""One question to one model, through the OpenAI client: bounded in time and size, and never an error."""

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from turnledger.store.logs import get_logger
from turnledger.workers.rewriting.settings import RewriteSettings
from turnledger.workers.rewriting.time_left import TimeLeft

log = get_logger(__name__)

MOST_ANSWER_BYTES = 1024 * 1024  # of an HTTP answer: many times what any account needs
CONNECT_S = 5.0  # an endpoint that cannot be reached by then is down
BYTES_A_TOKEN = 4  # where an endpoint does not say what a call cost
_NO_KEY = "none"  # the client insists on one
_NOT_REACHED = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"})


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the model said, None when that cannot be had or read, and the tokens it cost."""

    text: str | None
    tokens: int


class ChatModel:
    """Asks an OpenAI-compatible endpoint, for a time: when that is up, whatever is still on its way is cut off.

    Thread-safe; nothing connects before the first question. It does not retry, follows no redirection, and says nothing
    of content or key in logs or errors.
    """

    def __init__(self, settings: RewriteSettings, *, left: TimeLeft) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self._call_s = settings.rewrite_call_s
        self._left = left
        self._client = OpenAI(
            api_key=settings.rewrite_key.get_secret_value() or _NO_KEY,
            base_url=settings.rewrite_base_url,
            max_retries=0,
            http_client=DefaultHttpxClient(follow_redirects=False, event_hooks={"response": [_refuse_unless_ok]}),
            default_headers={"Accept-Encoding": "identity"},  # the size of an answer is what arrives
        )
        # An answer that drips, byte by byte, meets no timeout of the client.
        self._watchdog = threading.Timer(left.seconds(), self._client.close)
        self._watchdog.daemon = True
        self._watchdog.start()

    def close(self) -> None:
        """Close the connections."""
        self._watchdog.cancel()
        self._client.close()

    def ask(self, text: str, *, instructions: str, model: str) -> ChatAnswer:
        """The model's answer, at temperature 0 and without tools, in the time that is left."""
        seconds = min(self._left.seconds(), self._call_s)
        if seconds <= 0:
            return ChatAnswer(None, 0)
        sent = text.encode("utf-8", "replace").decode()
        estimate = (len(instructions) + len(sent.encode())) // BYTES_A_TOKEN
        try:
            body = self._body(sent, instructions=instructions, model=model, seconds=seconds)
        except Exception as error:  # noqa: BLE001  # whatever goes wrong there, the answer could not be had
            return ChatAnswer(None, _cost_of(error, model=model, estimate=estimate))
        answer = _read(body, estimate=estimate)
        if answer.text is None:
            log.warning("rewrite_answer_unusable", model=model, bytes=len(body), tokens=answer.tokens)
        return answer

    def _body(self, text: str, *, instructions: str, model: str, seconds: float) -> bytes:
        from openai import Timeout

        with self._client.chat.completions.with_streaming_response.create(
            model=model,
            temperature=0,
            messages=[{"role": "system", "content": instructions}, {"role": "user", "content": text}],
            timeout=Timeout(seconds, connect=min(seconds, CONNECT_S)),
        ) as response:
            return _collect(response.iter_bytes(), left=self._left)


class _Refused(Exception):
    """The endpoint answered with another status than 200; what else it says is not read."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _refuse_unless_ok(response: Any) -> None:
    if response.status_code != HTTPStatus.OK:
        raise _Refused(response.status_code)


def _collect(chunks: Iterable[bytes], *, left: TimeLeft) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_ANSWER_BYTES:
            raise ValueError("the answer is too large")
        if left.is_up:
            raise TimeoutError("the answer takes too long")
    return bytes(body)


def _cost_of(error: Exception, *, model: str, estimate: int) -> int:
    """An endpoint that refused, or was not reached, has cost nothing; one that broke off may have."""
    cause = error.__cause__ or error
    kind, status = type(cause).__name__, cause.status if isinstance(cause, _Refused) else None
    tokens = 0 if status is not None or kind in _NOT_REACHED else estimate
    log.warning("rewrite_call_failed", model=model, error=kind, status=status, tokens=tokens)
    return tokens


def _read(body: bytes, *, estimate: int) -> ChatAnswer:
    """What an answer in the protocol's form says; any other form is no answer."""
    try:
        found = json.loads(body.decode())
        tokens = _tokens(found, estimate=estimate + len(body) // BYTES_A_TOKEN)
        choice = found["choices"][0]
        content = choice["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ChatAnswer(None, estimate)
    is_whole = choice.get("finish_reason") in (None, "stop")
    return ChatAnswer(content if is_whole and isinstance(content, str) else None, tokens)


def _tokens(found: Any, *, estimate: int) -> int:
    usage = found.get("usage") if isinstance(found, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and 0 < total < 10**9 else estimate
