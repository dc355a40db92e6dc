"""Which routers this one connects to, and trying again when it cannot (mesh = auto or configured).

Workers of one group are linked with each other in any mesh, by the Unix sockets of their folder. Where those are
follows from the names: no path is ever taken from a router's key.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable

from delivery_records import Records
from delivery_records.model.view import RouterRecord
from oncewire.transport.connecting import connect, connect_to_path
from oncewire.transport.tls import HANDSHAKE_S, fault_of
from router.peers.connection import NeighbourConnection
from router.peers.neighbours import Neighbours
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from router.settings.values import ConnectorSettings

BACK_OFF_MIN_S = 0.05
CONNECT_TIMEOUT_S = 2.0
"""For the TCP connection alone. The system asks again one second after a first packet that was lost; a link that heals
later than that is found by the next attempt. With TLS the handshake has its own limit."""


class Dialing:
    """Keeps the connections up that this router opens."""

    def __init__(
        self,
        config: RouterConfig,
        neighbours: Neighbours,
        records: Records,
        log: EventLog,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._config = config
        self._tls = tls
        self._neighbours = neighbours
        self._records = records
        self._log = log
        self._dialers: dict[int, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._refusals: dict[str, str] = {}
        """Why the neighbour at an address refused us last: logged once, not with every attempt."""

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Start the dialers; those of the automatic mesh follow the view."""
        self._tasks = tasks
        if self._config.mesh == "configured":
            for connector in self._config.connectors:
                tasks.create_task(self._dial_connector(connector), name=f"dial {connector.to}")
        self.on_view()

    def on_view(self) -> None:
        """The view has changed: in an automatic mesh, and among workers, the smaller incarnation of two dials."""
        if self._tasks is None:
            return
        rid, routers = self._neighbours.rid, self._records.view.routers
        for gone in [other for other in self._dialers if other not in routers]:
            self._dialers.pop(gone).cancel()
        for other, router in routers.items():
            if other > rid and other not in self._dialers and self._is_dialed(router.record):
                self._dialers[other] = self._tasks.create_task(self._dial_router(other), name=f"dial {other:x}")

    def _is_dialed(self, record: RouterRecord) -> bool:
        if self._path_to(record) is not None:
            return True
        return self._config.mesh == "auto" and bool(record.inter_router)

    def _path_to(self, record: RouterRecord) -> str | None:
        """The Unix socket of another worker of our group; None = it is none."""
        worker = self._config.worker
        number = None if worker is None else worker.number_of(record.node_id, record.group)
        return None if worker is None or number is None else worker.links_path(number)

    async def _dial_router(self, rid: int) -> None:
        """Keep a link to one incarnation; cancelled when it leaves the view."""
        back_off = _BackOff(self._config.inter_router_redial_s)
        while True:
            router = self._records.view.routers.get(rid)
            link = self._neighbours.links.get(rid)
            if link is not None:
                await asyncio.wait([link.closed])
                back_off.reset()
            elif router is not None:
                path = self._path_to(router.record)
                await self._connect(router.record.inter_router, 1, back_off, path)
            await back_off.sleep()

    async def _dial_connector(self, connector: ConnectorSettings) -> None:
        """Keep a configured link."""
        back_off = _BackOff(self._config.inter_router_redial_s)
        while True:
            address = self._address_of(connector)
            if address is not None:
                await self._connect(address, connector.cost, back_off)
            await back_off.sleep()

    def _address_of(self, connector: ConnectorSettings) -> str | None:
        """Where to connect now; None while the router is not in etcd, or linked already."""
        if connector.is_address:
            return connector.to
        routers = [r for r in self._records.view.routers.values() if r.record.node_id == connector.to]
        if not routers:
            return None
        newest = max(routers, key=lambda router: router.create_revision).record
        return None if newest.rid in self._neighbours.links else newest.inter_router or None

    async def _connect(self, address: str, cost: int, back_off: _BackOff, path: str | None = None) -> None:
        """Connect to the address, or to the Unix socket at `path`, and stay until the connection is gone."""
        connection = self._neighbours.outgoing(cost, address.rpartition(":")[0])
        try:
            if path is None:
                await _open(connection, address, self._tls())
            else:
                address = path
                await connect_to_path(connection, path, CONNECT_TIMEOUT_S)
        except ssl.SSLError as error:
            self._note_refusal(address, f"TLS: {fault_of(error)}")
            return
        except (OSError, ValueError, TimeoutError) as error:
            self._log.event(RouterEvent.NEIGHBOUR_UNREACHABLE, address=address, why=str(error) or "no answer")
            return
        await asyncio.wait([connection.closed])
        if connection.was_up:
            back_off.reset()
            self._refusals.pop(address, None)
        else:
            self._note_refusal(address, connection.refusal)

    def _note_refusal(self, address: str, why: str) -> None:
        if self._refusals.get(address) != why:
            self._refusals[address] = why
            self._log.event(RouterEvent.NEIGHBOUR_REFUSED, address=address, why=why)


async def _open(connection: NeighbourConnection, address: str, tls: ssl.SSLContext | None = None) -> None:
    host, _, port = address.rpartition(":")
    limit_s = CONNECT_TIMEOUT_S if tls is None else HANDSHAKE_S
    await connect(connection, host.strip("[]"), int(port), limit_s, tls)


class _BackOff:
    """50 ms x 2^n up to a limit, half to the whole of it at random so that routers do not dial in step."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._delay_s = BACK_OFF_MIN_S

    def reset(self) -> None:
        """The last attempt went well."""
        self._delay_s = BACK_OFF_MIN_S

    async def sleep(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.0))
        self._delay_s = min(self._delay_s * 2, self._limit_s)
