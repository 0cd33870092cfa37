"""TLS before servers that speak none, with a certificate that an authority of the test's own has signed."""

import asyncio
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tests.relay import CHUNK_BYTES, HOST, Relay

NAME = "localhost"  # the one name in the certificate
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


class TlsFront(Relay):
    """Takes TLS alone, from ``with`` to its end, and hands on what is said to the server in the clear."""

    def __init__(self, target: str, *, authority: Authority, protocol: Protocol) -> None:
        """`target` is the server's URL."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate, authority.key)
        super().__init__(context=self._context if protocol == "redis" else None)
        self._target_port = urlsplit(target).port
        self._protocol = protocol

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._protocol == "postgres" and not await self._begin_tls(reader, writer):
                return
            inner_reader, inner_writer = await asyncio.open_connection(HOST, self._target_port)
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
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()
