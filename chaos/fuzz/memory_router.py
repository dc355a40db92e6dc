"""Whole routers on a `MemoryLoop`: listeners, incarnations, links to neighbours, HTTP; all but the sockets is real."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from chaos.fuzz.target import Finding
from router.incarnations.incarnation import Incarnation
from router.node import RouterNode
from router.process.logs import EventLog
from router.settings.config_loading import load
from topology.etcd.memory_store import MemoryEtcd

READY_S = 30.0
LEASE_TTL_S = 300
"""The lease is kept alive by a thread in real time; a run takes seconds of it."""
SETTINGS = {
    "listen_port": 0,
    "inter_router_port": 0,
    "http_port": 0,
    "http_websocket": True,
    "lease_ttl_s": LEASE_TTL_S,
    "subscription_timeout_cap_s": 60.0,
    "publisher_timeout_cap_s": 60.0,
    "subscription_timeout_s": 30.0,
    "publisher_timeout_s": 30.0,
}


class MemoryRouter:
    """One router; `settings` go beyond those that all have."""

    def __init__(self, name: str, etcd: MemoryEtcd, **settings: object) -> None:
        config = load(None, {**SETTINGS, "id": name, **settings}, {}).config
        self.name = name
        self.log = EventLog(name)
        self._node = RouterNode(config, "fuzz", self.log, open_store=etcd.client)
        self.listener, self.lifecycle = self._node.listener, self._node.lifecycle
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, and join the network."""
        self._running = asyncio.create_task(self._node.run())
        async with asyncio.timeout(READY_S):
            await self._node.wait_ready()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return urlsplit(self._node.amqp_url).port or 0

    @property
    def http_port(self) -> int:
        """Where HTTP is."""
        return urlsplit(self._node.http_url).port or 0

    @property
    def incarnation(self) -> Incarnation:
        """The one that serves."""
        assert self.lifecycle.incarnation is not None
        return self.lifecycle.incarnation

    async def stop(self) -> None:
        """End it in good order."""
        self._node.stop()
        if self._running is not None:
            await self._running

    def check_whole(self) -> None:
        """No fault of our own was logged, and the first incarnation serves.

        Raises:
            Finding: something else.
        """
        if any(self.log.faults.values()) or self.log.counts["error"]:
            errors = [row for row in self.log.recent.after(None, 500).items if row["level"] == "error"]
            raise Finding(f"{self.name} has faults: {errors[:1]}")
        if self.lifecycle.incarnations != 1 or self.lifecycle.waiting_for():
            raise Finding(f"{self.name} began {self.lifecycle.incarnations} incarnations")

    def check_at_rest(self) -> None:
        """Everybody has left and every time-out is over: nothing is kept.

        Raises:
            Finding: something is.
        """
        records, driver = self.incarnation.records, self.incarnation.driver
        kept = {
            "publishers": len(records.ingresses),
            "subscriptions": len(records.egresses),
            "links": len(driver.links),
            "attaches": len(records.links),
            "connections": self.listener.connection_count,
            "bytes": records.budget.held,
            "store": driver.waiting_for_store,
        }
        if any(kept.values()):
            raise Finding(f"{self.name} keeps {kept}")
