"""The router process: listeners once, incarnations one after the other, an orderly end (K-1, K-3, K-8)."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
from collections.abc import Callable

from delivery_records.attachments.view import RouterRecord
from oncewire.cli.errors import CliError
from router.clients.listener import ClientListener
from router.clients.redirect import other_routers
from router.config import RouterConfig
from router.event_loop_lag import LoopWatch
from router.incarnation import End, Incarnation
from router.logs import EventLog, RouterEvent
from router.operator.access import Access
from router.operator.amqp_node import ADDRESS, ManagementNode
from router.operator.amqp_requests import Answering
from router.operator.controls import RouterControls
from router.operator.http import HttpServer
from router.operator.inspection import Inspection
from router.operator.inspection_routes import inspection_routes, rights_of
from router.operator.management_routes import management_routes
from router.operator.service import Management
from router.operator.statistics import Accounts
from router.operator.status import Numbers
from router.operator.telemetry import telemetry_of
from router.peers.link_costs import LinkCosts
from router.peers.listener import PeerListener
from router.store_setup import store_factory
from router.turn import Turn
from topology.inspector.api import Inspector
from topology.membership import Membership, SeenHistory
from topology.store import Store, StoreError, StoreReplaced, StoreTimeout, StoreUnavailable, StoreUntrusted
from topology.wrong_scheme import wrongly_written

READY_CHECK_S = 0.01
RETRY_S = 0.5
"""Before the second attempt to begin an incarnation while etcd cannot be reached; doubled up to LONGEST_RETRY_S."""
LONGEST_RETRY_S = 4.0
"""What an outage of etcd costs more than it lasts; some hundred routers that ask so often are no load."""
JITTER = 0.25
"""Share of a pause that is random: routers that lost etcd together do not ask it together."""


class RouterNode:
    """One router process."""

    def __init__(
        self, config: RouterConfig, version: str, log: EventLog | None = None,
        load: Callable[[], RouterConfig] | None = None,
    ) -> None:  # fmt: skip
        """Prepare a router; `run` starts it.

        Args:
            config: its settings.
            version: of Oncewire.
            log: where its events go; None = a log of its own.
            load: reads the settings again; None = there is no file to read.
        """
        self._config = config
        self._version = version
        self._log = log or EventLog(config.node_id)
        self._turn = Turn()
        # The last heartbeat before a stall may be one period old.
        self._watch = LoopWatch(self._log, config.inter_router_silence_s - config.inter_router_heartbeat_s)
        self._listener = ClientListener(config, self._log, self._turn, version)
        self._peers = PeerListener(config)
        self._access = Access(config, self._log)
        self._inspection = Inspection(self, self._listener, config.node_id, version, config.standalone)
        self._inspector = Inspector(self._inspection, self._log.recent, rights_of)
        self.controls = RouterControls(self, config, self._listener, self._access, self._log, load)
        management = Management(config.node_id, self._inspection, self.controls, self._access, self._log)
        self._management = self._listener.node = ManagementNode(
            Answering(management, self._access, self._other_nodes), self._access, self._log
        )
        routes = (*inspection_routes(self._inspector), *management_routes(management))
        self._http = HttpServer(self, self._access, self._log, routes)
        self._costs = LinkCosts()
        self._incarnation: Incarnation | None = None
        self._accounts = Accounts(config.node_id, version, self._listener, self._watch, self._log)
        self._stop_wanted = asyncio.Event()
        self._drains_until: float | None = None
        """K-8a: when everybody is sent away, on the monotonic clock; None = it does not drain."""
        self._is_store_away = False
        self._seen = SeenHistory()
        self._started_at = time.monotonic()
        self.amqp_url = ""
        """Where clients connect; known once it listens, as is `http_url`."""
        self.http_url = ""

    async def run(self) -> None:
        """Serve until `stop` is called.

        Raises:
            CliError: an address cannot be listened on, or there is no etcd for this router.
        """
        open_store = store_factory(self._config)
        # After the store: etcd3 cannot use a protobuf that others have loaded in their way.
        telemetry = self._accounts.telemetry = telemetry_of(self._config, self._version, self._log)
        try:
            record = await self._listen()
            self._watch.start()
            if telemetry is not None:
                telemetry.start()
            self._log.event(
                RouterEvent.ROUTER_STARTED, version=self._version, amqp=record.amqp, http=record.http
            )
            answering = asyncio.ensure_future(self._management.run())
            try:
                await self._live(open_store, record)
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
        finally:
            self._stop_listening()
            self._listener.abort_all()
            await self._inspector.watchers.stop()
            await self._http.stop()
            if telemetry is not None:
                await telemetry.stop()
            self._watch.stop()
            self._log.event(RouterEvent.ROUTER_STOPPED)

    def drain(self) -> None:
        """K-8a: let the clients move, then stop; called again, stop at once (K-8)."""
        incarnation = self._incarnation
        if self._drains_until is not None or incarnation is None or not incarnation.is_serving:
            self.stop()
            return
        self._drains_until = time.monotonic() + self._config.drain_limit_s
        self._log.event(RouterEvent.ROUTER_DRAINING, limit_s=self._config.drain_limit_s)
        self._stop_wanted.set()
        self._listener.stop_listening()
        incarnation.drain()

    def use_config(self, config: RouterConfig) -> None:
        """Go on with these settings; see `RouterControls`."""
        self._config = config
        if self._incarnation is not None:
            self._incarnation.use(config)

    def _other_nodes(self) -> list[str]:
        """Management nodes of the other routers."""
        driver = self._listener.driver
        if driver is None:
            return []
        others = other_routers(driver.records.view, driver.records.rid)
        return [f"{record.amqp}/{ADDRESS}" for record in others]

    def stop(self) -> None:
        """K-8: stop in good order."""
        self._stop_wanted.set()
        self._stop_listening()
        if self._incarnation is not None:
            self._incarnation.end(End.STOPPED)

    def _stop_listening(self) -> None:
        self._listener.stop_listening()
        self._peers.stop_listening()

    async def wait_ready(self) -> None:
        """Wait until clients are welcome."""
        while True:
            if not self.waiting_for():
                return
            await asyncio.sleep(READY_CHECK_S)

    async def _listen(self) -> RouterRecord:
        config = self._config
        amqp_port = await self._listener.listen()
        inter_router = ""
        if not config.standalone and config.inter_router_host:
            port = await self._peers.listen()
            inter_router = config.inter_router_advertise or f"{_reachable(config.inter_router_host)}:{port}"
        if config.http_host:
            http_port = await self._http.start(config.http_host, config.http_port)
            self.http_url = f"http://{_reachable(config.http_host)}:{http_port}"
        self.amqp_url = "amqp://" + (
            config.listen_advertise or f"{_reachable(config.listen_host)}:{amqp_port}"
        )
        return RouterRecord(
            node_id=config.node_id,
            rid=0,
            inter_router=inter_router,
            amqp=self.amqp_url,
            http=self.http_url,
            version=self._version,
        )

    async def _live(self, open_store: Callable[[], Store], record: RouterRecord) -> None:
        """One incarnation after the other."""
        pause_s = RETRY_S
        while not self._stop_wanted.is_set():
            try:
                membership = await Membership.join(
                    open_store, record, self._config.lease_ttl_s, self._seen
                )
            except StoreError as error:
                await self._note_no_store(error)
                await self._pause(pause_s * random.uniform(1 - JITTER, 1))
                pause_s = min(2 * pause_s, LONGEST_RETRY_S)
                continue
            pause_s = RETRY_S
            if self._is_store_away:
                self._is_store_away = False
                self._log.event(RouterEvent.STORE_BACK)
            await self._live_once(membership)

    async def _note_no_store(self, error: StoreError) -> None:
        """An incarnation could not begin.

        Raises:
            CliError: this is the first one, and it is in vain or too long to wait.
        """
        config = self._config
        if not self._accounts.incarnations:
            if isinstance(error, StoreUntrusted) or not isinstance(error, StoreUnavailable | StoreTimeout):
                fix = _AFTER_RESTORE if isinstance(error, StoreReplaced) else _CHECK_SETTINGS
                raise _no_etcd(config, str(error), fix) from None
            wrong = await wrongly_written(config.etcd_endpoints)
            if wrong is not None:
                raise _no_etcd(config, f"{wrong} answers, but not to {wrong.partition(':')[0]}", _CHECK_SCHEME)
            if time.monotonic() - self._started_at >= config.etcd_start_patience_s:
                raise _no_etcd(config, str(error), _START_ETCD) from None
        if self._is_store_away:
            return
        self._is_store_away = True
        if self._accounts.incarnations:
            self._log.event(RouterEvent.STORE_FAILED, doing="begin an incarnation", why=str(error))
            return
        self._log.event(
            RouterEvent.STORE_AWAITED,
            etcd=",".join(config.etcd_endpoints),
            why=str(error),
            patience_s=config.etcd_start_patience_s,
        )

    async def _live_once(self, membership: Membership) -> None:
        self._accounts.incarnations += 1
        incarnation = Incarnation(self._config, membership, self._listener, self._turn, self._log, self._costs)
        self._incarnation = incarnation
        if self._accounts.telemetry is not None:
            incarnation.driver.watch = self._accounts.telemetry.watch(incarnation.records)
        self.controls.begin(incarnation)
        self._inspection.begin(incarnation)
        self._peers.neighbours = incarnation.neighbours
        if self._stop_wanted.is_set():
            incarnation.end(End.STOPPED)
        self._log.incarnation = f"{membership.rid:x}"
        self._log.event(RouterEvent.INCARNATION_STARTED, rid=f"{membership.rid:x}")
        why = await incarnation.run()
        self._peers.neighbours = None
        self._incarnation = None
        self.controls.begin(None)
        self._inspection.begin(None)
        self._accounts.end(incarnation)
        self._log.event(
            RouterEvent.INCARNATION_ENDED,
            rid=f"{membership.rid:x}",
            why=why.value,
            reason=incarnation.fence_reason,
        )
        self._log.incarnation = ""
        del incarnation
        gc.collect()  # a core is full of cycles, and the automatic collector is off (lag.py)
        if why is End.FAULT:
            await self._pause(RETRY_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop_wanted.wait()
        except TimeoutError:
            pass

    # --- what HTTP asks -----------------------------------------------------------------------------------------------

    def waiting_for(self) -> list[str]:
        """See `Status`."""
        if self._drains_until is not None:
            return ["its end: it drains, and takes no clients"]
        if self._incarnation is None:
            return ["etcd, which cannot be reached" if self._is_store_away else "a lease in etcd"]
        return self._incarnation.waiting_for()

    def numbers(self) -> Numbers:
        """See `Status`."""
        return self._accounts.numbers(self._incarnation)

    def draining(self) -> dict[str, object] | None:
        """See `Status`."""
        if self._drains_until is None:
            return None
        left = max(0.0, self._drains_until - time.monotonic())
        return {"limit_s": self._config.drain_limit_s, "left_s": round(left, 1)}

    def tables(self) -> dict[str, object]:
        """See `Status`."""
        incarnation = self._incarnation
        tables: dict[str, object] = {
            "router": self._config.node_id,
            "version": self._version,
            "uptime_s": round(time.monotonic() - self._started_at, 1),
            "incarnations": self._accounts.incarnations,
            "connections": self._listener.connection_count,
            "waiting_for": self.waiting_for(),
            "draining": self.draining(),
        }
        if incarnation is not None:
            tables |= incarnation.records.describe()
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


def _reachable(host: str) -> str:
    """The host others use for a listener on `host`."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


_START_ETCD = (
    "start etcd, give --etcd-endpoints the URLs of one that runs, or run one router alone with --standalone; "
    "--etcd-start-patience-s says how long to wait for etcd"
)
_AFTER_RESTORE = "do that: docs/operations.md has the steps"
_CHECK_SCHEME = "write it in --etcd-endpoints with the other one of http and https"
_CHECK_SETTINGS = "check the settings etcd.*: endpoints, user, password, ca_file, cert_file, key_file"


def _no_etcd(config: RouterConfig, why: str, fix: str) -> CliError:
    return CliError(f"the router cannot work with etcd at {', '.join(config.etcd_endpoints)}", why, fix)
