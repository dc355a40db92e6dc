"""One life of the router: a lease, a record core, the view, the neighbours; it ends as a whole (K-3).

Nothing in here outlives the incarnation. The node makes a new one with a new lease when this one has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from enum import Enum
from typing import Any

from delivery_records import Records
from delivery_records.inputs import Input
from router.config import RouterConfig
from router.dialing import Dialing
from router.listener import ClientListener
from router.logs import EventLog
from router.member import Member
from router.message_edits import annotate
from router.neighbours import Neighbours
from router.records_driver import RecordsDriver
from router.store_operations import StoreOperations
from router.turn import Turn
from topology.store import Store

FENCE_CHECK_S = 0.1
"""The deadline is looked at after every read; this is for a router nobody talks to."""
LINK_PATIENCE_S = 3.0
"""A router counts as ready without a link to some live router after this long: that one may be dead."""
FLUSH_S = 0.5
"""An orderly stop gives the sockets this long (K-8)."""


class End(Enum):
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
    """One life of the router."""

    def __init__(
        self,
        config: RouterConfig,
        member: Member,
        store: Store,
        listener: ClientListener,
        turn: Turn,
        log: EventLog,
    ) -> None:
        """Prepare a life under a lease that was just granted; `run` lives it."""
        self.member = member
        self.records = Records(
            rid=member.rid,
            node_id=config.node_id,
            nonce=member.nonce,
            limits=config.record_limits(),
            annotate=annotate,
        )
        self.driver = RecordsDriver(self.records, log, self._vet, lambda: self.end(End.FAULT))
        self.neighbours = Neighbours(config, member.rid, member.nonce, self.driver, turn, log)
        self.is_serving = False
        self._config = config
        self._store = store
        self._listener = listener
        self._log = log
        self._dialing = Dialing(config, self.neighbours, self.records, log)
        self._reason: End | None = None
        self._end_wanted = asyncio.Event()
        self._serving_since = 0.0

    async def run(self) -> End:
        """Live until the lease may be gone, or until `end` is called. Returns why it ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                StoreOperations(self._store, self.driver, tasks, self._log)
                self._spawn(tasks, self.member.follow(self._on_view), "view")
                self._spawn(tasks, self._watch_fence(), "fence")
                if not self._config.standalone:
                    self._spawn(tasks, self._dialing.run(tasks), "dialing")
                await self._end_wanted.wait()
                await self._wind_up()
                raise _Ended
        except* _Ended:
            pass
        finally:
            self._forget()
        assert self._reason is not None
        return self._reason

    def _spawn(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> None:
        """A task whose failure ends the incarnation, and not the process."""
        tasks.create_task(self._guard(work, name), name=name)

    async def _guard(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whatever it is: the incarnation can no longer be trusted)
            self._log.internal_error(error, name)
            self.end(End.FAULT)

    def end(self, reason: End) -> None:
        """Have the incarnation end; the first reason counts. Without a lease nothing is handled from now on."""
        if self._reason is not None:
            return
        self._reason = reason
        if reason is not End.STOPPED:
            self._forget()
        self._end_wanted.set()

    def _forget(self) -> None:
        """K-3: close all client connections and channels, forget everything."""
        self.is_serving = False
        self.driver.stop()
        self.neighbours.stop()
        self._listener.end_incarnation("this router has lost its lease in etcd; connect to another router")

    async def _wind_up(self) -> None:
        """K-8: nothing is accepted any more, what was decided gets out, and nobody has to wait for a grace time."""
        if self._reason is not End.STOPPED:
            return
        self.is_serving = False
        self._listener.end_incarnation("this router stops; connect to another router")
        await asyncio.sleep(FLUSH_S)
        self.driver.stop()
        await self.member.leave()

    # --- the lease ----------------------------------------------------------------------------------------------------

    def _vet(self, now: float) -> bool:
        """K-3a: what was read before `now` counts only if the lease was surely valid."""
        if self.member.vet(now):
            return True
        self.end(End.FENCED)
        return False

    async def _watch_fence(self) -> None:
        while True:
            if not self._vet(time.monotonic()):
                return
            await asyncio.sleep(FENCE_CHECK_S)

    # --- the view -----------------------------------------------------------------------------------------------------

    def _on_view(self, inputs: list[Input]) -> None:
        """The watch has something, or the store's health changed (K-2)."""
        self.driver.submit(inputs)
        self.neighbours.on_view(self.records.view.routers)
        self._dialing.on_view()
        rid = self.member.rid
        if self.member.is_joined and rid not in self.records.view.routers:
            self.end(End.FENCED)  # K-3: our own key is gone
        elif self.member.is_joined and not self.is_serving and self._reason is None:
            self.is_serving = True
            self._serving_since = time.monotonic()
            self._listener.driver = self.driver

    def waiting_for(self) -> list[str]:
        """What is missing until clients are welcome."""
        if not self.is_serving:
            return ["a lease and the state of the network from etcd"]
        if not self.member.lease_left(time.monotonic()):
            return ["a valid lease in etcd"]
        if self._config.standalone or time.monotonic() - self._serving_since > LINK_PATIENCE_S:
            return []
        return [
            f"a path to router {router.record.node_id}"
            for rid, router in self.records.view.routers.items()
            if rid != self.member.rid and rid not in self.neighbours.routing.next_hops
        ]
