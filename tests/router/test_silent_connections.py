"""Connections that do not say who they are, or slowly: whatever they use up, others still connect and are answered."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.router.abusers import AMQP_HEADER, Stranger, stranger, strangers
from tests.router.honest_pair import others_lose_nothing
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import DEADLINE_S, RawClient, until

FEW_DESCRIPTORS = 256
SLOWLY_S = 0.2


def http_port(router: RouterProcess) -> int:
    port = urlsplit(router.http).port
    assert port is not None
    return port


async def drip(connection: Stranger, text: bytes) -> None:
    """Send one byte after the other, for as long as the other side lets us."""
    for byte in text:
        if connection.is_closed.is_set():
            return
        connection.transport.write(bytes([byte]))
        await asyncio.sleep(SLOWLY_S)


async def is_answered(port: int) -> bool:
    """Whether a connection has a place. Those that are young keep theirs, so the first try may be too early."""
    connection = await stranger(port)
    connection.transport.write(AMQP_HEADER)
    await asyncio.wait_for(connection.has_news.wait(), DEADLINE_S)
    connection.transport.abort()
    return connection.heard.startswith(AMQP_HEADER)


async def test_silent_connections_do_not_use_up_the_connections_of_others() -> None:
    async with (
        running_router("--standalone", "--limits-max-connections=5") as router,
        strangers(router.port, 40),
        others_lose_nothing(router.port),
    ):
        clients = [await RawClient.connect(router.port) for _ in range(3)]
        assert all(client.engine.remote_open is not None for client in clients)


async def test_silent_connections_of_many_addresses_give_way_to_who_speaks() -> None:
    async with (
        running_router("--standalone", "--limits-max-opening=10", "--limits-open-timeout-s=300") as router,
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(2, 12):
            await stack.enter_async_context(strangers(router.port, 5, f"127.0.0.{number}"))

        await until(lambda: is_answered(router.port), bool)
        text = await metrics(router)
        assert float(text['oncewire_connections_opening{listener="client"}']) <= 10
        assert float(text['oncewire_connections_turned_away_total{listener="client"}']) >= 40


@pytest.mark.parametrize("text", [b"", AMQP_HEADER * 100], ids=["silent", "a byte now and then"])
async def test_who_does_not_open_in_time_is_disconnected(text: bytes) -> None:
    async with running_router("--standalone", "--limits-open-timeout-s=1") as router:
        connection = await stranger(router.port)
        dripping = asyncio.create_task(drip(connection, text))
        await connection.closed()
        dripping.cancel()


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 1000], ids=["none", "a slow one"])
async def test_who_sends_no_http_header_in_time_is_disconnected(text: bytes) -> None:
    async with running_router("--standalone", "--limits-open-timeout-s=1") as router:
        connection = await stranger(http_port(router))
        dripping = asyncio.create_task(drip(connection, text))
        await connection.closed()
        dripping.cancel()


async def test_health_is_reported_beside_more_slow_requests_than_there_may_be_connections() -> None:
    async with (
        running_router("--standalone", "--http-max-connections=8", "--limits-open-timeout-s=300") as router,
        strangers(http_port(router), 40, said=b"GET /healthz HTTP/1.1\r\nHost: "),
    ):
        await until(lambda: answers(router), bool)


async def test_health_is_reported_and_clients_are_sent_away_at_the_limit_of_descriptors() -> None:
    async with (
        running_router("--standalone", "--listen-idle-timeout-s=300", descriptors=FEW_DESCRIPTORS) as router,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = []
        for _ in range(FEW_DESCRIPTORS):
            client = await RawClient.dial(router.port)
            await client.opened_or_gone()  # a burst would be taken for connections that say nothing
            clients.append(client)
        for number in range(2, 6):
            await stack.enter_async_context(strangers(router.port, 50, f"127.0.0.{number}"))
            await stack.enter_async_context(strangers(http_port(router), 50, f"127.0.0.{number}"))
        await until(lambda: answers(router), bool)
        found = [client for client in clients if client.engine.remote_open is not None and not client.is_gone]
        assert len(found) > FEW_DESCRIPTORS // 4, "most descriptors are for clients"
        log = await router.stop()
    assert "descriptors_short" in log
    assert "ulimit -n" in log
    assert "accept_failed" not in log


async def answers(router: RouterProcess) -> bool:
    try:
        return (await router.get("/healthz"))[0] == 200
    except (OSError, aiohttp.ClientError):
        return False


async def metrics(router: RouterProcess) -> dict[str, str]:
    async with aiohttp.ClientSession() as session, session.get(router.http + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
