"""TLS before servers that speak none, with a certificate that an authority of the test's own has signed."""

import asyncio
import ssl
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

NAME = "localhost"  # the one name in the certificate
_CHUNK_BYTES = 65_536
_POSTGRES_ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")

Protocol = Literal["redis", "postgres"]


@dataclass(frozen=True)
class Authority:
    """A self-signed authority, and the certificate with its key that it has signed for `NAME`."""

    root: Path
    certificate: Path
    key: Path


def make_authority(folder: Path) -> Authority:
    """With the command `openssl`."""
    folder.mkdir()
    found = Authority(folder / "root.crt", folder / "server.crt", folder / "server.key")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    root_key, request = folder / "root.key", folder / "server.csr"
    extensions = folder / "extensions"
    extensions.write_text(f"subjectAltName=DNS:{NAME}\n")
    for arguments in (
        ["req", "-x509", *curve, "-subj", "/CN=a test", "-keyout", root_key, "-out", found.root],
        ["req", *curve, "-subj", f"/CN={NAME}", "-keyout", found.key, "-out", request],
        [
            *("x509", "-req", "-in", request, "-CA", found.root, "-CAkey", root_key, "-CAcreateserial"),
            *("-days", "2", "-extfile", extensions, "-out", found.certificate),
        ],
    ):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
    return found


class TlsFront:
    """Takes TLS alone, from ``with`` to its end, and hands on what is said to the server in the clear."""

    def __init__(self, target: str, *, authority: Authority, protocol: Protocol) -> None:
        """`target` is the server's URL."""
        self._target_port = urlsplit(target).port
        self._protocol = protocol
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate, authority.key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> "TlsFront":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        server_side = self._context if self._protocol == "redis" else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=server_side)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets of aborted connections are closed in the turn of the loop after

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._protocol == "postgres" and not await self._begin_tls(reader, writer):
                return
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            try:
                await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
            finally:
                inner_writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            return  # the client did not like the certificate, or went away
        finally:
            writer.transport.abort()

    async def _begin_tls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if await reader.readexactly(len(_POSTGRES_ASKS_FOR_TLS)) != _POSTGRES_ASKS_FOR_TLS:
            return False
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(self._context)
        return True


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()
