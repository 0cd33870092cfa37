"""A slow line to a server: every byte is late by the same time each way, and so many pass in a second."""

import asyncio
import threading
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

_HOST = "127.0.0.1"
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Pace:
    """How late a byte is, one way, and how many pass in a second; None: as many as the machine carries."""

    delay_s: float
    bytes_per_s: float | None = None


class SlowLine:
    """Stands before a server on this machine, from ``with`` to its end.

    A relay and no emulated network: nothing is lost or reordered, and opening a connection costs no round trip.
    `round_trips` counts how often a client's bytes followed on bytes of the server, or were the first.
    """

    def __init__(self, target: str, *, pace: Pace) -> None:
        """`target` is the server's URL; `url` is the same URL with the port of the line."""
        self._target = urlsplit(target)
        self._pace = pace
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.round_trips = 0
        self.url = ""

    def __enter__(self) -> "SlowLine":
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        user, at, _ = self._target.netloc.rpartition("@")
        self.url = urlunsplit(self._target._replace(netloc=f"{user}{at}{_HOST}:{port}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, _HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets of aborted connections are closed in the turn of the loop after

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        link = _Link()
        try:
            await asyncio.gather(
                self._carry(reader, far_writer, link, is_request=True),
                self._carry(far_reader, writer, link, is_request=False),
            )
        except OSError:
            return
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link", *, is_request: bool
    ) -> None:
        free_at = 0.0
        while data := await reader.read(_CHUNK_BYTES):
            if is_request and not link.asked:
                self.round_trips += 1
            link.asked = is_request
            now = self._loop.time()
            sent_s = len(data) / self._pace.bytes_per_s if self._pace.bytes_per_s else 0.0
            free_at = max(free_at, now) + sent_s
            self._loop.call_at(free_at + self._pace.delay_s, writer.write, data)
        await asyncio.sleep(max(free_at - self._loop.time(), 0.0) + self._pace.delay_s)
        if writer.can_write_eof():
            writer.write_eof()


@dataclass
class _Link:
    """One connection: whether its last bytes were a client's."""

    asked: bool = False
