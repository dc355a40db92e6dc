"""A real router that knows a large network: 100 routers, all linked, with 10,000 subscriptions in etcd.

Only the other routers' processes are missing; the router, its store, its view and its HTTP side are the shipped ones.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from delivery_records.model.tags import link_key
from delivery_records.model.view import RouterRecord, SubscriptionMode, SubscriptionRecord
from router.node import RouterNode
from router.settings.config import RouterConfig
from topology.etcd.memory_store import MemoryEtcd
from topology.keys.attachments import encode_record, router_store_key, store_key
from topology.links.linkstate_codec import Announcement, LinkStateUpdate, encode_message

ROUTERS = 100
SUBSCRIPTIONS = 10_000
TOPICS = 50
FIRST_RID = 0x6000_0000_0000_0000
"""As large as those of etcd."""
DEADLINE_S = 60.0


@dataclass
class LargeNetwork:
    """The network, and the one router of it that runs."""

    etcd: MemoryEtcd
    node: RouterNode
    session: aiohttp.ClientSession
    revision: int = 0
    """Of the last write."""

    @property
    def http(self) -> str:
        return self.node.http_url

    def fill(self) -> None:
        """Everything but this router itself."""
        for number in range(1, ROUTERS):
            record = RouterRecord(f"r{number:03}", rid_of(number), amqp=f"amqp://10.0.0.{number}:5672")
            self.etcd.compare_and_put(router_store_key(record), encode_record(record), None, 0)
        for number in range(SUBSCRIPTIONS):
            self.put(number, 1 + number % (ROUTERS - 1))

    def put(self, number: int, router: int) -> None:
        """Attach a subscription at a router."""
        record = SubscriptionRecord(
            container_id=f"warehouse-{number:05}.rotterdam.example",
            link_name="all-orders",
            topic=topic_of(number),
            rid=rid_of(router),
            nonce=f"{number}",
            timeout_s=60.0,
            mode=SubscriptionMode.EXACTLY_ONCE,
            map_bound=20_000,
            peer=f"10.1.2.3:{40_000 + number % 20_000}",
        )
        key = store_key(f"subs/{link_key(record.container_id, record.link_name)}")
        self.revision = self.etcd.compare_and_put(key, encode_record(record), None, 0).revision

    def link(self, cost: int = 1) -> None:
        """All routers are linked with all; one link has this cost."""
        incarnation = self.node.lifecycle.incarnation
        assert incarnation is not None
        routing, own = incarnation.neighbours.routing, incarnation.membership.rid
        rids = [own, *(rid_of(number) for number in range(1, ROUTERS))]
        if not routing.next_hops:
            for rid in rids[1:]:
                routing.neighbour_up(rid, 1)
        changed = (rid_of(7), rid_of(8))
        updates = [
            LinkStateUpdate(
                rid,
                f"r{number:03}",
                time.monotonic_ns(),
                tuple((peer, cost if {rid, peer} == set(changed) else 1) for peer in sorted(rids) if peer != rid),
            )
            for number, rid in enumerate(rids)
            if rid != own
        ]
        for rid in rids[1:]:
            routing.heard(rid)
        routing.receive(encode_message(Announcement(tuple(updates))), rid_of(1))
        routing.update()

    async def get(self, path: str) -> Any:
        """An answer of the API."""
        async with self.session.get(self.http + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def until_applied(self) -> None:
        """Wait until the router knows all that was written."""
        ends_at = time.monotonic() + DEADLINE_S
        while (await self.get("/api/v1/overview"))["applied"] < self.revision:
            assert time.monotonic() < ends_at
            await asyncio.sleep(0.01)


def rid_of(number: int) -> int:
    return FIRST_RID + number


def topic_of(number: int) -> str:
    return f"orders.{number % TOPICS:02}"


@asynccontextmanager
async def large_network() -> AsyncIterator[LargeNetwork]:
    """The network, filled and applied."""
    etcd = MemoryEtcd()
    # Nobody is given up for its silence: the neighbours are in the link states only.
    config = RouterConfig(
        id="r000",
        standalone=True,
        listen_port=0,
        http_port=0,
        inter_router_silence_s=180.0,
        inter_router_heartbeat_s=60.0,
    )
    node = RouterNode(config, "1.0", open_store=etcd.client)
    running = asyncio.ensure_future(node.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await node.wait_ready()
        async with aiohttp.ClientSession() as session:
            network = LargeNetwork(etcd, node, session)
            network.fill()
            await network.until_applied()
            yield network
    finally:
        node.stop()
        await running


class Watcher:
    """A WebSocket, and the tables as its messages say they are."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.tables: dict[str, dict[str, Any]] = {}
        self.reported = 0
        """Rows and keys of changes."""

    async def wish(self, **wish: object) -> None:
        """Say what to see, and take the snapshots."""
        await self.socket.send_json(wish)
        await self.take("snapshot")

    async def take(self, kind: str) -> tuple[dict[str, Any], int]:
        """Take messages up to the first of this kind; that one and its size in bytes."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                text = await self.socket.receive_str()
                message = json.loads(text)
                self._apply(message)
                if message["type"] == kind:
                    return message, len(text)

    def _apply(self, message: dict[str, Any]) -> None:
        if message["type"] == "snapshot":
            self.tables[message["table"]] = {row["key"]: row for row in message["items"]}
        elif message["type"] == "changes":
            for table, changes in message["tables"].items():
                rows = self.tables[table]
                rows.update((row["key"], row) for row in changes["put"])
                for key in changes["delete"]:
                    rows.pop(key, None)
                self.reported += len(changes["put"]) + len(changes["delete"])
