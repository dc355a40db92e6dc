"""The life of a router process: incarnations one after the other, a drain, an orderly end (K-3, K-8)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Protocol

from delivery_records.model.view import RouterRecord
from oncewire.transport.turn import Turn
from router.authentication.tls import RouterTls
from router.clients.listener import ClientListener
from router.incarnations.etcd_memory import EtcdMemory
from router.incarnations.incarnation import Incarnation, IncarnationEnd
from router.incarnations.joining import RETRY_S, Joining, pause
from router.peers.link_costs import LinkCosts
from router.peers.listener import NeighbourListener
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from topology.etcd.store import ClusterStore
from topology.members.membership import Membership


class IncarnationObserver(Protocol):
    """Follows which incarnation serves; it decides nothing."""

    def begin(self, incarnation: Incarnation) -> None:
        """An incarnation is about to run."""

    def end(self, incarnation: Incarnation) -> None:
        """It is over."""


class Lifecycle:
    """Starts, drains and stops the incarnations of one router process."""

    def __init__(
        self,
        config: RouterConfig,
        listener: ClientListener,
        router_listener: NeighbourListener,
        turn: Turn,
        log: EventLog,
        tls: RouterTls,
    ) -> None:
        """Nothing runs yet.

        Args:
            config: the settings the process has begun with.
            listener: where clients connect.
            router_listener: where other routers connect.
            turn: of the event loop.
            log: where its events go.
            tls: for connections to other routers.
        """
        self._tls = tls
        self.incarnation: Incarnation | None = None
        """The one that serves; None while there is no lease."""
        self.incarnations = 0
        """How many have begun."""
        self.started_at = time.monotonic()
        self._config = config
        self._listener = listener
        self._router_listener = router_listener
        self._turn = turn
        self._log = log
        self._costs = LinkCosts()
        self._stop_wanted = asyncio.Event()
        self._memory = EtcdMemory(config, log)
        self._joining = Joining(config, log, self._stop_wanted, self._memory.seen)
        self._drains_until: float | None = None
        """K-8a: when every client is disconnected, on the monotonic clock; None = it does not drain."""

    async def run(
        self, open_store: Callable[[], ClusterStore], record: RouterRecord, observer: IncarnationObserver
    ) -> None:
        """One incarnation after the other, until `stop` or the end of a drain.

        Raises:
            CliError: there is no etcd for this router.
        """
        self._memory.load()
        keeping = asyncio.create_task(self._memory.keep())
        try:
            while (membership := await self._joining.join(open_store, record)) is not None:
                await self._run_once(membership, observer)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self._memory.save()

    async def _run_once(self, membership: Membership, observer: IncarnationObserver) -> None:
        self.incarnations += 1
        incarnation = self.incarnation = Incarnation(
            self._config, membership, self._listener, self._turn, self._log, self._costs, self._tls
        )
        observer.begin(incarnation)
        self._router_listener.neighbours = incarnation.neighbours
        if self._stop_wanted.is_set():
            incarnation.end(IncarnationEnd.STOPPED)
        rid = self._log.incarnation = f"{membership.rid:x}"
        self._log.event(RouterEvent.INCARNATION_STARTED, rid=rid)
        why = await incarnation.run()
        self._router_listener.neighbours = None
        self.incarnation = None
        observer.end(incarnation)
        self._log.event(RouterEvent.INCARNATION_ENDED, rid=rid, why=why.value, reason=incarnation.fence_reason)
        self._log.incarnation = ""
        del incarnation
        gc.collect()  # a core is full of cycles, and old ones are collected rarely (router/process/event_loop_lag.py)
        if why is IncarnationEnd.FAULT:
            await pause(self._stop_wanted, RETRY_S)

    def use_config(self, config: RouterConfig) -> None:
        """Go on with these settings; see `RouterControls`."""
        self._config = config
        if self.incarnation is not None:
            self.incarnation.use(config)

    def drain(self) -> None:
        """K-8a: let the clients move, then stop; called again, stop at once (K-8)."""
        incarnation = self.incarnation
        if self._drains_until is not None or incarnation is None or not incarnation.is_serving:
            self.stop()
            return
        self._drains_until = time.monotonic() + self._config.drain_limit_s
        self._log.event(RouterEvent.ROUTER_DRAINING, limit_s=self._config.drain_limit_s)
        self._stop_wanted.set()
        self._listener.stop_listening()
        incarnation.drain()

    def stop(self) -> None:
        """K-8: stop in good order."""
        self._stop_wanted.set()
        self._listener.stop_listening()
        self._router_listener.stop_listening()
        if self.incarnation is not None:
            self.incarnation.end(IncarnationEnd.STOPPED)

    def abort(self) -> None:
        """End as a crash does: nothing is flushed, and others learn of it by the end of the lease."""
        self._stop_wanted.set()
        self._listener.stop_listening()
        self._router_listener.stop_listening()
        if self.incarnation is not None:
            self.incarnation.end(IncarnationEnd.FAULT)

    # --- for operators ------------------------------------------------------------------------------------------------

    @property
    def is_history_lost(self) -> bool:
        """Whether etcd lacks what this router has seen, and no operator has confirmed that (K-9)."""
        return bool(self._joining.history_lost)

    def waiting_for(self) -> list[str]:
        """What is missing until the router accepts clients; empty when the router is ready."""
        if self._drains_until is not None:
            return ["its end: it drains, and takes no clients"]
        if self.incarnation is None and self.is_history_lost:
            return [f"an operator's word on etcd: {self._joining.history_lost}"]
        if self.incarnation is None:
            unreachable = self._joining.is_store_unreachable
            return ["etcd, which cannot be reached" if unreachable else "a lease in etcd"]
        return self.incarnation.waiting_for()

    def draining(self) -> dict[str, object] | None:
        """`limit_s`, and `left_s` until it; None while the router serves (K-8a)."""
        if self._drains_until is None:
            return None
        left = max(0.0, self._drains_until - time.monotonic())
        return {"limit_s": self._config.drain_limit_s, "left_s": round(left, 1)}
