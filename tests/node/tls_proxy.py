"""What stands in front of a router where TLS is wanted: TLS ends here, and what is inside goes on to the router."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority, a certificate for `localhost` that it has signed, and one for a client. All files are PEM."""

    ca: Path
    client_certificate: Path
    client_key: Path
    server: ssl.SSLContext


def make_authority(folder: Path, *, asks_clients: bool = False) -> Authority:
    """Write the files of an authority of our own into a folder."""
    folder.mkdir()
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("node@localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.configure_cert(context)
    if asks_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    ca, certificate, key = folder / "ca.pem", folder / "client.pem", folder / "client-key.pem"
    authority.cert_pem.write_to_path(ca)
    client.private_key_pem.write_to_path(key)
    certificate.write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))
    return Authority(ca, certificate, key, context)


@asynccontextmanager
async def tls_in_front_of(router_url: str, context: ssl.SSLContext, port: int = 0) -> AsyncIterator[int]:
    """Listen on 127.0.0.1 for the time of the block; yields the port: `port`, or a free one."""
    host, _, to_port = router_url.rpartition("/")[2].rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_CHUNK):
                    writer.write(data)
                    await writer.drain()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_router = await asyncio.open_connection(host, int(to_port))
        for task in (asyncio.create_task(pump(reader, to_router)), asyncio.create_task(pump(behind, writer))):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # an aborted transport notifies its protocol
