"""Fragments of a byte take turns of the event loop, and nothing of them is lost, also while nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
import uvloop
from aiohttp import web

from oncewire.transport.websocket import SUBPROTOCOL, WebSocketTransport, pass_on_frames
from oncewire.transport.websocket_frames_core import FRAMES_IN_A_TURN
from tests.router.plain_flow import Flow
from tests.router.test_websocket_transport import DEADLINE_S

UPGRADE = (
    "GET /amqp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
    f"MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
).encode()
SENT = bytes(number % 251 for number in range(100_000))
FRAGMENTS = b"".join(bytes((0 if at else 2, 0x81)) + bytes(4) + SENT[at : at + 1] for at in range(len(SENT)))
"""Each byte a fragment of one message that does not end, with a mask of zeros."""


class Counting(Flow):
    """Counts what it is given between two turns of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.in_turn = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.in_turn += 1
        self.most = max(self.most, self.in_turn)

    def turn(self) -> None:
        """Another one begins."""
        self.in_turn = 0
        asyncio.get_running_loop().call_soon(self.turn)


@asynccontextmanager
async def flooded() -> AsyncIterator[tuple[Counting, asyncio.StreamWriter]]:
    """The server's end, and the client, which has sent its handshake and no fragment yet."""
    accepted: asyncio.Future[Counting] = asyncio.get_running_loop().create_future()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), autoping=False, timeout=1.0)
        below = request.transport
        assert below is not None
        frames = pass_on_frames(below)
        await websocket.prepare(request)
        flow = Counting()
        transport = WebSocketTransport(websocket, below, flow, frames=frames)
        accepted.set_result(flow)
        await transport.run()
        return websocket

    app = web.Application()
    app.router.add_get("/amqp", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            yield await accepted, writer
    finally:
        writer.transport.abort()
        await (await accepted).closed
        await runner.cleanup()


async def fragments_take_turns() -> None:
    async with flooded() as (flow, writer):
        flow.turn()
        writer.write(FRAGMENTS)
        await flow.arrived(len(SENT))
        assert bytes(flow.read) == SENT
        assert 0 < flow.most <= 2 * FRAMES_IN_A_TURN


async def nobody_reads_for_a_while() -> None:
    async with flooded() as (flow, writer):
        flow.turn()
        writer.write(FRAGMENTS)
        for share in range(1, 5):
            await flow.arrived(share * len(SENT) // 5)
            flow.transport.pause_reading()
            had = len(flow.read)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(flow.read) == had
            flow.transport.resume_reading()
        await flow.arrived(len(SENT))
        assert bytes(flow.read) == SENT
        assert flow.most <= 2 * FRAMES_IN_A_TURN, "what has come meanwhile takes turns, too"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("scene", [fragments_take_turns, nobody_reads_for_a_while])
def test_fragments_of_a_byte(
    loop: Callable[[], asyncio.AbstractEventLoop], scene: Callable[[], Coroutine[None, None, None]]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scene())
