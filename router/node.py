"""The router process: its listeners, its incarnations and its operator's side, wired together (K-1, K-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from delivery_records.model.view import RouterRecord
from oncewire.transport.turn import Turn
from router.authentication.login_setup import checks_of
from router.authentication.tls import RouterTls
from router.authentication.users import warn_of_open_file
from router.clients.listener import ClientListener
from router.incarnations.lifecycle import Lifecycle
from router.incarnations.store_setup import store_factory
from router.operator.surface import OperatorSurface
from router.operator.worker_front import path_of_worker
from router.peers.listener import NeighbourListener
from router.process.admission import Gates
from router.process.event_loop_lag import LoopWatch
from router.process.listening import reachable
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from topology.etcd.store import ClusterStore

READY_CHECK_S = 0.01


class RouterNode:
    """One router process."""

    def __init__(
        self,
        config: RouterConfig,
        version: str,
        log: EventLog | None = None,
        load: Callable[[], RouterConfig] | None = None,
        open_store: Callable[[], ClusterStore] | None = None,
    ) -> None:
        """Prepare a router; `run` starts it.

        Args:
            config: its settings.
            version: of Oncewire.
            log: where its events go; None = a log of its own.
            load: reads the settings again; None = there is no file to read.
            open_store: makes clients of a store that routers of one process share, and this router leaves the
                process' garbage collection alone; None = the store that the settings ask for.

        Raises:
            CliError: the TLS files, the keys of tokens, or the settings authenticator or queue_store cannot be used.
        """
        self._config = config
        self._version = version
        self._log = log = log or EventLog(config.node_id)
        self._open_store = open_store
        turn = Turn()
        tls = self.tls = RouterTls(config, log)
        self.gates = gates = Gates(config, log)
        self.listener = ClientListener(config, log, turn, version, tls.clients, checks_of(config, log), gates)
        # The last heartbeat before a stall may be one period old.
        borne_s = config.inter_router_silence_s - config.inter_router_heartbeat_s
        self._watch = LoopWatch(log, borne_s, self.listener.count)
        self._router_listener = NeighbourListener(config, tls.neighbours, gates.neighbours)
        self.lifecycle = Lifecycle(config, self.listener, self._router_listener, turn, log, tls)
        self.operator = OperatorSurface(
            config, version, self.lifecycle, self.listener, self._watch, log, load, tls, gates
        )
        self.amqp_url = ""
        """Where clients connect; known once it listens, as is `http_url`."""
        self.http_url = ""

    async def run(self) -> None:
        """Serve until `stop` is called, or until a drain is over.

        Raises:
            CliError: an address cannot be listened on, or there is no etcd for this router.
        """
        open_store = self._open_store or store_factory(self._config, self._log)
        # After the store: etcd3 cannot use a protobuf that others have loaded in their way.
        self.operator.load_telemetry()
        try:
            record = await self._listen()
            if self._open_store is None:
                self._watch.start()
            self.operator.start()
            warn_of_open_file(self._config, self._log)
            self.gates.warn_if_short()
            self.listener.warn_of_small_windows()
            self._log.event(RouterEvent.ROUTER_STARTED, version=self._version, amqp=record.amqp, http=record.http)
            try:
                await self.lifecycle.run(open_store, record, self.operator)
            finally:
                await self.operator.stop_answering()
        finally:
            self.listener.stop_listening()
            self._router_listener.stop_listening()
            self.listener.abort_all()
            await self.operator.stop()
            if self._open_store is None:
                self._watch.stop()
            self._log.event(RouterEvent.ROUTER_STOPPED)

    def drain(self) -> None:
        """K-8a: let the clients move, then stop; called again, stop at once (K-8)."""
        self.lifecycle.drain()

    def stop(self) -> None:
        """K-8: stop in good order."""
        self.lifecycle.stop()

    def abort(self) -> None:
        """As a crash does: drop every socket, flush nothing, handle nothing more. Cancel `run` next."""
        self.listener.abort_all()
        self.lifecycle.abort()

    async def wait_ready(self) -> None:
        """Wait until the router accepts clients."""
        while True:
            if not self.lifecycle.waiting_for():
                return
            await asyncio.sleep(READY_CHECK_S)

    async def _listen(self) -> RouterRecord:
        config = self._config
        amqp_port = await self.listener.listen()
        inter_router = ""
        port = None if config.standalone else await self._router_listener.listen()
        if port is not None:
            inter_router = config.inter_router_advertise or f"{reachable(config.inter_router_host)}:{port}"
        http_port = await self.operator.listen()
        if http_port is not None:
            self.http_url = f"{'https' if config.http_tls else 'http'}://{reachable(config.http_host)}:{http_port}"
            if config.worker is not None and config.worker.number > 1:
                self.http_url += path_of_worker(config.worker.number)
        scheme = "amqps" if config.listen_tls else "amqp"
        self.amqp_url = f"{scheme}://" + (config.listen_advertise or f"{reachable(config.listen_host)}:{amqp_port}")
        return RouterRecord(
            node_id=config.node_id,
            rid=0,
            inter_router=inter_router,
            amqp=self.amqp_url,
            http=self.http_url,
            version=self._version,
            group=config.worker.group if config.worker is not None else "",
        )
