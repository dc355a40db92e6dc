"""One incarnation of the router: a lease, a record core, the view, the neighbours; it ends as a whole (K-3).

Nothing in here outlives the incarnation. The node makes a new one with a new lease when this one has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any

from delivery_records import Records
from delivery_records.model.effects import RoomAgain
from delivery_records.model.inputs import Drain, Input, PoliciesChanged
from delivery_records.model.message_format import MessageFormat
from oncewire.transport.turn import Turn
from router.authentication.tls import RouterTls
from router.clients.listener import ClientListener
from router.clients.message_edits import Annotator, make_letter
from router.clients.message_filters import AmqpFilters
from router.clients.message_groups import read_group
from router.clients.message_ttl import read_ttl
from router.incarnations.store_operations import StoreOperations
from router.peers.dialing import Dialing
from router.peers.link_costs import LinkCosts
from router.peers.neighbours import Neighbours
from router.process.logs import EventLog, Part
from router.records_driver import RecordsDriver
from router.routed.links import RoutedLinks
from router.settings.config import RouterConfig
from topology.keys.epochs import epoch_of
from topology.keys.services import Places, ServiceDirectory
from topology.members.membership import Membership

LINK_PATIENCE_S = 3.0
"""A router counts as ready without a link to some live router after this long: that one may be dead."""
FLUSH_S = 0.5
"""An orderly stop gives the sockets at most this long (K-8)."""
DRAIN_EXTRA_S = 1.0
"""Beyond the limit of a drain: for clients that are slow to close a connection they were sent away from."""
LEAVE_TIMEOUT_S = 2.0
"""For notifying etcd: without etcd the lease ends by itself, and nobody waits for this process."""


class IncarnationEnd(Enum):
    """Why an incarnation ended."""

    STOPPED = "stopped"
    """In good order (K-8)."""
    FENCED = "fenced"
    """The lease may be gone (K-3)."""
    FAULT = "fault"
    """A fault of our own: a crash is what the protocol survives."""


class _Ended(Exception):
    """Raised inside the task group to cancel everything in it."""


class Incarnation:
    """One incarnation of the router."""

    def __init__(
        self,
        config: RouterConfig,
        membership: Membership,
        listener: ClientListener,
        turn: Turn,
        log: EventLog,
        costs: LinkCosts,
        tls: RouterTls,
    ) -> None:
        """Prepare a life under a lease that was just granted; `run` lives it."""
        self.membership = membership
        self.records = Records(
            rid=membership.rid,
            node_id=config.node_id,
            nonce=membership.nonce,
            limits=config.record_limits(),
            message_format=MessageFormat(Annotator(listener).annotate, make_letter, read_group, read_ttl),
            era=membership.life.era,
            nonce_revision=epoch_of(membership.life_revision),
            filters=AmqpFilters(),
            policy_of=config.policy_of,
        )
        self.driver = RecordsDriver(
            self.records, log, self._vet, lambda: self.end(IncarnationEnd.FAULT), listener.unfinished
        )
        self.neighbours = Neighbours(config, membership, self.driver, turn, log, costs)
        self.services = ServiceDirectory(membership.store, membership.rid, self._on_places)
        self.routed = RoutedLinks(membership.rid, config.routed_limits(), self.neighbours, self.services.serve)
        self.neighbours.routed = self.routed
        self.driver.register(RoomAgain, lambda _effect: listener.on_room())
        self.is_serving = False
        self.view_watch: Callable[[Sequence[Input]], None] | None = None
        """Gets what changes in the view, before the record core does."""
        self.fence_reason = ""
        """Why the lease may have expired, for the log."""
        self._config = config
        self._listener = listener
        self._log = log
        self._dialing = Dialing(config, self.neighbours, self.records, log, lambda: tls.to_neighbours)
        self._reason: IncarnationEnd | None = None
        self._drain_wanted = asyncio.Event()
        self._end_wanted = asyncio.Event()
        self._serving_since = 0.0

    async def run(self) -> IncarnationEnd:
        """Live until the lease may be gone, or until `end` is called. Returns why it ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                StoreOperations(self.membership.store, self.driver, tasks, self._log)
                self._spawn(tasks, self._follow_view(), "view")
                self._spawn(tasks, self._drain(), "drain")
                self._spawn(tasks, self.services.run(), "services")
                if not self._config.standalone:
                    self._spawn(tasks, self._dialing.run(tasks), "dialing")
                await self._end_wanted.wait()
                await self._wind_up()
                raise _Ended
        except* _Ended:
            pass
        finally:
            self._forget()
            await self.membership.close()
        assert self._reason is not None
        return self._reason

    def _spawn(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> None:
        """A task whose failure ends the incarnation, and not the process."""
        tasks.create_task(self._guard(work, name), name=name)

    async def _guard(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whatever it is: the incarnation can no longer be trusted)
            self._log.fault(Part.INCARNATION, error, name)
            self.end(IncarnationEnd.FAULT)

    def use(self, config: RouterConfig) -> None:
        """Go on with these settings; only those that can change in a life have changed."""
        self._config = config
        self.driver.submit([PoliciesChanged(config.policy_of)])

    def drain(self) -> None:
        """K-8a: let the clients move to other routers, then end in good order. Where none is served, end at once."""
        self._drain_wanted.set()
        if not self.is_serving:
            self.end(IncarnationEnd.STOPPED)

    async def _drain(self) -> None:
        await self._drain_wanted.wait()
        if self._reason is not None:
            return
        limit = self._config.drain_limit_s
        connections = self._listener.start_draining()
        self.driver.submit([Drain(connections, limit)])
        try:
            async with asyncio.timeout(limit + DRAIN_EXTRA_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(self.membership.announce_draining())
                tasks.create_task(self._listener.wait_empty())
        except TimeoutError:
            pass
        self.end(IncarnationEnd.STOPPED)

    def end(self, reason: IncarnationEnd) -> None:
        """Have the incarnation end; the first reason counts. Without a lease nothing is handled from now on."""
        if self._reason is not None:
            return
        self._reason = reason
        self._end_wanted.set()
        if reason is not IncarnationEnd.STOPPED:
            self._forget()

    def _forget(self) -> None:
        """K-3: close all client connections and channels, forget everything."""
        self.is_serving = False
        self.driver.stop()
        self.neighbours.stop()
        self._listener.end_incarnation("this router has lost its lease in etcd; connect to another router")

    async def _wind_up(self) -> None:
        """K-8: nothing is accepted any more, what was decided gets out, and nobody has to wait for a grace time."""
        if self._reason is not IncarnationEnd.STOPPED:
            return
        self.is_serving = False
        self._listener.end_incarnation("this router stops; connect to another router")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._listener.wait_empty()
        self.driver.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.membership.leave()

    # --- lease and view -----------------------------------------------------------------------------------------------

    def _vet(self, now: float) -> bool:
        """K-3a: what was read before `now` counts only if the lease was surely valid."""
        if self.membership.vet(now):
            return True
        self.end(IncarnationEnd.FENCED)
        return False

    async def _follow_view(self) -> None:
        """Hand the record core everything the watch reports, until the lease may have expired (K-2, K-3)."""
        why = await self.membership.follow(self._on_view)
        self.fence_reason = why.value
        self.end(IncarnationEnd.FENCED)

    def _on_view(self, inputs: Sequence[Input]) -> None:
        if self.view_watch is not None:
            self.view_watch(inputs)
        self.driver.submit(list(inputs))
        self.neighbours.on_view(self.records.view.routers)
        self._dialing.on_view()
        if not self.is_serving and self._reason is None:
            self.is_serving = True
            self._serving_since = time.monotonic()
            self._listener.driver = self.driver
            self._listener.routed = self.routed

    def _on_places(self, places: Places) -> None:
        self.routed.places = places

    def waiting_for(self) -> list[str]:
        """What is missing until the router accepts clients."""
        if not self.is_serving:
            return ["a lease and the state of the network from etcd"]
        if not self.membership.lease_left():
            return ["a valid lease in etcd"]
        if self._config.standalone or time.monotonic() - self._serving_since > LINK_PATIENCE_S:
            return []
        return [
            f"a path to router {router.record.node_id}"
            for rid, router in self.records.view.routers.items()
            if rid not in self.neighbours.routing.next_hops
            # Our own name: this incarnation, or a dead one whose lease has not ended yet.
            and router.record.node_id != self._config.node_id
        ]
