"""K-3b: a fault of our own while output is written for a client ends that client's connection, and is met once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import cast

import pytest

from oncewire.transport.turn import Turn
from oncewire.wire import AmqpError
from router.amqp.errors import amqp_error
from router.authentication.tls import RouterTls
from router.clients.connection import ClientConnection
from router.clients.listener import ClientListener
from router.operator.metrics import Metrics
from router.operator.statistics import Accounts
from router.operator.status import Numbers
from router.process.event_loop_lag import LoopWatch
from router.process.logs import EventLog, Part
from router.settings.config import RouterConfig
from tests.router.raw_client import DEADLINE_S, RawClient, until

TURNS = 50
"""Of the event loop, in which a fault that repeats itself is met again."""


def break_output(connection: ClientConnection) -> None:
    """What is to be written next for this client is no bytes, so that it cannot be put together."""
    connection.engine._out.append(cast("bytes", "a fault of ours"))


class Served:
    """A listener in this process, and what `/metrics` takes its numbers from."""

    def __init__(self) -> None:
        self.log = EventLog("r1")
        self.listener = ClientListener(RouterConfig(listen_port=0), self.log, Turn(), "0")
        self.port = 0

    def waiting_for(self) -> list[str]:
        """Nothing."""
        return []

    def draining(self) -> None:
        """It does not."""

    def drain(self) -> None:
        """Nobody asks for it."""

    def tables(self) -> dict[str, object]:
        """None."""
        return {}

    def numbers(self) -> Numbers:
        """Of this listener and log."""
        watch, tls = LoopWatch(self.log, 1.0, self.listener.count), RouterTls(RouterConfig(), self.log)
        return Accounts("r1", "0", self.listener, watch, self.log, tls).numbers(None)

    async def all_gone(self) -> None:
        """Wait until no connection is left, and then for what still comes."""
        async with asyncio.timeout(DEADLINE_S):
            await self.listener.wait_empty()
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    served.port = await served.listener.listen()
    yield served
    served.listener.stop_listening()


async def connected(served: Served) -> tuple[RawClient, ClientConnection]:
    """A client that has said nothing yet, and the listener's end of its connection."""
    client = RawClient("box", None, 1 << 20, None)
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", served.port)

    async def count() -> int:
        return served.listener.connection_count

    await until(count, bool)
    (connection,) = served.listener.connections()
    return client, connection


async def test_a_fault_while_output_is_written_ends_the_connection_and_is_met_once(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client, connection = await connected(served)
    break_output(connection)
    client.engine.open()
    client.flush()
    await client.closed()
    await served.all_gone()
    assert served.log.faults[Part.CLIENT] == 1
    assert 'oncewire_faults_total{part="client"} 1.0' in Metrics(served).text().decode().splitlines()
    (record,) = [record for record in caplog.records if record.getMessage() == "internal_error"]
    traceback = caplog.handler.format(record)
    assert "in data_to_send" in traceback, "the line that failed"
    assert "TypeError: sequence item" in traceback
    assert not connection.is_dirty, "nothing waits to be written any more"


async def test_nothing_is_written_for_a_connection_that_is_gone(served: Served) -> None:
    client, connection = await connected(served)
    client.cut()
    await served.all_gone()
    break_output(connection)
    connection.mark_dirty()
    await served.all_gone()
    assert served.log.faults[Part.CLIENT] == 0
    assert not connection.is_dirty


async def test_a_fault_while_one_client_is_sent_away_keeps_no_other_from_being_sent_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await connected(served)
    met = 0

    def broken_once(condition: str, description: str, info: dict[str, object] | None = None) -> AmqpError | None:
        nonlocal met
        met += 1
        if met == 1:
            raise ValueError("a fault of ours")
        return amqp_error(condition, description, info)

    monkeypatch.setattr("router.clients.connection.amqp_error", broken_once)
    others = [RawClient(f"other-{number}", None, 1 << 20, None) for number in range(3)]
    for other in others:
        made = functools.partial(lambda given: given, other)
        await asyncio.get_running_loop().create_connection(made, "127.0.0.1", served.port)

    async def count() -> int:
        return served.listener.connection_count

    await until(count, lambda found: found == 4)
    served.listener.end_incarnation("the end")
    for each in (client, *others):
        await each.closed()
    await served.all_gone()
    assert met > 1
    assert served.log.faults[Part.CLIENT] >= 1
