"""Target `http`: requests as bytes, and frames of WebSockets, at the HTTP listener of a whole router."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from struct import pack
from typing import cast
from urllib.parse import quote

from chaos.fuzz.memory_loop import run_in_memory
from chaos.fuzz.memory_router import MemoryRouter
from chaos.fuzz.mutations import TEXTS, mutate_octets
from chaos.fuzz.streams import mutated_stream
from chaos.fuzz.target import Counts, Finding
from chaos.quiet import without_logs
from oncewire.wire.frames import AMQP_HEADER
from topology.etcd.memory_store import MemoryEtcd

CONNECTIONS = 120
"""Of one run, one after the other; some send a second request."""
PATIENCE_S = 20.0
"""In the time of the loop. A router closes what sends no whole request."""
PATHS = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/state",
    "/api/v1/openapi.json",
    "/api/v1/overview",
    "/api/v1/topics",
    "/api/v1/subscriptions?topic=a&limit=3",
    "/api/v1/waits?network=true&min_s=1",
    "/api/v1/deliveries/00ff",
    "/api/v1/holders?of=00.",
    "/api/v1/events?after=1",
    "/api/v1/queues",
    "/api/v1/queues/q/entries/1",
    "/",
    "/inspector",
    "/api/v1/management/schema",
    "/api/v1/management/router/r1",
    "/api/v1/management/subscription/x",
    "/api/v1/management/log/r1",
    "/api/v1/management/connection/x/close",
    "/api/v1/management/router/r1/reload",
)
HEADERS = (
    "Host: localhost",
    "Host: 127.0.0.1:1",
    "Origin: http://evil",
    "Authorization: Basic YTpi",
    "Authorization: Bearer x",
    "Authorization: Basic \u2603",
    "Content-Type: application/json",
    "X-Forwarded-For: 1.2.3.4",
    "Content-Length: 2",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Sec-Fetch-Site: cross-site",
    "Accept-Encoding: gzip",
    "Content-Encoding: deflate",
    "Range: bytes=0-",
    "Connection: close",
    "Upgrade: websocket",
)
_UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


class _Peer(asyncio.Protocol):
    """Sends, and keeps what comes."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if not self.gone.done():
            self.gone.set_result(None)


def _request(rng: random.Random) -> bytes:
    path = rng.choice(PATHS)
    if rng.random() < 0.4:
        text = rng.choice(TEXTS)
        found = quote(text.encode("utf-8", "surrogatepass")) if rng.random() < 0.7 else text
        path += rng.choice(("/", "?topic=", "?limit=", "?cursor=", "&q=")) + found
    method = rng.choice(("GET", "GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"))
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += rng.sample(HEADERS, rng.randrange(5))
    body = rng.choice(("", "{}", '{"seconds": 1}', "[" * 3000, '{"level": "\\ud800"}', "null", "2\r\n{}\r\n0\r\n\r\n"))
    text = "\r\n".join(lines) + f"\r\nContent-Length: {len(body)}\r\n\r\n" + body
    data = text.encode("utf-8", "surrogatepass")
    return mutate_octets(rng, data) if rng.random() < 0.4 else data


def _frame(rng: random.Random) -> bytes:
    """A frame of a WebSocket (RFC 6455, section 5.2), masked as clients do it, and perhaps changed."""
    payload = rng.choice((AMQP_HEADER, mutated_stream(rng), b"", b"text", bytes(200), rng.randbytes(10)))
    first = rng.choice((0x82, 0x82, 0x82, 0x81, 0x80, 0x02, 0x00, 0x88, 0x89, 0x8A, 0xC2, 0xF2, 0x8F))
    length = len(payload)
    size = bytes((0x80 | length,)) if length < 126 else b"\xfe" + pack(">H", length)
    mask = rng.randbytes(4)
    data = bytes((first,)) + size + mask + bytes(each ^ mask[at % 4] for at, each in enumerate(payload))
    return mutate_octets(rng, data) if rng.random() < 0.3 else data


@dataclass(frozen=True, slots=True)
class HttpRequests:
    """The target; see `Target`."""

    name: str = "http"
    about: str = (
        "requests as bytes, and frames of WebSockets to AMQP and to the inspector, mutated, at the HTTP listener of a "
        "whole router on transports in memory; no status of 500, no fault is logged, no incarnation ends, and no "
        "connection stays"
    )
    code: tuple[str, ...] = (
        "oncewire.wire",
        "oncewire.transport",
        "delivery_records",
        "topology",
        "router",
        "chaos.fuzz.memory_loop",
        "chaos.fuzz.memory_router",
        "chaos.fuzz.streams",
    )

    def run(self, number: int) -> Counts:
        """See `Target`."""
        rng = random.Random(f"{self.name} {number}")
        with without_logs():
            return run_in_memory(lambda _loop: _run(rng))


async def _run(rng: random.Random) -> Counts:
    router = MemoryRouter("r1", MemoryEtcd())
    counts = Counts()
    try:
        await router.start()
        for _ in range(CONNECTIONS):
            await _connection(rng, router, counts)
        await asyncio.sleep(PATIENCE_S)
        router.check_whole()
        router.check_at_rest()
        return counts
    finally:
        await router.stop()


async def _connection(rng: random.Random, router: MemoryRouter, counts: Counts) -> None:
    peer = _Peer()
    await asyncio.get_running_loop().create_connection(lambda: peer, "127.0.0.1", router.http_port)
    if rng.random() < 0.3:
        sent = [_UPGRADE % rng.choice((b"/amqp", b"/amqp", b"/api/v1/watch")), *(_frame(rng) for _ in range(5))]
    else:
        sent = [_request(rng) for _ in range(rng.choice((1, 1, 2)))]
    for data in sent:
        peer.transport.write(data)
        counts.inputs += 1
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    peer.transport.close()
    await peer.gone
    status = bytes(peer.heard[:12])
    if status.startswith(b"HTTP/1.1 5") and status[9:12] != b"503":
        raise Finding(f"{bytes(peer.heard[:300])!r} is the answer to {sent[0][:300]!r}")
    counts.refused += status[9:10] == b"4"


HTTP = HttpRequests()
