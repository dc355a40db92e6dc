"""`WebSocketTransport` by itself, on both event loops: it keeps what a TCP transport promises its protocol."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
import uvloop
from aiohttp import web

from oncewire.transport.connecting import connect
from oncewire.transport.websocket import MESSAGE_BYTES, SUBPROTOCOL, WebSocketTransport
from tests.router.plain_flow import HIGH_BYTES, Flow

DEADLINE_S = 60.0
TURNS = 20
"""Of the loop, in which a chunk is written if TCP takes it."""
CHUNK = bytes(range(256)) * 1024


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Flow, Flow]]:
    """Both ends of one connection: of the client, of the server."""
    accepted: asyncio.Future[Flow] = asyncio.get_running_loop().create_future()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), autoping=False, timeout=1.0)
        await websocket.prepare(request)
        assert request.transport is not None
        flow = Flow()
        transport = WebSocketTransport(websocket, request.transport, flow)
        accepted.set_result(flow)
        await transport.run()
        return websocket

    app = web.Application()
    app.router.add_get("/amqp", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = Flow()
    async with asyncio.timeout(DEADLINE_S):
        await connect(client, "127.0.0.1", runner.addresses[0][1], DEADLINE_S, path="/amqp")
        yield client, await accepted
        client.abort()
        await asyncio.wait([client.closed, (await accepted).closed])
    await runner.cleanup()


async def fall_behind(writer: Flow) -> int:
    """Write to a peer that does not read, until TCP takes no more; how many chunks."""
    for chunks in itertools.count(1):
        writer.transport.write(CHUNK)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if writer.is_behind:
            return chunks
    raise AssertionError


async def slow_reader() -> None:
    async with connected() as (reader, writer):
        reader.transport.pause_reading()
        assert not reader.transport.is_reading()
        chunks = await fall_behind(writer)
        assert writer.transport.get_write_buffer_size() > HIGH_BYTES
        assert len(reader.read) == 0
        writer.caught_up.clear()
        reader.transport.resume_reading()
        await writer.caught_up.wait()
        writer.transport.close()
        writer.transport.write(b"this does not count any more")
        await asyncio.wait([reader.closed, writer.closed])
        is_whole = reader.read == CHUNK * chunks  # a close writes what was unwritten
        assert is_whole


async def both_close() -> None:
    async with connected() as (one, other):
        one.transport.write(b"x" * (2 * MESSAGE_BYTES + 1))
        await other.arrived(2 * MESSAGE_BYTES + 1)
        other.transport.close()
        one.transport.close()
        assert one.transport.is_closing()
        await asyncio.wait([one.closed, other.closed])


async def abort_while_behind() -> None:
    async with connected() as (reader, writer):
        reader.transport.pause_reading()
        await fall_behind(writer)
        writer.transport.pause_reading()
        writer.caught_up.clear()
        writer.abort()
        await writer.closed
        assert not writer.caught_up.is_set()


async def close_to_a_peer_that_does_not_read() -> None:
    async with connected() as (reader, writer):
        reader.transport.pause_reading()
        await fall_behind(writer)
        writer.transport.close()
        await writer.closed


@pytest.mark.slow
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("what", [slow_reader, both_close, abort_while_behind, close_to_a_peer_that_does_not_read])
def test_a_websocket_is_a_transport_with_limits_that_always_ends(
    what: Callable[[], Coroutine[None, None, None]], run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    run(what())
