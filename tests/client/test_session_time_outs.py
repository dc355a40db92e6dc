"""How long a publisher asks the network to keep its session, and whose links end with their client (rule K-5d)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.client import RandomContainerWarning, connect
from oncewire.client.publisher import OWN_SESSION_S, SESSION_TIMEOUT_S
from oncewire.wire import Target
from tests.client.wire_server import WireServer


def _asked(server: WireServer) -> list[int]:
    """Time-outs of the publishers that are attached."""
    targets = [each.link.remote_attach.target for each in server.attachments if each.link.remote_attach is not None]
    return [target.timeout for target in targets if isinstance(target, Target)]


async def test_a_publisher_that_another_process_can_open_asks_for_a_day(server: WireServer, tmp_path: Path) -> None:
    async with connect(server.url, container_id="c") as client, client.publisher("t", name="p"):
        assert _asked(server) == [SESSION_TIMEOUT_S]
    async with connect(server.url, journal=tmp_path / "c.db") as client, client.publisher("t", name="p"):
        assert _asked(server) == [SESSION_TIMEOUT_S]


async def test_a_publisher_that_no_other_process_can_open_asks_for_less(server: WireServer) -> None:
    async with connect(server.url, container_id="c") as client, client.publisher("t"):
        assert _asked(server) == [OWN_SESSION_S]
    async with connect(server.url) as client:
        with pytest.warns(RandomContainerWarning):
            await client.publisher("t", name="p")
        assert _asked(server) == [OWN_SESSION_S]


async def test_the_application_decides_otherwise(server: WireServer) -> None:
    async with connect(server.url, container_id="c") as client:
        async with client.publisher("t", timeout=7):
            assert _asked(server) == [7]
        async with client.publisher("t", name="p", timeout=8):
            assert _asked(server) == [8]


async def test_a_client_with_a_random_container_id_ends_its_named_subscriptions_when_it_closes(
    server: WireServer,
) -> None:
    async with connect(server.url) as client:
        with pytest.warns(RandomContainerWarning):
            subscriber = await client.subscriber("t", name="s")
        await subscriber.suspend()
        with pytest.warns(RandomContainerWarning):
            await client.subscriber("t", name="s")  # the same client may come back to it
        assert _subscriptions(server) == 1
    assert _subscriptions(server) == 0


async def test_a_client_with_a_container_id_keeps_them(server: WireServer) -> None:
    async with connect(server.url, container_id="c") as client:
        await client.subscriber("t", name="s")
    assert _subscriptions(server) == 1


def _subscriptions(server: WireServer) -> int:
    return sum(len(topic.subscriptions) for topic in server.network.topics.values())
