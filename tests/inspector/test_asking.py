"""What a router gives to the addresses that it asks for an operator: keys in etcd name them, whoever listens there."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from delivery_records.model.view import RouterRecord
from router.commands.local_network import LocalNetwork
from tests.router.management_calls import call, login
from tests.router.raw_client import until
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.store import UNCONDITIONAL
from topology.keys.attachments import encode_record, router_store_key

SETTINGS = {
    "users": "ann:secret-of-ann,vera:v",
    "roles": "ann=admin,vera=viewer",
    "http.anonymous_role": "none",
    "http.loopback_role": "none",
}
LENT = 0xBEEF
"""The incarnation that the thief's key names."""


@asynccontextmanager
async def thief(network: LocalNetwork) -> AsyncIterator[list[bytes]]:
    """A key of a router whose address for HTTP is a listener of somebody else; what was sent there."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    record = RouterRecord("thief", LENT, http=f"http://127.0.0.1:{port}")
    store = GatewayStore(network.etcd_urls)
    try:
        await store.compare_and_put(
            router_store_key(record), encode_record(record), UNCONDITIONAL, await store.grant_lease(600)
        )
        yield heard
    finally:
        await store.close()
        server.close()


async def refused_everywhere(network: LocalNetwork, request: bytes) -> None:
    """Whoever reads a request of a router has no use for its header: not for another path, nor at another router."""
    lines = [line.partition(b": ") for line in request.split(b"\r\n")]
    stolen = {name.decode(): value.decode() for name, _, value in lines if b"stated-caller" in name.lower()}
    assert len(stolen) == 1
    for router in network.routers.values():
        for method, path, body in (
            ("GET", "/api/v1/overview", None),
            ("GET", "/api/v1/state", None),
            ("PUT", "/api/v1/management/log/router", {"level": "debug"}),
        ):
            status, found = await call(router.http, method, path, body, stolen)
            assert (status, "is refused" in found["error"]) == (403, True), (path, found)


async def test_an_operators_login_goes_to_no_address_that_a_key_in_etcd_names() -> None:
    async with LocalNetwork(2, settings=SETTINGS) as network, thief(network) as heard:
        url, ann = network.routers["r1"].http, login("ann", "secret-of-ann")

        async def missing() -> list[str]:
            status, found = await call(url, "GET", "/api/v1/overview?network=true", headers=ann)
            assert status == 200, found
            return [row["router"] for row in found["missing"]]

        await until(missing, lambda names: names == ["thief"])
        sent = b"".join(heard)
        assert b"authorization" not in sent.lower()
        for secret in (b"secret-of-ann", b64encode(b"ann:secret-of-ann"), b"secret-of-ann".hex().encode()):
            assert secret not in sent
        await refused_everywhere(network, heard[0])


async def test_another_router_gives_the_caller_his_own_role_and_no_more() -> None:
    async with LocalNetwork(2, settings=SETTINGS) as network:
        for path in ("/api/v1/overview", "/api/v1/topics", "/api/v1/rates/topics", "/api/v1/deliveries/00"):
            path += "?network=true"  # noqa: PLW2901
            for user, password in (("ann", "secret-of-ann"), ("vera", "v")):
                status, found = await call(network.routers["r1"].http, "GET", path, headers=login(user, password))
                assert (status, found["missing"]) == (200, []), path
            assert (await call(network.routers["r1"].http, "GET", path))[0] == 401
