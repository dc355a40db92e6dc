"""Opens a connection for a protocol, in bounded time: TCP or TLS, with a WebSocket on it or without."""

from __future__ import annotations

import asyncio
import ssl

from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.tls import SHUTDOWN_S


async def connect(
    protocol: EngineProtocol,
    host: str,
    port: int,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
    path: str | None = None,
) -> None:
    """Connect `protocol` to host and port; when this fails or is cancelled, the protocol is abandoned.

    Args:
        protocol: of a fresh engine.
        host: name or address; with TLS the name that the certificate must have.
        port: TCP port.
        timeout_s: for the TCP connection, and the handshakes of TLS and WebSocket where there are any.
        tls: None = without TLS.
        path: of the WebSocket that carries the stream; None = there is none.

    Raises:
        OSError: there is no connection.
        TimeoutError: it took longer.
    """
    loop = asyncio.get_running_loop()
    try:
        if path is not None:
            # Here, because aiohttp is slow to import, and few need it.
            from oncewire.transport.websocket import open_websocket

            url = f"{'ws' if tls is None else 'wss'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
            await open_websocket(protocol, url, timeout_s, tls)
            return
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: protocol,
                host,
                port,
                ssl=tls,
                server_hostname=None if tls is None else host,
                ssl_shutdown_timeout=None if tls is None else SHUTDOWN_S,
            )
    except BaseException:
        protocol.abandon()
        raise


async def connect_to_path(protocol: EngineProtocol, path: str, timeout_s: float) -> None:
    """Connect `protocol` to a Unix socket; when this fails or is cancelled, the protocol is abandoned.

    Raises:
        OSError: there is no connection.
        TimeoutError: it took longer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, path)
    except BaseException:
        protocol.abandon()
        raise
