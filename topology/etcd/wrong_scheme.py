"""Whether an etcd that cannot be talked to speaks the other one of http and https.

etcd closes such a connection without a reply, as a proxy does whose etcd is not running yet. So the failure does not
show whether waiting helps; one attempt with the other scheme does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from yarl import URL

PROBE_TIMEOUT_S = 1.0
"""For connecting and one answer; a member that is slower is not there yet."""
_REQUEST = b"GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n"
_ANSWER = b"HTTP/"


async def wrongly_written(endpoints: Sequence[str]) -> str | None:
    """An endpoint that answers to the other scheme than it is written with; None = there is none that does."""
    found = await asyncio.gather(*(_answers_to_other_scheme(URL(endpoint)) for endpoint in endpoints))
    return next((endpoint for endpoint, is_wrong in zip(endpoints, found, strict=True) if is_wrong), None)


async def _answers_to_other_scheme(endpoint: URL) -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            return await (_speaks_http(endpoint) if endpoint.scheme == "https" else _speaks_tls(endpoint))
    except (OSError, TimeoutError):
        return False


async def _speaks_http(endpoint: URL) -> bool:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(_REQUEST)
        return (await reader.read(len(_ANSWER))) == _ANSWER
    finally:
        writer.close()


async def _speaks_tls(endpoint: URL) -> bool:
    # Nothing is sent over this connection: it does not matter who answers.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # who sends alerts speaks TLS; it may want a certificate of us
    writer.close()
    return True
