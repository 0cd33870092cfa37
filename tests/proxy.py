"""A TCP proxy whose connections can be cut, paused, or broken at a chosen byte."""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class DropRequest:
    """Drop the connection when the client sends ``marker``; the server does not get the bytes around it."""

    marker: bytes


@dataclass(frozen=True)
class DropReply:
    """Forward the request that holds ``marker``, and drop the connection in place of the server's answer."""

    marker: bytes


@dataclass(frozen=True)
class DropAfter:
    """Drop the connection once it has carried this many bytes from the server, counted from arming."""

    reply_bytes: int


Fault = DropRequest | DropReply | DropAfter


@dataclass(eq=False)
class _Link:
    """One client's connection, its connection to the server, and what was seen on it."""

    client: socket.socket
    server: socket.socket
    tail: bytes = b""
    reply_bytes: int = 0
    swallow_reply: threading.Event = field(default_factory=threading.Event)

    def drop(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Stands before a server on this machine, from ``with`` to its end, always on the same port.

    A fault that was armed happens once, on the first connection that meets it; ``fired`` is set after it.
    """

    def __init__(self, target: str) -> None:
        """``target`` is the server's URL; ``url`` is the same URL with the proxy's port."""
        self._target = urlsplit(target)
        assert self._target.port, "the server's URL needs a port"
        self._server_port = self._target.port
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.fired = threading.Event()
        self._fault: Fault | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._accept_in_background()

    @property
    def url(self) -> str:
        user = self._target.netloc.rpartition("@")[0]
        place = f"{HOST}:{self.port}"
        return urlunsplit(self._target._replace(netloc=f"{user}@{place}" if user else place))

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._flowing.set()

    def arm(self, fault: Fault) -> None:
        with self._lock:
            for link in self._links:
                link.reply_bytes, link.tail = 0, b""
            self.fired.clear()
            self._fault = fault

    def drop_connections(self) -> None:
        """Drop every connection there is; new ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.drop()

    def cut(self) -> None:
        """Drop every connection and refuse new ones until ``restore``."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def restore(self) -> None:
        self._listener = self._listen(self.port)
        self._accept_in_background()

    def pause(self) -> None:
        """Go silent: connections stay open, new ones are accepted, and no byte passes until ``unpause``."""
        self._flowing.clear()

    def unpause(self) -> None:
        self._flowing.set()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
        return listener

    def _accept_in_background(self) -> None:
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # the listener was closed
            try:
                server = socket.create_connection((HOST, self._server_port))
            except OSError:
                client.close()
                continue
            self._serve(_Link(client, server))

    def _serve(self, link: _Link) -> None:
        for end in (link.client, link.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._links.add(link)
        for run in (self._carry_requests, self._carry_replies):
            threading.Thread(target=run, args=[link], daemon=True).start()

    def _carry_requests(self, link: _Link) -> None:
        with suppress(OSError):
            while data := link.client.recv(_CHUNK_BYTES):
                self._flowing.wait()
                if self._request_is_dropped(link, data):
                    break
                link.server.sendall(data)
        self._forget(link)

    def _carry_replies(self, link: _Link) -> None:
        with suppress(OSError):
            while data := link.server.recv(_CHUNK_BYTES):
                self._flowing.wait()
                if link.swallow_reply.is_set():
                    self.fired.set()
                    break
                kept = self._kept_of_reply(link, data)
                link.client.sendall(kept)
                if len(kept) < len(data):
                    self.fired.set()
                    break
        self._forget(link)

    def _forget(self, link: _Link) -> None:
        link.drop()
        with self._lock:
            self._links.discard(link)

    def _request_is_dropped(self, link: _Link, data: bytes) -> bool:
        with self._lock:
            fault = self._fault
            if not isinstance(fault, DropRequest | DropReply):
                return False
            seen = link.tail + data
            link.tail = seen[-len(fault.marker) :]
            if fault.marker not in seen:
                return False
            self._fault = None
        if isinstance(fault, DropReply):
            link.swallow_reply.set()
            return False
        self.fired.set()
        return True

    def _kept_of_reply(self, link: _Link, data: bytes) -> bytes:
        with self._lock:
            if not isinstance(self._fault, DropAfter):
                return data
            room = self._fault.reply_bytes - link.reply_bytes
            link.reply_bytes += len(data)
            if room >= len(data):
                return data
            self._fault = None
            return data[:room]
