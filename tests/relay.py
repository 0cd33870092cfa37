"""Something that stands before a server on this machine, from ``with`` to its end, and sees every byte."""

import asyncio
import ssl
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
_PATIENCE_S = 60


class Relay(ABC):
    """Listens on a port of its own, in a loop and a thread of its own."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        """With a context it speaks TLS from the first byte on."""
        self._listening_in = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client's connection until it ends."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=self._listening_in)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets of aborted connections are closed in the turn of the loop after
