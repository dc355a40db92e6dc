"""Whole routers on a `MemoryLoop`: listeners, incarnations, links to neighbours, HTTP; all but the sockets is real."""

from __future__ import annotations

import asyncio

from chaos.fuzz.target import Finding
from delivery_records.model.view import RouterRecord
from oncewire.transport.turn import Turn
from router.authentication.tls import RouterTls
from router.clients.listener import ClientListener
from router.incarnations.incarnation import Incarnation
from router.incarnations.lifecycle import Lifecycle
from router.operator.surface import OperatorSurface
from router.peers.listener import NeighbourListener
from router.process.admission import Gates
from router.process.event_loop_lag import LoopWatch
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
        self.port = self.http_port = 0
        turn, tls, gates = Turn(), RouterTls(config, self.log), Gates(config, self.log)
        self.listener = ClientListener(config, self.log, turn, "fuzz", gates=gates)
        self._neighbours = NeighbourListener(config, None, gates.neighbours)
        self.lifecycle = Lifecycle(config, self.listener, self._neighbours, turn, self.log, tls)
        self._operator = OperatorSurface(
            config,
            "fuzz",
            self.lifecycle,
            self.listener,
            LoopWatch(self.log, 1.0, self.listener.count),
            self.log,
            None,
            tls,
            gates,
        )
        self._etcd = etcd
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, and join the network."""
        self.port, inter_router = await self.listener.listen(), await self._neighbours.listen()
        self.http_port = await self._operator.listen() or 0
        self._operator.start()
        record = RouterRecord(
            self.name,
            0,
            f"127.0.0.1:{inter_router}",
            f"amqp://127.0.0.1:{self.port}",
            f"http://127.0.0.1:{self.http_port}",
        )
        self._running = asyncio.create_task(self.lifecycle.run(self._etcd.client, record, self._operator))
        async with asyncio.timeout(READY_S):
            while self.lifecycle.waiting_for():  # noqa: ASYNC110  (a health check asks again, too)
                await asyncio.sleep(0.05)

    @property
    def incarnation(self) -> Incarnation:
        """The one that serves."""
        assert self.lifecycle.incarnation is not None
        return self.lifecycle.incarnation

    async def stop(self) -> None:
        """End it in good order."""
        await self._operator.stop_answering()
        self.lifecycle.stop()
        if self._running is not None:
            await self._running
        self.listener.abort_all()
        await self._operator.stop()

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
