"""A connection that nobody waits for any more, just when it is there: uvloop closes it and says nothing of its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from oncewire.client.transport import Transport
from oncewire.transport.connecting import connect
from oncewire.wire import Connection, Event, Role, SaslClient

IDLE_MS = 60
CONNECT_S = 10.0


class Dialed(Transport):
    """Lets its dialer be cancelled at the instant at which there is a connection."""

    dialing: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.dialing is not None
        self.dialing.cancel()


async def give_up_between_connection_and_answer() -> None:
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    events: list[Event] = []
    engine = Connection(
        Role.CLIENT, container_id="c", idle_time_out_ms=IDLE_MS, sasl=SaslClient("ANONYMOUS"), now=loop.time()
    )
    transport = Dialed(engine, events.append)
    port = server.sockets[0].getsockname()[1]
    transport.dialing = asyncio.create_task(connect(transport, "127.0.0.1", port, CONNECT_S))
    with pytest.raises(asyncio.CancelledError):
        await transport.dialing
    assert transport.closed.done()
    # An idle time-out now would report a loss, which is none of the next connection.
    await asyncio.sleep(IDLE_MS * 3 / 1000)
    transport.mark_dirty()
    await asyncio.sleep(0)
    assert not events
    assert not faults, faults
    server.close()
    await server.wait_closed()


def test_a_connection_that_was_given_up_says_nothing_any_more() -> None:
    uvloop.run(give_up_between_connection_and_answer())
