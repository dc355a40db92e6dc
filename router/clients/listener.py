"""Where AMQP clients connect: one TCP listener, the engines it makes, and the connections that are open.

WebSockets come from the HTTP listener (`router.operator.websocket`): another `Entrance`, and all else is the same.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from delivery_records.model.budget import Budget
from delivery_records.model.limits import FIRST_CREDIT
from oncewire.cli.users import Users
from oncewire.transport.accepting import Listener, port_of
from oncewire.transport.turn import Backlog, Turn
from oncewire.wire import (
    CONNECTION_FORCED,
    EXTERNAL,
    PLAIN,
    UNAUTHORIZED_ACCESS,
    Connection,
    ExternalServer,
    Fields,
    Open,
    PlainServer,
    Role,
    SaslServer,
    ServerMechanism,
    Symbol,
)
from oncewire.wire.scram import SCRAM_HASHES
from oncewire.wire.vocabulary import ANONYMOUS_RELAY, EXACTLY_ONCE, FAILOVER_LIST, SHARED_SUBSCRIPTIONS
from router.authentication.authenticators import Checks
from router.authentication.passwords import Logins
from router.authentication.users import load_users
from router.clients.attach_pace import AttachPace
from router.clients.attach_rate_core import AttachRates
from router.clients.client_quota import ClientQuota, Uses
from router.clients.connection import ClientConnection
from router.clients.excess import ExcessWatch
from router.clients.link_refusal import LinkRefusal
from router.clients.local_node import LocalNode
from router.clients.redirect import choose, other_routers, redirect_info, server_list
from router.clients.session_window import FIRST_WINDOW, SessionWindows, WindowLimits
from router.clients.sole_connection import SOLE_CONNECTION, SoleConnections
from router.process.admission import Gates
from router.process.event_loop_lag import Census
from router.process.listening import listen
from router.process.logs import EventLog, RouterEvent
from router.records_driver import RecordsDriver
from router.routed.links import RoutedLinks, served_prefixes
from router.settings.certificate_users import certificate_of, user_of
from router.settings.config import RouterConfig, anonymous_is_allowed
from router.settings.virtual_hosts import VhostRefused

PRODUCT = "oncewire"
QUEUE_SCHEME = "queue://"
QUEUE_PREFIX = Symbol("queue-prefix")
"""Property of an open: what Qpid JMS writes before the names of queues. Those of topics need nothing before them."""
_REMOVED = "this user has been removed"
_VHOST_REFUSED = "this user may not open this virtual host"
_VHOST_CHANGED = "the virtual hosts have changed; connect again"
_BY_PASSWORD = frozenset({PLAIN, *(scram.mechanism for scram in SCRAM_HASHES)})
MAX_CHANNEL = 4095
"""Each routed link of a service has a session of its own (R-3)."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """By which way clients come in.

    Attributes:
        host: that is listened on; it says whether other machines can come. Empty = they can.
        has_tls: whether what they send is encrypted.
        is_websocket: they do not learn of other routers: nobody knows where a client by WebSocket reaches those.
        on_open: to be called when the client has logged in and opened.
    """

    host: str
    has_tls: bool
    is_websocket: bool = False
    on_open: Callable[[], None] | None = None


def _properties_of(config: RouterConfig, version: str) -> Fields:
    """What every open says of this router (2.7.1)."""
    properties: Fields = {Symbol("product"): PRODUCT, Symbol("version"): version, Symbol("router"): config.node_id}
    if QUEUE_SCHEME in config.services_prefixes:
        properties[QUEUE_PREFIX] = QUEUE_SCHEME
    return properties


class ClientListener:
    """Listens for clients and keeps the registry of their connections."""

    def __init__(
        self,
        config: RouterConfig,
        log: EventLog,
        turn: Turn,
        version: str,
        tls: ssl.SSLContext | None = None,
        checks: Checks | None = None,
        gates: Gates | None = None,
    ) -> None:
        self.config = config
        self.current_config: Callable[[], RouterConfig] = lambda: self.config
        """One function for all connections."""
        self._window_limits = WindowLimits(config.window_bytes, config.max_frame_size, config.kept_message_size)
        self.log = log
        self.turn = turn
        self.unfinished = Backlog(turn)
        """Connections whose last read is not carried out yet."""
        self.driver: RecordsDriver | None = None
        """The incarnation that serves new connections; None = clients are sent elsewhere (A-1)."""
        self._bytes_in = self._bytes_out = 0  # of connections that are closed
        self.accepted = 0
        self.refused_links = 0
        self.attach_rates = AttachRates()
        self.uses = Uses()
        self.sole = SoleConnections()
        self.node: LocalNode | None = None
        """Serves `$management`; the router process sets it before it listens."""
        self.routed: RoutedLinks | None = None
        """Links to services, of the incarnation that serves (R-1)."""
        self.may_serve: Callable[[ClientConnection], bool] = lambda _connection: False
        """Whether a client may serve addresses; the router process sets it before it listens."""
        self.is_draining = False
        """No client is taken any more, and who has no links is sent elsewhere (K-8a)."""
        self._connections: set[ClientConnection] = set()
        self._open: set[ClientConnection] = set()
        """Those that have logged in and opened: only these count against max_connections."""
        self._on_open: dict[ClientConnection, Callable[[], None]] = {}
        """Who wants to know of those that have not opened yet."""
        gates = gates or Gates(config, log)
        self._gate, self._shares = gates.clients, gates.shares
        # Beside those that are open: some that were sent away are not gone yet.
        self._gate.is_full = lambda: len(self._connections) >= self._most_open + self._shares.opening
        self.excess = ExcessWatch(self.connections, self.current_config)
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._server: Listener | None = None
        self._tls = tls
        self._properties = _properties_of(config, version)
        self.users = load_users(config)
        self.has_logins = self.users.is_set or config.has_strangers
        """Whether anybody can log in as a user."""
        self.checks = checks
        """Knows who else may log in; None = the users are all there is."""
        self._logins = Logins(self.users, self._on_guess)

    @property
    def is_listening(self) -> bool:
        """Whether connections are taken."""
        return self._server is not None

    @property
    def _most_open(self) -> int:
        return min(self.config.max_connections, self._shares.clients)

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    @property
    def bytes_in(self) -> int:
        """Bytes read from clients since the process started."""
        return self._bytes_in + sum(connection.bytes_in for connection in self._connections)

    @property
    def bytes_out(self) -> int:
        """Bytes written to clients since the process started."""
        return self._bytes_out + sum(connection.bytes_out for connection in self._connections)

    def connections(self) -> list[ClientConnection]:
        """All of them, for people."""
        return list(self._connections)

    async def listen(self) -> int:
        """Open the listener; returns the port.

        Raises:
            CliError: the address cannot be listened on.
        """
        config = self.config
        entrance = Entrance(config.listen_host, config.listen_tls)
        self._server = await listen(
            lambda: self.make(entrance),
            config.listen_host,
            config.listen_port,
            "--listen-port",
            self._tls,
            self._gate,
            is_shared=config.worker is not None,
        )
        return port_of(self._server)

    def use(self, config: RouterConfig, users: Users | None = None) -> None:
        """Serve with these settings; addresses and frame sizes are as they were.

        Args:
            config: the settings.
            users: who may log in from now on; None = as before. Connections of users who are gone are closed.
        """
        before = self.config
        has_new_rules = (config.access_rules, config.groups) != (before.access_rules, before.groups)
        has_new_vhosts = (config.vhosts, config.groups) != (before.vhosts, before.groups)
        self.config = config
        if users is not None:
            self.users = self._logins.users = users
        self.has_logins = self.users.is_set or config.has_strangers
        if users is not None:
            for connection in list(self._connections):
                if self._is_removed(connection):
                    connection.close(UNAUTHORIZED_ACCESS, _REMOVED)
        for connection in list(self._open) if has_new_vhosts else ():
            try:
                connection.policy.look_again()
            except VhostRefused as refused:
                self._log_vhost(connection, refused)
                connection.close(UNAUTHORIZED_ACCESS, _VHOST_CHANGED)
        for connection in list(self._connections) if has_new_rules else ():
            connection.end_what_is_not_allowed()

    def _log_vhost(self, connection: ClientConnection, refused: VhostRefused) -> None:
        self.log.event(
            RouterEvent.CLIENT_REFUSED,
            container_id=connection.container_id,
            peer=connection.peer,
            user=connection.user or "",
            condition=str(UNAUTHORIZED_ACCESS),
            why=str(refused),
        )

    def _is_removed(self, connection: ClientConnection) -> bool:
        """Users of certificates, tokens and authenticators are on no list."""
        is_listed = self.checks is None or connection.policy.mechanism not in self.checks.mechanisms
        return is_listed and connection.policy.mechanism in _BY_PASSWORD and connection.user not in self.users.names

    def stop_listening(self) -> None:
        """Take no more connections; open ones go on (K-8)."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def lets_anybody_in(self, entrance: Entrance) -> bool:
        """Whether somebody could log in: a user, or everybody."""
        return self.has_logins or anonymous_is_allowed(self.config.allow_anonymous, entrance.host)

    def make(self, entrance: Entrance) -> ClientConnection:
        """The protocol of a new connection."""
        connection: ClientConnection
        has_anonymous = anonymous_is_allowed(self.config.allow_anonymous, entrance.host)
        makers = self._mechanisms(entrance, lambda: connection)
        names = [*makers, *(["ANONYMOUS"] if has_anonymous else [])]
        if not names:  # 5.3.3.1: there must be one; who has shown a certificate gets another of this name
            names, makers = [EXTERNAL], {EXTERNAL: lambda: ExternalServer(None)}
        sasl = SaslServer(names, allow_no_sasl=has_anonymous, extra=makers)
        properties = self._properties
        if self.driver is not None and not entrance.is_websocket:
            others = other_routers(self.driver.records.view, self.driver.records.rid)
            if others:
                properties = {**properties, FAILOVER_LIST: server_list(others, self.accepted)}
        engine = Connection(
            Role.SERVER,
            container_id=self.config.node_id,
            max_frame_size=self.config.max_frame_size,
            idle_time_out_ms=int(self.config.idle_timeout_s * 1000),
            incoming_window=FIRST_WINDOW,
            channel_max=MAX_CHANNEL,
            offered_capabilities=(ANONYMOUS_RELAY, SHARED_SUBSCRIPTIONS, SOLE_CONNECTION, EXACTLY_ONCE),
            properties=properties,
            sasl=sasl,
            now=time.monotonic(),
        )
        connection = ClientConnection(self, engine, self.driver, sasl, is_redirected=not entrance.is_websocket)
        engine.before_open = partial(self._before_open, connection)
        if entrance.on_open is not None:
            self._on_open[connection] = entrance.on_open
        return connection

    def _before_open(self, connection: ClientConnection, remote: Open, own: Open) -> None:
        self.sole.before_open(connection, remote, own)
        connection.windows.resumes = EXACTLY_ONCE in remote.desired_capabilities
        if self.driver is not None:  # sessions may be pipelined behind the open
            connection.engine.session_window = connection.windows.first(self.driver.records.budget)

    def _mechanisms(
        self, entrance: Entrance, caller: Callable[[], ClientConnection]
    ) -> dict[str, Callable[[], ServerMechanism]]:
        """What everybody is offered, with or without a certificate."""
        makers = self._logins.scram_for(caller)
        config, checks = self.config, self.checks
        if not (entrance.has_tls or anonymous_is_allowed(config.allow_plain, entrance.host)):
            return makers
        if checks is not None:
            makers |= {name: partial(checks.mechanism, name, caller) for name in checks.mechanisms}
        if self.users.is_set:
            makers[PLAIN] = lambda: PlainServer(self._logins.verify_for(caller))
        return makers

    def _on_guess(self, user: str, host: str, failures: int) -> None:
        self.log.event(RouterEvent.LOGIN_FAILED, user=user, peer=host, failures=failures)

    def attach_pace(self, connection: ClientConnection) -> AttachPace:
        """How often a connection may attach."""
        return AttachPace(connection, self.attach_rates)

    def quota(self, connection: ClientConnection, windows: SessionWindows) -> ClientQuota:
        """How much the user of a connection may use."""
        return ClientQuota(connection, self.uses, windows, self.current_config)

    def warn_of_small_windows(self) -> None:
        """Say so where stock clients may lose what they send just before a close (C-6)."""
        frames = self.window_limits().first_frames(Budget(self.config.router_bytes))
        if frames < FIRST_CREDIT:
            fix = "raise limits.window_bytes to 256 KiB, and limits.router_bytes to 2 MiB"
            self.log.event(RouterEvent.WINDOWS_SMALL, frames=frames, wanted=FIRST_CREDIT, fix=fix)

    def window_limits(self) -> WindowLimits:
        """What bounds the bytes of a client's session (C-6)."""
        config = self.config
        limits = WindowLimits(config.window_bytes, config.max_frame_size, config.kept_message_size)
        if limits != self._window_limits:
            self._window_limits = limits
        return self._window_limits  # one for all connections

    def count(self) -> Census:
        """Connections and links, for whoever collects what they leave behind."""
        driver = self.driver
        links, present = (0, 0) if driver is None else (driver.links_added - len(driver.links), len(driver.links))
        return Census(self.accepted - len(self._connections) + links, len(self._connections) + present)

    def on_room(self) -> None:
        """The router's budget has room again: windows that were closed for it are looked at (C-6)."""
        for connection in self._connections:
            connection.mark_dirty()

    # --- for the connections ------------------------------------------------------------------------------------------

    def add(self, connection: ClientConnection) -> None:
        """A client has connected."""
        if not connection.is_served_by(self.driver):  # a TLS handshake may take longer than an incarnation
            connection.abort()
        certificate = certificate_of(connection.tls) if self.config.external_rules else None
        if certificate is not None:
            user = user_of(self.config.external_rules, certificate)
            assert connection.sasl is not None, "nothing was read yet"
            connection.sasl.offer_first(EXTERNAL, lambda: ExternalServer(user))
        self.accepted += 1
        self._connections.add(connection)
        self.excess.start()
        self._is_empty.clear()

    def remove(self, connection: ClientConnection) -> None:
        """A client's transport is gone."""
        connection.quota.leave()
        self.sole.leave(connection)
        connection.engine.before_open = None
        self._open.discard(connection)
        self._on_open.pop(connection, None)
        if connection in self._connections:
            self._connections.remove(connection)
            self._bytes_in += connection.bytes_in
            self._bytes_out += connection.bytes_out
        if not self._connections:
            self._is_empty.set()

    def refusal(
        self, connection: ClientConnection, hostname: str
    ) -> tuple[str, str] | tuple[str, str, dict[str, object]] | None:
        """Condition, text and info where this client may not stay; None = it may, and is registered if it serves."""
        if self.driver is None or not connection.is_served:
            return CONNECTION_FORCED, "this router has no valid lease in etcd just now; connect to another router"
        if self._is_removed(connection):  # while its login was under way
            return CONNECTION_FORCED, _REMOVED
        try:
            connection.policy.enter(hostname)
        except VhostRefused as refused:
            self._log_vhost(connection, refused)
            return UNAUTHORIZED_ACCESS, _VHOST_REFUSED
        if len(self._open) >= self._most_open:
            return CONNECTION_FORCED, f"this router has {self._most_open} connections; connect to another router"
        try:
            connection.quota.open()
        except LinkRefusal as refusal:
            self.count_refusal(connection, "", refusal)
            return refusal.condition, refusal.description
        refusal_to_stay = self.sole.enter(connection) or self._refusal_to_serve(connection)
        if refusal_to_stay is not None:
            return refusal_to_stay
        self._open.add(connection)
        self._gate.know(connection)
        on_open = self._on_open.pop(connection, None)
        if on_open is not None:
            on_open()
        return None

    def _refusal_to_serve(self, connection: ClientConnection) -> tuple[str, str] | None:
        """R-1: register a service; why it may not be one. A client that is none is welcome."""
        opened, routed = connection.engine.remote_open, self.routed
        prefixes = None if opened is None else served_prefixes(opened)
        if prefixes is None or routed is None:
            return None
        refusal = routed.refusal(prefixes, may_serve=self.may_serve(connection))
        if refusal is not None:
            return refusal.condition, str(refusal)
        routed.add_service(connection, prefixes, connection.policy.vhost)
        return None

    def redirect(self, container_id: str) -> dict[str, object] | None:
        """The info of a redirect for this client (K-8a); None = there is no other router to send it to."""
        if self.driver is None:
            return None
        others = other_routers(self.driver.records.view, self.driver.records.rid)
        target = choose(others, container_id)
        if target is None:
            return None
        return {**redirect_info(target), str(FAILOVER_LIST): server_list(others, self.accepted)}

    def count_refusal(self, connection: ClientConnection, link_name: str, refusal: LinkRefusal) -> None:
        """An attach was refused before the record core heard of it."""
        self.refused_links += 1
        self.log.event(
            RouterEvent.CLIENT_REFUSED,
            container_id=connection.container_id,
            peer=connection.peer,
            link_name=link_name,
            condition=refusal.condition,
            why=str(refusal),
        )

    def close_revoked(self, is_revoked: Callable[[bytes | None], bool]) -> None:
        """Close the connections of clients whose certificate is revoked by now."""
        for connection in list(self._connections):
            if is_revoked(connection.peer_certificate):
                self.log.event(RouterEvent.TLS_REVOKED, container_id=connection.container_id, peer=connection.peer)
                connection.close("amqp:unauthorized-access", "the certificate of this connection is revoked")

    # --- ends of an incarnation ---------------------------------------------------------------------------------------

    def start_draining(self) -> list[list[int]]:
        """Take no more clients and send away those without links; returns the links of each of the others (K-8a)."""
        self.stop_listening()
        self.is_draining = True
        for connection in list(self._connections):
            connection.leave_if_unused()
        return [found for connection in self._connections if (found := connection.link_numbers)]

    def end_incarnation(self, why: str) -> None:
        """Send all clients away and let nothing they still send count (K-3, K-8)."""
        self.driver = None
        for connection in list(self._connections):
            with connection.confined("the end of {}'s service"):  # K-3b: all others must be sent away, too
                connection.stop_serving()
                connection.close("amqp:connection:forced", why)
        self.routed = None

    async def wait_empty(self) -> None:
        """Wait until the last connection is gone."""
        await self._is_empty.wait()

    def abort_all(self) -> None:
        """Drop every transport that is still open."""
        for connection in list(self._connections):
            connection.abort()
