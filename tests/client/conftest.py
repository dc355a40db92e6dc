"""A router of the tests and what it shares with others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.client.wire_server import Network, WireServer


@pytest.fixture
async def network() -> Network:
    return Network()


@pytest.fixture
async def server(network: Network) -> AsyncIterator[WireServer]:
    async with WireServer(network) as running:
        yield running
