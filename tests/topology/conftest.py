"""A real etcd for the whole run, and the stores the conformance suite runs against."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.stores import ETCD_STORES, EtcdPlace, MemoryPlace, StorePlace
from topology.etcd.server import EtcdServer


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """One etcd; whoever kills it starts it again."""
    server = EtcdServer()
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(params=["memory", *ETCD_STORES])
async def place(request: pytest.FixtureRequest, etcd: EtcdServer) -> AsyncIterator[StorePlace]:
    """A store of each kind, with its faults."""
    made: StorePlace = MemoryPlace() if request.param == "memory" else EtcdPlace(etcd, ETCD_STORES[request.param])
    yield made
    await made.end()
