"""The shipped rewriter, against a real HTTP server that answers as told."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from tests.endpoint import (
    DEFAULT_TOKENS,
    Asked,
    Endpoint,
    Handler,
    closing_at_once,
    closing_in_the_middle,
    completion,
    computing,
    dripping,
    raw,
    saying,
    served,
    silent,
)
from turnledger.store import InvalidInput
from turnledger.store.rewriting import Rewriting
from turnledger.workers.rewriting import OpenAIRewriter, RewriteSettings, configured_settings, read_rewrite_settings
from turnledger.workers.rewriting.chat import MOST_ANSWER_BYTES
from turnledger.workers.rewriting.openai_rewriter import AT_ONCE, MOST_BYTES, PART_BYTES, WHOLE_BYTES, BoundRewriter
from turnledger.workers.rewriting.splitting import MOST_PARTS, split_text
from turnledger.workers.rewriting.time_left import TimeLeft

QUESTION = "what is it?"
MARKER = "xyzzy-private-words"


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of the test: what still waits goes on."""
    event = threading.Event()
    yield event
    event.set()


def settings(endpoint: Endpoint, **given: Any) -> RewriteSettings:
    named = {"rewrite_base_url": endpoint.url, "rewrite_model": "small", "rewrite_key": SecretStr(endpoint.key)}
    return RewriteSettings(**{**named, "rewrite_call_s": 5.0, **given})


class Rewriters:
    """Rewriters for one endpoint; closed with the test."""

    def __init__(self, endpoint: Endpoint, opened: ExitStack) -> None:
        self._endpoint = endpoint
        self._opened = opened

    def __call__(self, *, left: TimeLeft | None = None, **given: Any) -> BoundRewriter:
        made = OpenAIRewriter(settings(self._endpoint, **given))
        return self._opened.enter_context(made.within(left or TimeLeft(30)))


@pytest.fixture
def rewriters(endpoint: Endpoint) -> Iterator[Rewriters]:
    with ExitStack() as opened:
        yield Rewriters(endpoint, opened)


def ask(rewriter: BoundRewriter, text: str = MARKER * 20, *, budget: int = 188, agent: str = "lead") -> Rewriting:
    return rewriter.rewrite(text, question=QUESTION, budget_bytes=budget, agent=agent)


