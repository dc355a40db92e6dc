"""Everything that operators see and use of one router process: HTTP, `$management`, the inspector, telemetry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aiohttp import web

from router.authentication.tls import RouterTls
from router.clients.listener import ClientListener
from router.clients.redirect import other_routers
from router.incarnations.incarnation import DRAIN_EXTRA_S, Incarnation
from router.incarnations.lifecycle import Lifecycle
from router.operator.access import Access, caller_of, role_named
from router.operator.amqp_node import ADDRESS, ManagementNode
from router.operator.amqp_requests import Answering
from router.operator.controls import RouterControls
from router.operator.http import HttpServer
from router.operator.inspection import Inspection
from router.operator.inspection_routes import inspection_routes, rights_of
from router.operator.management_routes import management_routes
from router.operator.openapi import openapi_routes
from router.operator.queue_metrics import QueueMetrics
from router.operator.queue_rights import QueueRights
from router.operator.queues import queue_reader
from router.operator.service import Management
from router.operator.statistics import Accounts
from router.operator.status import Numbers
from router.operator.stored_entities import StoredEntities
from router.operator.stuck_notice import StuckNotice
from router.operator.telemetry import telemetry_of
from router.operator.websocket import WebSocketEntrance
from router.operator.worker_front import WorkerFront
from router.process.admission import Gates
from router.process.event_loop_lag import LoopWatch
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from router.settings.worker import Worker
from topology.inspector.api import Inspector
from topology.inspector.asking import StateCaller
from topology.inspector.queues_api import QueuesApi
from topology.inspector.source import Rights
from topology.inspector.topic_names_core import topic_facts

WATCH_S = 2.0
"""Between two looks at the files of TLS: five calls of stat. New ones are in use within twice this time."""


def _front_of(worker: Worker | None, access: Access) -> WorkerFront | None:
    """The first of several workers stands for all of them; None = this one does not."""
    return None if worker is None or worker.number > 1 else WorkerFront(worker, access)


class OperatorSurface:
    """The operator's side of one router process."""

    def __init__(
        self,
        config: RouterConfig,
        version: str,
        lifecycle: Lifecycle,
        listener: ClientListener,
        watch: LoopWatch,
        log: EventLog,
        load: Callable[[], RouterConfig] | None,
        tls: RouterTls,
        gates: Gates,
    ) -> None:
        """Prepare it; nothing listens yet.

        Args:
            config: the settings the process has begun with.
            version: of Oncewire.
            lifecycle: of the process.
            listener: the connections of clients; it gets the node `$management`.
            watch: of the event loop.
            log: where its events go.
            load: reads the settings again; None = there is no file to read.
            tls: of its listeners.
            gates: of its listeners.

        Raises:
            CliError: the setting queue_store cannot be used.
        """
        self._config = config
        self._version = version
        self._log = log
        self._listener = listener
        access = Access(config, log, listener.users, listener.checks)
        self._stated = access.stated
        self._accounts = Accounts(config.node_id, version, listener, watch, log, tls, gates)
        self.inspection = Inspection(lifecycle, listener, config.node_id, version, config.standalone)
        has_queues = bool(config.queue_store)

        def rights(request: web.Request) -> Rights:
            return replace(rights_of(request), queues=has_queues)

        queue_rights = QueueRights(lambda: listener.config, access, log)

        def rights_at_queue(request: web.Request) -> Rights:
            may_view = queue_rights.may_view(caller_of(request), request.match_info.get("queue", ""))
            return replace(rights(request), bodies=may_view)

        self.inspector = Inspector(self.inspection, log.recent, rights, tls.to_http, self._caller_for_others)
        self.controls = RouterControls(lifecycle, config, listener, access, log, load, tls)
        reader = queue_reader(config.queue_store)
        management = Management(config.node_id, self.inspection, self.controls, access, StoredEntities(reader), log)
        self._node = ManagementNode(Answering(management, access, self._other_nodes), access, log)
        listener.node = self._node
        listener.may_serve = lambda client: (
            access.caller_at(client.peer_host, client.user).role >= role_named(listener.config.services_role)
        )
        status = RouterStatus(config.node_id, version, lifecycle, listener, self._accounts, self.controls.group)
        self._queues = QueuesApi(reader, rights_at_queue)
        # One worker reads the store for all.
        self._queue_metrics = QueueMetrics(reader if config.worker is None or config.worker.number == 1 else None)
        websockets = WebSocketEntrance(config, listener, access, log, gates.http)
        self._front = _front_of(config.worker, access)
        routes = (
            *(() if self._front is None else self._front.routes()),  # first: they are parts of what others match, too
            *inspection_routes(self.inspector, self._queues, queue_rights),
            *management_routes(management),
            *websockets.routes(),
            *openapi_routes(version),
        )
        more = self._queue_metrics.text
        self._http = HttpServer(status, access, log, routes, tls.http, gates.http, self._front, more)
        self._is_tls_used = tls.is_used
        self._watching: asyncio.TimerHandle | None = None
        self._stuck: StuckNotice | None = None
        self._answering: asyncio.Future[None] | None = None

    def load_telemetry(self) -> None:
        """Load the exporter of spans, if the settings ask for it.

        Raises:
            CliError: the extra `otel` is not installed.
        """
        self._accounts.telemetry = telemetry_of(self._config, self._version, self._log)

    async def listen(self) -> int | None:
        """Open the HTTP listener; returns its port, None where the settings want none.

        Raises:
            CliError: the address cannot be listened on.
        """
        config, worker = self._config, self._config.worker
        if not config.http_host:
            return None
        if worker is not None:
            await self._http.start_at(worker.http_path(worker.number))
            if worker.number > 1:
                return config.http_port  # the first worker listens there
        return await self._http.start(config.http_host, config.http_port)

    def start(self) -> None:
        """Answer requests of `$management`, export spans, and follow the files of TLS."""
        if self._accounts.telemetry is not None:
            self._accounts.telemetry.start()
        self._answering = asyncio.ensure_future(self._node.run())
        if self._is_tls_used:
            self._watch_files()

    def _watch_files(self) -> None:
        self._watching = asyncio.get_running_loop().call_later(WATCH_S, self._watch_files)
        self.controls.load_changed_certificates()

    async def stop_answering(self) -> None:
        """Answer no request of `$management` any more."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    async def stop(self) -> None:
        """Disconnect whoever watches, stop HTTP, and send the last spans."""
        if self._front is not None:
            await self._front.wait_for_drains(self._listener.config.drain_limit_s + DRAIN_EXTRA_S)
            await self._front.stop()
        if self._watching is not None:
            self._watching.cancel()
        await self.inspector.watchers.stop()
        await self._http.stop()
        await self._queue_metrics.close()
        await self._queues.close()
        if self._accounts.telemetry is not None:
            await self._accounts.telemetry.stop()

    def begin(self, incarnation: Incarnation) -> None:
        """See `IncarnationObserver`."""
        self._accounts.incarnations += 1
        if self._accounts.telemetry is not None:
            incarnation.driver.watch = self._accounts.telemetry.watch(incarnation.records)
        self.controls.begin(incarnation)
        self.inspection.begin(incarnation)
        self._stated.begin(incarnation.records.rid, incarnation.membership.secrets)
        self._stuck = StuckNotice(incarnation.records, self._log)

    def end(self, incarnation: Incarnation) -> None:
        """See `IncarnationObserver`."""
        if self._stuck is not None:
            self._stuck.stop()
        self.controls.begin(None)
        self.inspection.begin(None)
        self._stated.begin(0, None)
        self._accounts.end(incarnation)

    def _caller_for_others(self, request: web.Request) -> StateCaller:
        """States to other routers who sends a request."""
        user = caller_of(request).user
        return lambda other, target: self._stated.headers(user, int(other.rid, 16), target)

    def _other_nodes(self) -> list[str]:
        """Management nodes of the other routers."""
        driver = self._listener.driver
        if driver is None:
            return []
        others = other_routers(driver.records.view, driver.records.rid)
        return [f"{record.amqp}/{ADDRESS}" for record in others]


class RouterStatus:
    """Implements `Status` for the HTTP side of one router process."""

    def __init__(
        self, node_id: str, version: str, lifecycle: Lifecycle, listener: ClientListener, accounts: Accounts, group: str
    ) -> None:
        self._group = group
        self._node_id = node_id
        self._version = version
        self._lifecycle = lifecycle
        self._listener = listener
        self._accounts = accounts

    def waiting_for(self) -> list[str]:
        """See `Status`."""
        return self._lifecycle.waiting_for()

    def draining(self) -> dict[str, object] | None:
        """See `Status`."""
        return self._lifecycle.draining()

    def drain(self) -> None:
        """See `Status`."""
        self._lifecycle.drain()

    def numbers(self) -> Numbers:
        """See `Status`."""
        lifecycle = self._lifecycle
        return self._accounts.numbers(lifecycle.incarnation, is_history_lost=lifecycle.is_history_lost)

    def tables(self) -> dict[str, object]:
        """See `Status`."""
        lifecycle, incarnation = self._lifecycle, self._lifecycle.incarnation
        tables: dict[str, object] = {
            "router": self._node_id,
            "group": self._group,
            "version": self._version,
            "uptime_s": round(time.monotonic() - lifecycle.started_at, 1),
            "incarnations": lifecycle.incarnations,
            "connections": self._listener.connection_count,
            "waiting_for": lifecycle.waiting_for(),
            "draining": lifecycle.draining(),
        }
        if incarnation is not None:
            tables |= _without_separator(incarnation.records.describe())
            tables["neighbours"] = [
                {
                    "id": link.node_id,
                    "cost": link.cost,
                    "waiting_bytes": link.waiting_bytes,
                    "dropped": link.dropped_frames,
                }
                for link in incarnation.neighbours.numbers()
            ]
            tables["links"] = incarnation.neighbours.routing.edges()
            tables["lease_left_s"] = round(incarnation.membership.lease_left(), 1)
        return tables


def _without_separator(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The record core's tables with topics as operators know them."""
    return {
        name: [{**row, **topic_facts(row["topic"])} if "topic" in row else row for row in rows]
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        else rows
        for name, rows in tables.items()
    }
