"""A model behind a real HTTP server that speaks the OpenAI protocol, and can be told to misbehave."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEFAULT_TOKENS = 7


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """What the user's message says."""
        return str(self.body["messages"][-1]["content"])

    @property
    def instructions(self) -> str:
        """What the system's message says."""
        return str(self.body["messages"][0]["content"])


Handler = Callable[[BaseHTTPRequestHandler, Asked], None]


@dataclass
class Endpoint:
    """What it was asked, and how it answers: the answers in turn, the last one for ever."""

    url: str
    key: str = "sk-secret-key-4711"
    answers: list[Handler] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    most_at_once: int = 0
    at_once: int = 0

    def says(self, *answers: Handler) -> None:
        """How it answers from now on."""
        self.answers = list(answers)

    @property
    def texts(self) -> list[str]:
        return [asked.text for asked in self.asked]


def saying(text: Any, *, tokens: int | None = DEFAULT_TOKENS, finish: str = "stop") -> Handler:
    """A proper answer with this text."""
    return lambda handler, _: send(handler, completion(text, tokens=tokens, finish=finish))


def computing(answer: Callable[[Asked], str]) -> Handler:
    """A proper answer that depends on what was asked."""
    return lambda handler, asked: send(handler, completion(answer(asked)))


def completion(text: Any, *, tokens: int | None = DEFAULT_TOKENS, finish: str = "stop") -> bytes:
    message = {"role": "assistant", "content": text}
    answer: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if tokens is not None:
        answer["usage"] = {"prompt_tokens": tokens - 1, "completion_tokens": 1, "total_tokens": tokens}
    return json.dumps(answer).encode()


def send(handler: BaseHTTPRequestHandler, body: bytes, *, status: int = 200, headers: Mapping[str, str] = {}) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def raw(body: bytes, *, status: int = 200, headers: Mapping[str, str] = {}) -> Handler:
    """These very bytes."""
    return lambda handler, _: send(handler, body, status=status, headers=headers)


def closing_in_the_middle(handler: BaseHTTPRequestHandler, _: Asked) -> None:
    """Half an answer, then nothing."""
    body = completion("never whole")
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True


def closing_at_once(handler: BaseHTTPRequestHandler, _: Asked) -> None:
    """No answer at all."""
    handler.close_connection = True


def dripping(released: threading.Event) -> Handler:
    """A byte every now and then, for ever: no single wait is long."""

    def drip(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not released.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return drip


def silent(released: threading.Event) -> Handler:
    """Nothing until it is released, then nothing either."""

    def wait(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        released.wait(30)
        handler.close_connection = True

    return wait


@contextmanager
def served() -> Iterator[Endpoint]:
    """An endpoint on this machine for the length of a block; it says `short` until it is told otherwise."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}/v1", answers=[saying("short")])
    server.endpoint = endpoint  # type: ignore[attr-defined]  # where the handler finds it
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        endpoint: Endpoint = self.server.endpoint  # type: ignore[attr-defined]  # see `served`
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])).decode())
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        with endpoint.lock:
            endpoint.asked.append(asked)
            endpoint.at_once += 1
            endpoint.most_at_once = max(endpoint.most_at_once, endpoint.at_once)
            answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
        try:
            answer(self, asked)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # whoever asked has gone
        finally:
            with endpoint.lock:
                endpoint.at_once -= 1

    def log_message(self, *_: object) -> None:
        """Nothing."""
