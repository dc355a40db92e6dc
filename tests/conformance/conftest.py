"""Routers that all tests of this folder share, and the fixture that connects to one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator

import pytest

from oncewire.wire.frames import SASL_HEADER
from router.commands.local_network import LocalNetwork
from tests.conformance.peer import Dial, Peer
from tests.conformance.resuming import Network
from tests.conformance.routers import GUEST, LARGEST_MESSAGE, PASSWORD, USER, Router, TwoRouters, running
from tests.conformance.websocket import WebSocket
from tests.router.relay import assert_no_internal_error


@pytest.fixture(scope="session")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """The router most tests talk to: no login is needed, and one user has one."""
    limit = f"--limits-max-message-size={LARGEST_MESSAGE}"
    flags = (f"--users={USER}:{PASSWORD}", limit, "--http-websocket=true")
    yield from running(tmp_path_factory.mktemp("router"), *flags)


@pytest.fixture(scope="session")
def guarded_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router that serves nobody without a login, and lets one of its two users publish and subscribe."""
    rule = json.dumps([{"users": [USER], "publish": ["#"], "subscribe": ["#"]}])
    users = f"--users={USER}:{PASSWORD},{GUEST}:{PASSWORD}"
    flags = (users, "--listen-allow-anonymous=never", f"--access-rules={rule}")
    yield from running(tmp_path_factory.mktemp("guarded"), *flags)


@pytest.fixture(scope="session")
def hasty_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router for which a client is lost after two seconds of silence."""
    yield from running(tmp_path_factory.mktemp("hasty"), "--listen-idle-timeout-s=2")


@pytest.fixture(scope="session")
def two_routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRouters]:
    """A network of two routers and an etcd; each test has container-ids and topics of its own."""
    folder = tmp_path_factory.mktemp("two-routers")
    network = LocalNetwork(2, log_folder=folder)
    try:
        asyncio.run(network.start())
        yield TwoRouters(network.routers["r1"].amqp_port, network.routers["r2"].amqp_port)
    finally:
        asyncio.run(network.stop())
    assert_no_internal_error(folder)


@pytest.fixture(scope="session", autouse=True)
def silent(guarded_router: Router) -> Iterator[Peer]:
    """A connection on which nothing is sent but a header, from the first test on, so no test waits long."""
    peer = Peer(guarded_router.port)
    peer.header(SASL_HEADER)
    yield peer
    peer.drop()


@pytest.fixture
def dial(router: Router) -> Iterator[Dial]:
    """Connects to the shared router, or to another one when its port is given, or by a WebSocket."""
    peers: list[Peer] = []

    def connect(transport: int | WebSocket | None = None) -> Peer:
        peers.append(Peer(router.port if transport is None else transport))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.drop()


@pytest.fixture
def network(dial: Dial, two_routers: TwoRouters, topic: str) -> Network:
    """The two routers, and a topic of its own."""
    return Network(dial, two_routers, hashlib.sha256(topic.encode()).hexdigest())


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return str(request.node.nodeid.rpartition("/")[2]).replace("::", "/")
