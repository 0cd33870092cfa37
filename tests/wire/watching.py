"""What a Redis was told, by whoever: the calls of scripts, checked against the page."""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

from tests.wire import page

_LINE = re.compile(rb'^[\d.]+ \[\d+ (?P<source>[^\]]+)\] (?P<words>".*")$')
_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"')
_TOKEN = r"\S{16,128}"
_TURN_ID = "[A-Za-z0-9_-]{1,64}"
_LEDGER = "[A-Za-z0-9_.~%-]+:[A-Za-z0-9_.~%-]+"
_FORMS = {"turn id": _TURN_ID, "token": _TOKEN, "integer": r"\d+", "key": r"\S+", "JSON": r"\[.*\]", "text": "(?s:.*)"}
_STEP = r"(?s)\{[^\n]*\}\n\[[^\n]*\]\n.+"


class Calls:
    """The scripts that were called while a block ran: name, keys, arguments."""

    def __init__(self, contract: dict[str, Any]) -> None:
        self._contract = contract
        self._names = {script["sha1"]: name for name, script in contract["scripts"].items()}
        self.seen: list[tuple[str, list[str], list[str]]] = []

    @contextmanager
    def watched(self, redis_url: str) -> Iterator[None]:
        """All that comes to this Redis, until the block ends."""
        with Redis.from_url(redis_url) as client, client.monitor() as monitor:
            yield
            client.echo("-- enough --")
            while (words := _words(monitor.connection.read_response())) != [b"ECHO", b"-- enough --"]:
                if words and words[0] == b"EVALSHA" and words[1].decode() in self._names:
                    self._note(words)

    def _note(self, words: list[bytes]) -> None:
        name, count = self._names[words[1].decode()], int(words[2])
        texts = [word.decode(errors="replace") for word in words[3:]]
        self.seen.append((name, texts[:count], texts[count:]))

    def wrong(self) -> list[str]:
        """What the page would not have any of these calls be."""
        scripts = page.scripts()
        return [f"{call[0]}: {problem}" for call in self.seen for problem in self._problems(call, scripts[call[0]])]

    def _problems(self, call: tuple[str, list[str], list[str]], told: page.ScriptPage) -> Iterator[str]:
        name, keys, arguments = call
        if len(keys) != len(told.keys):
            yield f"{len(keys)} keys"
        for key, place in zip(keys, told.keys, strict=False):
            if not re.fullmatch(self._pattern(place.form), key):
                yield f"{key} is no {place.form}"
        fixed = told.arguments[:-1] if told.has_more else told.arguments
        if len(arguments) < len(fixed):
            yield f"{len(arguments)} arguments"
        for argument, place in zip(arguments, fixed, strict=False):
            form = re.match("turn id|token|integer|key|JSON|text", place.form)
            if form is None or not re.fullmatch(_FORMS[form[0]], argument):
                yield f"{argument!r} is no {place.form} ({place.name})"
        if name in ("save", "complete"):
            yield from self._counted(name, arguments[len(fixed) - 1 :])
        else:
            yield from _REST.get(name, _nothing)(arguments[len(fixed) :])

    def _counted(self, name: str, rest: list[str]) -> Iterator[str]:
        """The counted fields of a save and a completion, and the steps behind them."""
        fields, rest = rest[1 : 1 + int(rest[0])], rest[1 + int(rest[0]) :]
        yield from _fields(fields)
        if name == "complete":
            job, rest = rest[1 : 1 + int(rest[0])], rest[1 + int(rest[0]) :]
            wanted = {*self._contract["job"], "created_at", "enqueued_at", "description", "data"}
            if set(job[::2]) != wanted:
                yield f"a job with {sorted(set(job[::2]) ^ wanted)}"
        yield from _steps(rest)

    def _pattern(self, form: str) -> str:
        pattern = re.escape(form)
        values = {name: re.escape(self._contract[name]) for name in ("prefix", "queues", "queue", "job_prefix")}
        values |= {"turn_id": _TURN_ID, "ledger": _LEDGER, "job id": f"turn-{_TURN_ID}"}
        for name, value in values.items():
            pattern = pattern.replace(re.escape(f"<{name}>"), value)
        return pattern


def _words(line: bytes) -> list[bytes]:
    found = _LINE.match(line)
    if found is None or found["source"] == b"lua":
        return []
    return [ast.literal_eval("b" + word.decode("ascii")) for word in _WORD.findall(found["words"])]


def _nothing(rest: list[str]) -> Iterator[str]:
    if rest:
        yield f"{len(rest)} arguments more than the page has"


def _fields(rest: list[str]) -> Iterator[str]:
    unknown = set(rest[::2]) - page.record_fields() - LIBRARY_ALONE
    if len(rest) % 2 or unknown:
        yield f"{len(rest)} fields and values, of which the page does not know {sorted(unknown)}"


def _steps(rest: list[str]) -> Iterator[str]:
    yield from (f"{step!r} is no step" for step in rest if not re.fullmatch(_STEP, step))


LIBRARY_ALONE = {"untouched", "outcome", "first"}  # what it notes for itself
_REST: dict[str, Callable[[list[str]], Iterator[str]]] = {"open": _fields, "end": _fields, "input": _steps}
