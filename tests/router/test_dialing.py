"""A router that connects to another one, and stops waiting for the connection."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import uvloop

from oncewire.transport.turn import Turn
from oncewire.wire import Connection, Role, SaslClient
from router.peers.connection import NeighbourConnection, NeighbourOwner
from router.peers.dialing import _open


class Owner:
    """What a connection between routers needs of its router; stops dialing as soon as there is a transport."""

    silence_s = 3.0

    def __init__(self) -> None:
        self.turn = Turn()
        self.connections: set[NeighbourConnection] = set()
        self.dialing: asyncio.Task[None] | None = None

    def add_connection(self, connection: NeighbourConnection) -> None:
        self.connections.add(connection)
        assert self.dialing is not None
        self.dialing.cancel()

    def submit_received(self) -> None:
        """Nothing was received."""

    def remove_connection(self, connection: NeighbourConnection) -> None:
        self.connections.discard(connection)


async def give_up_between_connection_and_answer() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    owner = Owner()
    engine = Connection(Role.CLIENT, container_id="r1", sasl=SaslClient("ANONYMOUS"), now=0.0)
    connection = NeighbourConnection(cast("NeighbourOwner", owner), engine, True, 1, b"")
    port = server.sockets[0].getsockname()[1]
    owner.dialing = asyncio.create_task(_open(connection, f"127.0.0.1:{port}"))
    with pytest.raises(asyncio.CancelledError):
        await owner.dialing
    assert not owner.connections
    assert connection.closed.done()
    # What is still written in this turn must not reach the transport, which uvloop has closed.
    connection.mark_dirty()
    await asyncio.sleep(0.01)
    assert not faults, faults
    server.close()
    await server.wait_closed()


def test_a_connection_that_nobody_waits_for_any_more_has_ended() -> None:
    uvloop.run(give_up_between_connection_and_answer())