def test_the_model_sees_the_whole_text_the_question_and_the_budget(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """At temperature 0, without tools, under the key and at the address of the settings (RW-2)."""
    text = "from the head " * 3_000 + "to the tail"
    assert ask(rewriters(), text) == Rewriting("short", DEFAULT_TOKENS)
    (asked,) = endpoint.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {endpoint.key}"
    assert asked.text == text
    assert QUESTION in asked.instructions
    assert "188 bytes" in asked.instructions
    assert (asked.body["temperature"], asked.body["model"]) == (0, "small")
    assert set(asked.body) == {"messages", "model", "temperature"}


def test_an_agent_may_have_a_model_of_its_own(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """The deployment's is the default (RW-2)."""
    rewriter = rewriters(rewrite_models={"ceo": "large"})
    ask(rewriter, agent="ceo")
    ask(rewriter, agent="lead")
    assert [asked.body["model"] for asked in endpoint.asked] == ["large", "small"]


def test_an_endpoint_without_a_key_is_asked_without_ours(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """The client insists on one (RW-2)."""
    assert ask(rewriters(rewrite_key=SecretStr(""))).text == "short"
    assert endpoint.asked[0].headers["authorization"] == "Bearer none"


def test_an_answer_over_budget_is_retried_once_from_that_answer(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Told by how much it missed; both calls are spent (RW-2, RW-4)."""
    long = "y" * 200
    endpoint.says(saying(long), saying("fits"))
    assert ask(rewriters()) == Rewriting("fits", 2 * DEFAULT_TOKENS)
    assert endpoint.texts == [MARKER * 20, long]
    assert "12 bytes too long" in endpoint.asked[1].instructions


def test_the_budget_is_in_bytes(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Of UTF-8: 94 letters of two bytes fit 188, 95 do not (RW-1)."""
    endpoint.says(saying("é" * 94))
    assert ask(rewriters()).text == "é" * 94
    endpoint.says(saying("é" * 95))
    assert ask(rewriters(), "another" * 60) == Rewriting(None, 2 * DEFAULT_TOKENS)


UNUSABLE: dict[str, tuple[Handler, int | None]] = {
    "an empty answer": (saying(""), 7),
    "a blank answer": (saying(" \n\t "), 7),
    "no content": (saying(None), 7),
    "content of another type": (saying(["a"]), 7),
    "half a surrogate pair": (saying("\ud800"), 7),
    "a NUL": (saying("a\x00b"), 7),
    "an escape sequence": (saying("a\x1b[2Jb"), 7),
    "an answer that was cut off": (saying("half of", finish="length"), 7),
    "an answer that was filtered": (saying("fine", finish="content_filter"), 7),
    "bytes that are no UTF-8": (raw(completion("a").replace(b'"a"', b'"\xff\xfe"')), None),
    "a body that is no JSON": (raw(b"<html>busy</html>", headers={"Content-Type": "text/html"}), None),
    "an empty body": (raw(b""), None),
    "JSON of another shape": (raw(b'[{"choices": 1}]'), None),
    "no choices": (raw(b'{"choices": []}'), None),
    "deeply nested JSON": (raw(b"[" * 100_000), None),
    "a body without end": (raw(b" " * (MOST_ANSWER_BYTES + 1)), None),
    "a closed connection": (closing_at_once, None),
    "a connection closed in the middle": (closing_in_the_middle, None),
    "a server error": (raw(b'{"error": {"message": "down"}}', status=500), 0),
    "too many requests": (raw(b"{}", status=429, headers={"Retry-After": "1"}), 0),
    "a refused key": (raw(b"{}", status=401), 0),
    "a page that is not there": (raw(b"", status=404), 0),
    "an error without end": (raw(b" " * 30_000_000, status=500), 0),
    "another success": (raw(completion("fine"), status=202), 0),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_an_answer_that_is_of_no_use_is_no_account_and_is_not_asked_for_again(
    endpoint: Endpoint, rewriters: Rewriters, what: str
) -> None:
    """One call; what it cost is told, also where the endpoint does not say it (RW-2, RW-4)."""
    handler, tokens = UNUSABLE[what]
    endpoint.says(handler)
    with capture_logs() as logs:
        made = ask(rewriters())
    assert made.text is None
    assert made.tokens == tokens if tokens is not None else made.tokens > 20
    assert len(endpoint.asked) == 1
    assert MARKER not in json.dumps(logs)
    assert endpoint.key not in json.dumps(logs)


def test_a_redirection_is_not_followed(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Content and key go to the named address alone (RW-2)."""
    with served() as elsewhere:
        endpoint.says(raw(b"", status=307, headers={"Location": f"{elsewhere.url}/chat/completions"}))
        assert ask(rewriters()) == Rewriting(None, 0)
        assert elsewhere.asked == []


def test_an_endpoint_that_is_not_there_costs_nothing(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """(RW-2, RW-4)"""
    assert ask(rewriters(rewrite_base_url="http://127.0.0.1:1/v1")) == Rewriting(None, 0)


def test_a_silent_endpoint_is_waited_for_only_so_long(
    endpoint: Endpoint, rewriters: Rewriters, released: threading.Event
) -> None:
    """What it may have cost is counted by estimate (RW-2, RW-5)."""
    endpoint.says(silent(released))
    made = ask(rewriters(rewrite_call_s=0.05))
    assert made.text is None
    assert made.tokens > 0


def test_an_endpoint_that_drips_is_cut_off_when_the_time_is_up(
    endpoint: Endpoint, rewriters: Rewriters, released: threading.Event
) -> None:
    """Although no single wait is long (RW-5)."""
    endpoint.says(dripping(released))
    made = ask(rewriters(left=TimeLeft(1.5)))
    assert made.text is None
    assert made.tokens > 0


def dripping_headers(released: threading.Event) -> Handler:
    """A status line, then one header after the other."""

    def drip(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not released.wait(0.02):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    return drip


@pytest.mark.parametrize("split", [False, True], ids=["one piece", "in parts"])
def test_an_endpoint_that_never_comes_to_its_answer_is_cut_off(
    endpoint: Endpoint, rewriters: Rewriters, released: threading.Event, split: object
) -> None:
    """Although it says something all the time (RW-5)."""
    endpoint.says(dripping_headers(released))
    made = ask(rewriters(left=TimeLeft(1.5)), "x" * (200_000 if split else 500))
    assert made.text is None
    assert made.tokens > 0


@pytest.mark.parametrize("why", ["the time is up", "the process stops"])
def test_nothing_is_asked_when_no_time_is_left(endpoint: Endpoint, rewriters: Rewriters, why: str) -> None:
    """(RW-5)"""
    left = TimeLeft(0) if why == "the time is up" else TimeLeft(30, stopped=lambda: True)
    assert ask(rewriters(left=left)) == Rewriting(None, 0)
    assert endpoint.asked == []


def test_white_space_of_an_answer_becomes_one_line(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """A stand-in is one line (RW-2)."""
    endpoint.says(saying("  two\n lines\tor\u2028three "))
    assert ask(rewriters()).text == "two lines or three"


def test_any_text_can_be_sent(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Half a surrogate pair becomes a question mark, all else is as it was (RW-2, EV-10)."""
    assert ask(rewriters(), "a\ud800b\x00𝄞\u202e" * 50).text == "short"
    assert endpoint.texts == ["a?b\x00𝄞\u202e" * 50]


@pytest.mark.parametrize("unit", ["x", "é", "日", "𝄞", "\ud800", "aé日𝄞"])
@pytest.mark.parametrize("size", [WHOLE_BYTES + 16, 3 * WHOLE_BYTES, MOST_BYTES])
def test_a_split_loses_nothing_and_cuts_no_character(unit: str, size: int) -> None:
    """At most 32 parts, of 64 KiB and less than one character more (RW-2)."""
    unit_bytes = len(unit.encode("utf-8", "surrogatepass"))
    text = unit * (size // unit_bytes)
    parts = split_text(text, part_bytes=WHOLE_BYTES)
    assert "".join(parts) == text
    assert 2 <= len(parts) <= MOST_PARTS
    assert max(len(part.encode("utf-8", "surrogatepass")) for part in parts) <= WHOLE_BYTES + 3


def numbered(size: int) -> str:
    """A text whose parts all differ."""
    return "".join(f"{number:08} " for number in range(size // 9 + 1))[:size]


def about(part: str) -> str:
    return f"account of {part.split()[1]}"


def test_a_long_text_is_condensed_by_parts_four_at_a_time(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """All of it is seen, then the accounts of its parts, until one fits (RW-2)."""
    text = numbered(MOST_BYTES)
    endpoint.says(computing(lambda asked: about(asked.text) if "one part of" in asked.instructions else "all"))
    assert ask(rewriters(), text) == Rewriting("all", 33 * DEFAULT_TOKENS)
    parts = split_text(text, part_bytes=WHOLE_BYTES)
    assert sorted(endpoint.texts[:32]) == sorted(parts)
    assert endpoint.texts[32] == "\n".join(about(part) for part in parts)
    assert 1 <= endpoint.most_at_once <= AT_ONCE


def test_the_accounts_of_all_parts_fit_one_piece_again(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """However long each of them is (RW-2)."""
    account = "z" * PART_BYTES
    endpoint.says(computing(lambda asked: account if "one part of" in asked.instructions else "all"))
    assert ask(rewriters(), numbered(MOST_BYTES)).text == "all"
    assert len(endpoint.asked) == 33


def test_a_part_without_an_account_leaves_no_account_of_the_whole(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Never an account of a fragment; the parts that were not begun are not asked about (RW-2, RW-3)."""
    endpoint.says(raw(b"", status=500))
    assert ask(rewriters(), numbered(MOST_BYTES)) == Rewriting(None, 0)
    assert len(endpoint.asked) < 32


def test_a_text_over_two_mebibytes_is_refused_with_no_call(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """(RW-2)"""
    assert ask(rewriters(), "x" * (MOST_BYTES + 1)) == Rewriting(None, 0)
    assert endpoint.asked == []


def test_the_same_request_is_not_paid_for_again(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """By kind, model, budget, question and text; nor is a part that comes twice in one text (RW-5)."""
    rewriter = rewriters(rewrite_models={"ceo": "large"})
    ask(rewriter)
    assert ask(rewriter) == Rewriting("short", 0)
    assert len(endpoint.asked) == 1
    ask(rewriter, budget=100)
    ask(rewriter, MARKER * 21)
    ask(rewriter, agent="ceo")
    rewriter.rewrite(MARKER * 20, question="why?", budget_bytes=188, agent="lead")
    assert len(endpoint.asked) == 5
    ask(rewriter, "x" * (4 * WHOLE_BYTES))
    assert len(endpoint.asked) == 7


def test_what_could_not_be_had_is_asked_for_again_the_next_time(endpoint: Endpoint, rewriters: Rewriters) -> None:
    """Only accounts are remembered (RW-5)."""
    endpoint.says(raw(b"", status=500), saying("short"))
    rewriter = rewriters()
    assert [ask(rewriter).text, ask(rewriter).text] == [None, "short"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"TURNLEDGER_REWRITE_MODEL": "m"}, "TURNLEDGER_REWRITE_BASE_URL is not set"),
        ({"TURNLEDGER_REWRITE_BASE_URL": "http://x/v1"}, "TURNLEDGER_REWRITE_MODEL is not set"),
        ({"TURNLEDGER_REWRITE_BASE_URL": "x"}, "TURNLEDGER_REWRITE_BASE_URL is wrong"),
        ({"TURNLEDGER_REWRITE_MODELS": "{"}, "TURNLEDGER_REWRITE_MODELS is wrong"),
        ({"TURNLEDGER_REWRITE_MODELS": '["m"]'}, "TURNLEDGER_REWRITE_MODELS is wrong"),
        ({"TURNLEDGER_REWRITE_TURN_S": "61"}, "TURNLEDGER_REWRITE_TURN_S is wrong"),
    ],
)
def test_settings_that_are_wrong_are_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
) -> None:
    """And never the key (RW-2)."""
    for name, value in {"TURNLEDGER_REWRITE_KEY": "sk-1", **given}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_rewrite_settings()
    assert "sk-1" not in str(caught.value)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is shown nowhere (RW-2)."""
    assert configured_settings() is None
    for name, value in {"BASE_URL": "http://x/v1", "MODEL": "m", "KEY": "sk-1", "MODELS": '{"lead": "l"}'}.items():
        monkeypatch.setenv(f"TURNLEDGER_REWRITE_{name}", value)
    found = read_rewrite_settings()
    assert (found.model_for("lead"), found.model_for("ceo")) == ("l", "m")
    assert "sk-1" not in repr(found) + str(found) + found.model_dump_json()


def test_time_left_ends() -> None:
    """(RW-5)"""
    now = [10.0]
    left = TimeLeft(5, clock=lambda: now[0])
    assert left.seconds() == 5
    now[0] = 20.0
    assert left.seconds() == 0
    assert TimeLeft(1e-9).seconds() <= time.monotonic()


def test_an_endpoint_that_asks_for_tools_or_says_nothing_of_its_cost_is_estimated(
    endpoint: Endpoint, rewriters: Rewriters
) -> None:
    """A token for every four bytes (RW-4)."""

    def answer(asked: Asked) -> str:
        return f"{len(asked.text)} characters"

    endpoint.says(lambda handler, asked: saying(answer(asked), tokens=None)(handler, asked))
    made = ask(rewriters(), "x" * 4_000)
    assert made.text == "4000 characters"
    assert 1_000 < made.tokens < 1_500
