"""A network of real processes in which every connection leads through Toxiproxy.

Routers have configured links: each dials a proxy of its own per neighbour, so that one link can be hit and not another.
Clients reach a router through one proxy, which the router also advertises as its address. Each router reaches each
member of etcd through a proxy of its own. Only what looks on from outside (states, the lease's end) goes straight.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import TracebackType
from typing import Self

from chaos.experiments.plans import Experiment, Path, Shape, Way
from chaos.network.toxiproxy import DOWNSTREAM, UPSTREAM, ProxyAddress, ToxiproxyServer
from router.commands.local_network import LocalNetwork
from topology.etcd.server import EtcdCluster, EtcdServer, free_port

LOOPBACK = "127.0.0.1"
CLIENTS = "clients"
"""Who dials the proxy in front of a router's listener for clients."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One proxied connection: who dials whom, through which proxy."""

    dialer: str
    acceptor: str
    proxy: ProxyAddress

    @property
    def name(self) -> str:
        """Such as `r1-r2`."""
        return f"{self.dialer}-{self.acceptor}"

    def streams(self, way: Way, seen_from: str) -> tuple[str, ...]:
        """Toxiproxy's names of the directions that are inward or outward for one end."""
        if way is Way.BOTH:
            return (UPSTREAM, DOWNSTREAM)
        toward_acceptor = (way is Way.IN) == (seen_from == self.acceptor)
        return (UPSTREAM,) if toward_acceptor else (DOWNSTREAM,)


class ProxiedNetwork:
    """etcd, routers, and the proxies between them and in front of them. Use as an async context manager."""

    def __init__(self, experiment: Experiment, folder: FilePath, seed: int) -> None:
        """Nothing is started yet.

        Args:
            experiment: says how many routers and members of etcd there are, how they are linked, and their settings.
            folder: for logs.
            seed: for Toxiproxy's dice.

        Raises:
            ToxiproxyNotFound, EtcdNotFound: there is nothing to start.
        """
        self.toxiproxy = ToxiproxyServer(folder / "toxiproxy.log", seed)
        self.members: list[EtcdServer] = []
        self.network = LocalNetwork(0)
        self.wires: dict[Path, list[Wire]] = {Path.CLIENT_ROUTER: [], Path.ROUTER_ROUTER: [], Path.ROUTER_ETCD: []}
        self._experiment = experiment
        self._folder = folder
        self._stack = AsyncExitStack()

    @property
    def client_urls(self) -> list[str]:
        """Where clients connect, the first router's first."""
        return [f"amqp://{wire.proxy.listen}" for wire in self.wires[Path.CLIENT_ROUTER]]

    @property
    def description(self) -> str:
        """What runs, for people."""
        return f"{self.toxiproxy.description}; {len(self.members)} x {self.members[0].binary}"

    @property
    def software(self) -> str:
        """Which versions run."""
        return f"Toxiproxy {self.toxiproxy.version}, etcd {self.members[0].binary.version}"

    def wires_of(self, path: Path, router: str) -> list[Wire]:
        """All connections of a path that have this router at one end; every one for ROUTERS_ETCD."""
        if path is Path.ROUTERS_ETCD:
            return list(self.wires[Path.ROUTER_ETCD])
        wires = self.wires[Path.ROUTER_ROUTER if path is Path.ROUTER_NETWORK else path]
        return [wire for wire in wires if router in (wire.dialer, wire.acceptor)]

    async def __aenter__(self) -> Self:
        """Start everything and wait until every router is ready.

        Raises:
            ToxiproxyFailed, EtcdFailed, LocalNetworkError: something did not start.
        """
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End routers, etcd and Toxiproxy, in this order."""
        await self._stack.aclose()

    async def _start(self) -> None:
        experiment = self._experiment
        await self._stack.enter_async_context(self.toxiproxy)
        if experiment.etcd_members == 1:
            self.members = [await self._stack.enter_async_context(EtcdServer())]
        else:
            cluster = await self._stack.enter_async_context(EtcdCluster(experiment.etcd_members))
            self.members = cluster.members
        self.network = LocalNetwork(
            experiment.routers,
            etcd_urls=[url for member in self.members for url in member.urls],
            settings=experiment.settings,
            log_folder=self._folder,
            log_level="info",
        )
        clients_listen = {name: f"{LOOPBACK}:{free_port()}" for name in self.network.routers}
        await self._place_proxies(clients_listen)
        await self._stack.enter_async_context(self.network)
        # Only now is it sure that each router has the port that was chosen for it.
        for name, router in self.network.routers.items():
            await self._connect(
                Path.CLIENT_ROUTER, CLIENTS, name, f"{LOOPBACK}:{router.amqp_port}", clients_listen[name]
            )

    async def _place_proxies(self, clients_listen: Mapping[str, str]) -> None:
        inter_router = {name: free_port() for name in self.network.routers}
        names = list(self.network.routers)
        pairs = itertools.combinations(names, 2) if self._experiment.shape is Shape.MESH else itertools.pairwise(names)
        connectors: dict[str, list[str]] = {name: [] for name in names}
        for dialer, acceptor in pairs:
            wire = await self._connect(Path.ROUTER_ROUTER, dialer, acceptor, f"{LOOPBACK}:{inter_router[acceptor]}")
            connectors[dialer].append(f"{wire.proxy.listen}=1")
        for index, (name, router) in enumerate(self.network.routers.items()):
            endpoints = []
            for number, member in enumerate(self.members, 1):
                upstream = member.urls[0].removeprefix("http://")
                wire = await self._connect(Path.ROUTER_ETCD, name, f"etcd{number}", upstream)
                endpoints.append(f"http://{wire.proxy.listen}")
            # Each router begins with another member, so that whichever is lost is in use.
            turn = index % len(endpoints)
            endpoints = endpoints[turn:] + endpoints[:turn]
            router.settings.update(
                {
                    "listen.advertise": clients_listen[name],
                    "inter_router.port": str(inter_router[name]),
                    "inter_router.mesh": "configured",
                    "inter_router.connectors": ",".join(connectors[name]),
                    "etcd.endpoints": ",".join(endpoints),
                }
            )

    async def _connect(self, path: Path, dialer: str, acceptor: str, upstream: str, listen: str | None = None) -> Wire:
        listen = listen or f"{LOOPBACK}:{free_port()}"
        proxy = await self.toxiproxy.create(f"{dialer}-{acceptor}", listen, upstream)
        wire = Wire(dialer, acceptor, proxy)
        self.wires[path].append(wire)
        return wire
