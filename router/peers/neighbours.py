"""All links to other routers of one incarnation: who is linked, which frame goes where, what arrives for whom.

Frames of this router are split by next hop (T-2); frames of others are passed on undecoded. Which next hop leads where
is the business of `routing.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_bytes

from delivery_records.channels import codec as channel_codec
from delivery_records.channels import frame_header
from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.channels.frame_header import Header, Target
from delivery_records.model.effects import SendDatagram, SendToRouters
from delivery_records.model.inputs import Input, PathsChanged, RouterDatagram, RouterFrame
from delivery_records.model.messages import Hello
from oncewire.cli.users import Users
from oncewire.transport.turn import Backlog, Turn
from oncewire.wire import (
    AmqpError,
    Connection,
    Open,
    ReceiverLink,
    Role,
    SaslClient,
    SaslServer,
    SenderLink,
    StateError,
    Symbol,
)
from oncewire.wire.scram import SaltedPasswords, password_mechanisms
from oncewire.wire.vocabulary import INTER_ROUTER, ROUTED_LINKS
from router.authentication.passwords import Logins, nonce
from router.peers.connection import NeighbourConnection
from router.peers.handshake import NeighbourIdentity, identify, open_properties
from router.peers.inbox import Inbox
from router.peers.link_costs import LinkCosts
from router.peers.output import FRAME, LINK_STATE, BatchError, QueuedFrame, read_batch
from router.peers.proof import CHALLENGE_BYTES, Handshake, Verdict
from router.peers.routing import Routing
from router.process.logs import EventLog, RouterEvent
from router.records_driver import RecordsDriver
from router.routed.links import RoutedLinks, RoutedRefusal
from router.settings.config import RouterConfig, anonymous_is_allowed
from topology.links.linkstate_codec import LinkStateError
from topology.members.membership import Membership

MAX_CHANNEL = 8191
"""Each routed link has a session of its own on the link to the next router (R-3)."""
ROUTER_USER = "router"
"""User name between routers; the password alone decides."""


@dataclass(frozen=True, slots=True)
class NeighbourNumbers:
    """Counters of the link to one neighbour."""

    node_id: str
    cost: int
    bytes_in: int
    bytes_out: int
    waiting_bytes: int
    dropped_frames: int


class Neighbours:
    """The inter-router side of one incarnation."""

    def __init__(
        self,
        config: RouterConfig,
        membership: Membership,
        driver: RecordsDriver,
        turn: Turn,
        log: EventLog,
        costs: LinkCosts,
    ) -> None:
        self.rid = rid = membership.rid
        self.turn = turn
        self.links: dict[int, NeighbourConnection] = {}
        """Links that are up, by the neighbour's incarnation."""
        self.silence_s = config.inter_router_silence_s
        """A neighbour that said nothing for so long is given up."""
        self.routing = Routing(
            rid,
            config.node_id,
            self._flood,
            self._give_up,
            heartbeat_s=config.inter_router_heartbeat_s,
            silence_s=self.silence_s,
        )
        self._costs = costs
        self._config = config
        password = config.inter_router_password
        self._logins = Logins(Users({ROUTER_USER: password} if password else {}), self._on_guess)
        self._salted: SaltedPasswords = {}
        self._nonce = membership.nonce
        self._secrets = membership.secrets
        self._driver = driver
        self.log = log
        self._connections: set[NeighbourConnection] = set()
        self._inputs: list[Input] = []
        self._inbox = Inbox(driver, Backlog(turn))
        self._is_stopped = False
        self._routers_seen: set[int] = set()
        self.routed: RoutedLinks | None = None
        """The routed links of the incarnation; set before there are links to neighbours."""
        driver.register(SendToRouters, self.send)
        driver.register(SendDatagram, self.send_datagram)

    # --- connections --------------------------------------------------------------------------------------------------

    def incoming(self, host: str) -> NeighbourConnection:
        """The protocol of a connection another router opened to where this one listens: `host`."""
        anonymous = anonymous_is_allowed(self._config.inter_router_allow_anonymous, host)
        connection: NeighbourConnection
        scram = self._logins.scram_for(lambda: connection)
        has_plain = bool(scram) and self._may_send_plain(host)
        sasl = SaslServer(
            [*scram, *(["PLAIN"] if has_plain else []), *(["ANONYMOUS"] if anonymous and not scram else [])],
            self._logins.verify_for(lambda: connection) if has_plain else None,
            extra=scram,
        )
        challenge = token_bytes(CHALLENGE_BYTES)
        connection = NeighbourConnection(self, self._engine(Role.SERVER, sasl, 1, challenge), False, 1, challenge)
        return connection

    def outgoing(self, cost: int, host: str = "") -> NeighbourConnection:
        """The protocol of a connection this router opens to `host`."""
        password = self._config.inter_router_password
        sasl = SaslClient("ANONYMOUS")
        if password:
            with_plain = self._may_send_plain(host)
            sasl = SaslClient(password_mechanisms(ROUTER_USER, password, nonce, self._salted, with_plain))
        challenge = token_bytes(CHALLENGE_BYTES)
        return NeighbourConnection(self, self._engine(Role.CLIENT, sasl, cost, challenge), True, cost, challenge)

    def _may_send_plain(self, host: str) -> bool:
        config = self._config
        return config.inter_router_tls or anonymous_is_allowed(config.inter_router_allow_plain, host)

    def _on_guess(self, user: str, host: str, failures: int) -> None:
        self.log.event(RouterEvent.LOGIN_FAILED, user=user, peer=host, failures=failures, listener="inter_router")

    def _engine(self, role: Role, sasl: SaslClient | SaslServer, cost: int, challenge: bytes) -> Connection:
        return Connection(
            role,
            container_id=self._config.node_id,
            max_frame_size=self._config.max_frame_size,
            # Half of this is announced (2.4.5): our silence. So the neighbour sends twice as often, whatever its
            # own settings are, and routing gives it up before the engine would.
            idle_time_out_ms=round(2000 * self.silence_s),
            offered_capabilities=[INTER_ROUTER, ROUTED_LINKS],
            channel_max=MAX_CHANNEL,
            desired_capabilities=[INTER_ROUTER],
            properties=open_properties(self.rid, self._nonce, cost, challenge),
            sasl=sasl,
            now=time.monotonic(),
        )

    def add_connection(self, connection: NeighbourConnection) -> None:
        """A transport is there."""
        self._connections.add(connection)
        if self._is_stopped:
            connection.abort()

    def remove_connection(self, connection: NeighbourConnection) -> None:
        """A transport is gone."""
        self._connections.discard(connection)

    def check(self, open_frame: Open) -> NeighbourIdentity | str:
        """Who the neighbour is, or why it cannot be one (HELLO)."""
        return identify(open_frame, self.rid, self._nonce)

    def prove(self, identity: NeighbourIdentity, challenge: bytes) -> bytes:
        """What shows this neighbour, on a connection with this challenge of ours, who we are (K-1b)."""
        return self._handshake(identity, challenge).prove(self._secrets)

    def judge(self, identity: NeighbourIdentity, challenge: bytes, shown: object) -> Verdict:
        """Whether the neighbour is the incarnation that it names (K-1b)."""
        return self._handshake(identity, challenge).judge(self._secrets, shown)

    def _handshake(self, identity: NeighbourIdentity, challenge: bytes) -> Handshake:
        return Handshake(self.rid, challenge, identity.rid, identity.challenge)

    def on_up(self, connection: NeighbourConnection) -> None:
        """A link is up. Of two links to one neighbour that of the smaller incarnation's dialing stays."""
        identity = connection.identity
        assert identity is not None
        existing = self.links.get(identity.rid)
        if existing is not None:
            if self._is_preferred(existing) and not self._is_preferred(connection):
                connection.close("amqp:not-allowed", "there is a link already")
                return
            self.links[identity.rid] = connection
            existing.close("amqp:not-allowed", "there is a newer link")
        self.links[identity.rid] = connection
        connection.cost = self._costs.get(identity.node_id, connection.agreed_cost)
        self.log.event(
            RouterEvent.NEIGHBOUR_UP, neighbour=identity.node_id, rid=f"{identity.rid:x}", cost=connection.cost
        )
        self.routing.neighbour_up(identity.rid, connection.cost)
        self._update_paths()
        if existing is not None:
            self._notify_lost_frames({identity.rid})

    def set_cost(self, rid: int, cost: int | None) -> bool:
        """Change what this router's direction to a neighbour costs; the link stays up. False if there is none."""
        link = self.links.get(rid)
        if link is None or link.identity is None:
            return False
        self._costs.set(link.identity.node_id, cost)
        link.cost = self._costs.get(link.identity.node_id, link.agreed_cost)
        self.log.event(RouterEvent.COST_CHANGED, neighbour=link.identity.node_id, rid=f"{rid:x}", cost=link.cost)
        self.routing.neighbour_up(rid, link.cost)
        self._update_paths()
        return True

    def _is_preferred(self, connection: NeighbourConnection) -> bool:
        assert connection.identity is not None
        return connection.is_dialer == (self.rid < connection.identity.rid)

    def on_down(self, connection: NeighbourConnection) -> None:
        """A link is gone."""
        identity = connection.identity
        if identity is None or self.links.get(identity.rid) is not connection:
            return
        del self.links[identity.rid]
        if self._is_stopped:
            return
        self.log.event(
            RouterEvent.NEIGHBOUR_DOWN, neighbour=identity.node_id, rid=f"{identity.rid:x}", why=connection.refusal
        )
        self.routing.neighbour_down(identity.rid)
        self._update_paths()

    def close_revoked(self, is_revoked: Callable[[bytes | None], bool]) -> None:
        """Drop the links to neighbours whose certificate is revoked by now."""
        for connection in list(self._connections):
            if is_revoked(connection.peer_certificate):
                name = connection.identity.node_id if connection.identity is not None else ""
                self.log.event(RouterEvent.TLS_REVOKED, neighbour=name)
                connection.refusal = connection.refusal or "its certificate is revoked"
                connection.abort()

    def stop(self) -> None:
        """The incarnation is over: drop every link (K-3)."""
        self._is_stopped = True
        self._inbox.clear()
        self.routing.stop()
        for connection in list(self._connections):
            connection.abort()

    # --- best paths ---------------------------------------------------------------------------------------------------

    def _flood(self, to: Sequence[int], data: bytes) -> None:
        for rid in to:
            link = self.links.get(rid)
            if link is not None:
                link.send_urgent(LINK_STATE, data)

    def _give_up(self, rid: int) -> None:
        link = self.links.get(rid)
        if link is not None:
            link.refusal = "it was silent for too long"
            link.abort()
        self._update_paths()

    def on_view(self, routers: Collection[int]) -> None:
        """The routers in etcd have changed: incarnations that are gone link nothing any more."""
        for rid in self._routers_seen - set(routers):
            self.routing.router_gone(rid)
        self._routers_seen = set(routers)
        for connection in list(self._connections):
            connection.check_proof()
        self._update_paths()

    def _update_paths(self) -> None:
        changed = self.routing.update()
        if changed is not None and not self._is_stopped:
            self.log.event(RouterEvent.PATHS_CHANGED, reachable=len(changed.reachable), moved=len(changed.moved))
            self._inbox.put([changed])

    def _notify_lost_frames(self, rids: set[int]) -> None:
        """Frames to these routers may be lost though no path has changed: their channels look at once (T-4)."""
        self._inbox.put([PathsChanged(frozenset(self.routing.next_hops), frozenset(rids))])

    def _link_to(self, rid: int) -> NeighbourConnection | None:
        hop = self.routing.next_hops.get(rid)
        return None if hop is None else self.links.get(hop)

    def _next_hop(self, rid: int) -> int | None:
        """For frames on the way; what is for this router has arrived."""
        return None if rid == self.rid else self.routing.next_hops.get(rid)

    # --- routed links (R-3) -------------------------------------------------------------------------------------------

    def open_routed(self, connection: NeighbourConnection, link: ReceiverLink | SenderLink) -> None:
        """Forward or refuse the attach of another router; see `NeighbourOwner`."""
        try:
            if self.routed is not None and not self._is_stopped:
                self.routed.open_from_router(connection, link)
        except RoutedRefusal as refusal:
            with contextlib.suppress(StateError):  # it was detached in the same read
                link.refuse(AmqpError(Symbol(refusal.condition), str(refusal)))

    def routed_distances(self) -> Mapping[int, int]:
        """Cost of the path to each router that can be reached."""
        return self.routing.paths.distances

    def routed_next(self, rid: int) -> NeighbourConnection | None:
        """The connection to the next hop, if it carries routed links."""
        link = self._link_to(rid)
        remote = None if link is None else link.engine.remote_open
        return link if remote is not None and ROUTED_LINKS in remote.offered_capabilities else None

    # --- out ----------------------------------------------------------------------------------------------------------

    def send(self, effect: SendToRouters) -> None:
        """Send a frame to each target, one copy per next hop (T-2); where no path leads it is dropped (T-4)."""
        kind, head, body = channel_codec.encode_payload(effect.message)
        now = self._driver.records.now
        if len(effect.targets) == 1:
            link = self._link_to(effect.targets[0][0])
            if link is not None:
                self._queue(link, kind, head, body, effect.targets, now)
            return
        groups: dict[NeighbourConnection, list[Target]] = {}
        for target in effect.targets:
            link = self._link_to(target[0])
            if link is not None:
                groups.setdefault(link, []).append(target)
        for link, targets in groups.items():
            self._queue(link, kind, head, body, targets, now)

    def _queue(
        self, link: NeighbourConnection, kind: int, head: bytes, body: bytes, targets: Sequence[Target], now: float
    ) -> None:
        header = frame_header.encode_header(kind, self.rid, targets)
        rids = (targets[0][0],) if len(targets) == 1 else tuple([target[0] for target in targets])
        link.send_frame(QueuedFrame(header + head, body, bool(body), rids, now))

    def send_datagram(self, effect: SendDatagram) -> None:
        """Send an unsequenced message; HELLO names sequence numbers, so it may not overtake frames (T-9)."""
        link = self._link_to(effect.rid)
        if link is None:
            return
        data = channel_codec.encode_datagram(self.rid, effect.rid, effect.message)
        if isinstance(effect.message, Hello):
            link.send_frame(QueuedFrame(data, b"", False, (), self._driver.records.now))
        else:
            link.send_urgent(FRAME, data)

    def on_dropped(self, connection: NeighbourConnection, broken: set[int], frames: int) -> None:
        """Bodies were dropped because a neighbour is slow; the channels of our own start again (T-2, T-4)."""
        name = connection.identity.node_id if connection.identity is not None else ""
        self.log.event(RouterEvent.NEIGHBOUR_SLOW, neighbour=name, dropped_frames=frames)
        if broken:
            self._notify_lost_frames(broken)

    # --- in -----------------------------------------------------------------------------------------------------------

    def heard(self, connection: NeighbourConnection) -> None:
        """Something was read from a neighbour, be it a part of a frame: it lives."""
        if connection.identity is not None:
            self.routing.heard(connection.identity.rid)

    def receive_batch(self, connection: NeighbourConnection, batch: bytes) -> str | None:
        """Take what a neighbour sent; returns what is wrong with it, None if nothing."""
        if self._is_stopped or connection.identity is None:
            return None
        rid = connection.identity.rid
        try:
            for kind, data in read_batch(batch):
                if kind == FRAME:
                    self._receive_frame(data)
                elif kind == LINK_STATE:
                    self.routing.receive(data, rid)
        except (BatchError, ChannelCodecError, LinkStateError) as error:
            return str(error)
        self._update_paths()
        return None

    def _receive_frame(self, frame: bytes) -> None:
        header = frame_header.read_header(frame)
        targets = header.targets
        if len(targets) == 1 and targets[0][0] == self.rid:
            self._take(frame, header, targets[0])
            return
        for target in targets:
            if target[0] == self.rid:
                self._take(frame, header, target)
        now = time.monotonic()
        for hop, copy in frame_header.split(frame, header, self._next_hop):
            link = self.links.get(hop)
            if link is not None:
                link.send_frame(QueuedFrame(copy, b"", header.carries_body, (), now))

    def _take(self, frame: bytes, header: Header, target: Target) -> None:
        if header.is_datagram:
            self._inputs.append(RouterDatagram(header.origin, channel_codec.decode_datagram(frame, header)))
        else:
            message = channel_codec.decode_message(frame, header)
            self._inputs.append(RouterFrame(header.origin, target[1], target[2], message))

    def submit_received(self) -> None:
        """Everything of one read goes to the record core together, unless it may lead to much."""
        if self._inputs and not self._is_stopped:
            inputs, self._inputs = self._inputs, []
            self._inbox.put(inputs)

    # --- for people ---------------------------------------------------------------------------------------------------

    def numbers(self) -> list[NeighbourNumbers]:
        """Counters of each link."""
        found = []
        for link in self.links.values():
            assert link.identity is not None
            found.append(
                NeighbourNumbers(
                    link.identity.node_id,
                    link.cost,
                    link.bytes_in,
                    link.bytes_out,
                    link.output.queued_bytes,
                    link.output.dropped,
                )
            )
        return found
