"""A slow line to a server: every byte is late by the same time each way, and so many pass in a second."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from tests.relay import CHUNK_BYTES, HOST, Relay


@dataclass(frozen=True)
class Pace:
    """How late a byte is, one way, and how many pass in a second; None: as many as the machine carries."""

    delay_s: float
    bytes_per_s: float | None = None


class SlowLine(Relay):
    """Stands before a server on this machine, from ``with`` to its end.

    A relay and no emulated network: nothing is lost or reordered, and opening a connection costs no round trip.
    `round_trips` counts how often a client's bytes followed on bytes of the server, or were the first.
    """

    def __init__(self, target: str, *, pace: Pace) -> None:
        """`target` is the server's URL."""
        super().__init__()
        self._target = urlsplit(target)
        self._pace = pace
        self.round_trips = 0

    @property
    def url(self) -> str:
        """The server's, by way of the line."""
        user, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{user}{at}{HOST}:{self.port}"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target.port)
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
        while data := await reader.read(CHUNK_BYTES):
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
