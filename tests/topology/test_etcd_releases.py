"""The stores on the newest of each release of etcd that is supported: `make tools` builds the servers.

tests/chaos/test_demo.py runs the demo on the newest of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.etcd_releases import RELEASES, etcd_of
from tests.support.stores import ETCD_STORES, EtcdPlace, StorePlace
from tests.topology import test_store_conformance, test_writes_together
from topology.etcd.server import EtcdServer, server_version

pytestmark = [pytest.mark.slow, pytest.mark.needs("etcd-releases")]


@pytest.fixture(scope="module", params=list(RELEASES))
def server(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """One etcd of each release; whoever kills it starts it again."""
    started = EtcdServer(etcd_of(request.param))
    asyncio.run(started.start())
    yield started
    asyncio.run(started.stop())


@pytest.fixture(params=list(ETCD_STORES))
async def place(request: pytest.FixtureRequest, server: EtcdServer) -> AsyncIterator[StorePlace]:
    """A store over it. The tests of the conformance suite ask for this."""
    made = EtcdPlace(server, ETCD_STORES[request.param])
    yield made
    await made.end()


for suite in (test_store_conformance, test_writes_together):
    globals().update({name: test for name, test in vars(suite).items() if name.startswith("test_")})


async def test_the_server_under_test_is_the_version_that_the_script_names(server: EtcdServer) -> None:
    assert await server_version(server.urls[0]) == server.binary.version
