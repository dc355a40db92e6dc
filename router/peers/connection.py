"""A link to one neighbour: an AMQP connection with the same engine, one sending link each way, batches of items on it.

It never stops reading (T-5): what is read is passed on at once, and passing on never waits for anybody. What is for
this router may wait for its turn (`inbox`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol

from delivery_records.channels import frame_header
from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.tls import fault_of
from oncewire.transport.turn import Turn
from oncewire.wire import (
    AmqpError,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    ConnectionState,
    DeliveryReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    Open,
    ReceiverLink,
    ReceiverSettleMode,
    SaslOutcome,
    SenderLink,
    SenderSettleMode,
    SessionEnded,
    Source,
    Symbol,
    Target,
)
from oncewire.wire.vocabulary import ROUTER_PROOF
from router.amqp.errors import amqp_error
from router.peers.handshake import NeighbourIdentity
from router.peers.output import NeighbourOutput, QueuedFrame
from router.peers.proof import Verdict
from router.process.logs import EventLog, Part
from router.routed.half import FIRST_FRAMES, CarriedLinks, Half
from router.routed.terms import way_of

ADDRESS = "$router"
LINK_NAME = "frames"
MESSAGE_FORMAT = 0x4F574200 | frame_header.PROTOCOL_VERSION
"""Batches are no AMQP messages, so they have a message-format of their own (2.8.11)."""

CREDIT = 1 << 20
"""Batches a neighbour may send before it hears of us again: never the limit, the byte credit of T-5 is."""
OUTPUT_HIGH_BYTES = 256 * 1024
"""What may wait in the socket's buffer; the rest waits where it can still be dropped (T-2)."""
HANDSHAKE_TIMEOUT_S = 10.0
"""For all of the handshake. A neighbour that says nothing at all is given up after a silence as at any other time, so
that a link whose first bytes were lost is tried again soon."""
CLOSE_TIMEOUT_S = 1.0
"""After our close frame, before the transport is closed without the neighbour's reply."""
BEHIND_CHECK_S = 0.25
"""How often a slow neighbour's queue is looked through for late bodies."""


_LOST = "the way to the other end of the link is interrupted; attach again"


class NeighbourOwner(Protocol):
    """The neighbours of one incarnation, as one connection needs them; `Neighbours` is it."""

    silence_s: float
    """A neighbour that sends nothing for so long is disconnected."""
    turn: Turn
    log: EventLog

    def add_connection(self, connection: NeighbourConnection) -> None:
        """The transport is connected."""

    def remove_connection(self, connection: NeighbourConnection) -> None:
        """The transport is disconnected."""

    def check(self, open_frame: Open) -> NeighbourIdentity | str:
        """Who the neighbour is, or why it cannot be one."""
        ...

    def prove(self, identity: NeighbourIdentity, challenge: bytes) -> bytes:
        """What shows the neighbour who this router is (K-1b)."""
        ...

    def judge(self, identity: NeighbourIdentity, challenge: bytes, shown: object) -> Verdict:
        """Whether the neighbour is the incarnation that it names (K-1b)."""
        ...

    def on_up(self, connection: NeighbourConnection) -> None:
        """Frames can be sent."""

    def on_down(self, connection: NeighbourConnection) -> None:
        """No frame can be sent any more."""

    def heard(self, connection: NeighbourConnection) -> None:
        """Something was read, be it a part of a frame."""

    def receive_batch(self, connection: NeighbourConnection, batch: bytes) -> str | None:
        """Take what was received; returns what is wrong with it, None if nothing."""
        ...

    def submit_received(self) -> None:
        """The read is over: its frames go to the record core together."""

    def open_routed(self, connection: NeighbourConnection, link: ReceiverLink | SenderLink) -> None:
        """Another router has attached a routed link: forward or refuse it (R-3)."""

    def on_dropped(self, connection: NeighbourConnection, broken: set[int], frames: int) -> None:
        """Bodies were dropped (T-2): so many frames, of channels to these routers."""


class NeighbourConnection(EngineProtocol):
    """The asyncio protocol of one inter-router connection, either side."""

    high_water_bytes = OUTPUT_HIGH_BYTES
    timer_resolution_s = 0.01
    peer_noun = "a neighbour"

    def __init__(
        self, neighbours: NeighbourOwner, engine: Connection, is_dialer: bool, cost: int, challenge: bytes
    ) -> None:
        """Wait for the transport.

        Args:
            neighbours: who takes what is read and says what is written.
            engine: a fresh engine.
            is_dialer: whether this router opened the connection.
            cost: of this link as configured here; the larger one of both sides counts.
            challenge: that the open frame states, fresh for this connection (K-1b).
        """
        super().__init__(engine, neighbours.turn, time.monotonic)
        self._neighbours = neighbours
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended."""
        self.is_dialer = is_dialer
        self.cost = cost
        """Of this router's direction; an operator may set another one while the link is up."""
        self.agreed_cost = cost
        """What the settings of both routers came to."""
        self.identity: NeighbourIdentity | None = None
        self.peer_host = ""
        """Address of the neighbour."""
        self.refusal = ""
        """Why the connection was given up, for the log."""
        self.output = NeighbourOutput()
        self.routed = CarriedLinks()
        self.is_up = False
        self.was_up = False
        self.on_known: Callable[[NeighbourConnection], None] = lambda _connection: None
        """Called when it is known which router this is."""
        self._challenge = challenge
        self._unproven: ReceiverLink | None = None
        """The neighbour's link for frames, which has no credit before it is known who sends (K-1b)."""
        self._sender: SenderLink | None = None
        self._granted = 0
        self._received = 0
        self._opened_at = self._heard_at = time.monotonic()
        self.is_proven = False
        """Whether etcd vouches for the neighbour."""
        self._waits_for = ""
        """What the handshake waits for, other than an answer."""
        self._queue_check: asyncio.TimerHandle | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            ConnectionOpened: self._on_opened,
            LinkAttached: self._on_attached,
            LinkFlow: self._on_flow,
            DeliveryReceived: self._on_delivery,
            LinkDetached: self._on_detached,
            DispositionReceived: self._on_disposition,
            SessionEnded: self._on_session_ended,
            SaslOutcome: self._on_sasl,
            ConnectionClosed: self._on_gone,
            ConnectionLost: self._on_gone,
        }

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The two routers are connected; the dialer speaks first."""
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.peer_host = str(name[0]) if isinstance(name, tuple) else ""
        self._neighbours.add_connection(self)
        if self.is_dialer:
            self.engine.open()
            self.mark_dirty()
        self._opened_at = self._heard_at = time.monotonic()
        self._watch_handshake()

    def data_received(self, data: bytes) -> None:
        """One read: handle what is ours, pass on what is not."""
        self._heard_at = time.monotonic()
        if self.is_up:
            self._neighbours.heard(self)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        if exc is not None and not self.refusal:
            self.refusal = f"TLS: {fault_of(exc)}" if isinstance(exc, ssl.SSLError) else str(exc)
        super().connection_lost(exc)

    def on_disconnected(self, _exc: Exception | None) -> None:
        """No frame goes over this link any more."""
        self._down()
        self._neighbours.remove_connection(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """The neighbour reads too slowly; from now on bodies get old."""
        super().pause_writing()
        if self._queue_check is None:
            self._queue_check = self._loop.call_later(BEHIND_CHECK_S, self._check_queue)

    def resume_writing(self) -> None:
        """The neighbour has caught up."""
        super().resume_writing()
        self.mark_dirty()

    # --- events of the engine -----------------------------------------------------------------------------------------

    def process_events(self) -> None:
        """See `EngineProtocol`."""
        for event in self.engine.events():
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)
        self._neighbours.submit_received()
        self.routed.release()
        self.mark_dirty()

    def _on_opened(self, event: ConnectionOpened) -> None:
        open_frame = event.open
        identity = self._neighbours.check(open_frame)
        if isinstance(identity, str):
            self.close("amqp:not-allowed", identity)
            return
        self.identity = identity
        self.cost = self.agreed_cost = max(self.cost, identity.cost)
        session = self.engine.begin()
        self._sender = session.attach_sender(
            LINK_NAME,
            source=Source(address=ADDRESS),
            target=Target(address=ADDRESS),
            snd_settle_mode=SenderSettleMode.SETTLED,
            rcv_settle_mode=ReceiverSettleMode.FIRST,
            properties={ROUTER_PROOF: self._neighbours.prove(identity, self._challenge)},
        )

    def _on_attached(self, event: LinkAttached) -> None:
        link = event.link
        if isinstance(link.context, Half):
            link.context.on_attached()
        elif link.remote_attach is not None and way_of(link.remote_attach) is not None:
            assert isinstance(link, ReceiverLink | SenderLink)
            if not self.is_proven:
                self.close("amqp:not-allowed", "routed links follow the link for frames (K-1b)")
                return
            self._neighbours.open_routed(self, link)
        elif isinstance(link, ReceiverLink) and link.local_attach is None:
            remote = link.remote_attach
            assert remote is not None
            link.reply(source=remote.source, target=remote.target)
            link.context = self
            self._unproven = link
            self.check_proof()
        elif link is not self._sender and link.local_attach is None:
            link.refuse(AmqpError(Symbol("amqp:not-allowed"), "routers only send to each other here"))

    def check_proof(self) -> None:
        """K-1b: let the neighbour send once etcd vouches for it; the view may show it later than it connects."""
        link = self._unproven
        if link is None or link.remote_attach is None or self.identity is None:
            return
        shown = (link.remote_attach.properties or {}).get(ROUTER_PROOF)
        verdict = self._neighbours.judge(self.identity, self._challenge, shown)
        if verdict is Verdict.NOT_KNOWN:
            self._waits_for = verdict.value
            return
        self._unproven = None
        if verdict is not Verdict.PROVEN:
            self.close("amqp:unauthorized-access", verdict.value)
            return
        self._waits_for = ""
        self.is_proven = True
        self._grant(link)
        self.engine.session_window = FIRST_FRAMES  # of sessions of routed links, which come later
        self._come_up()
        self.mark_dirty()

    def _come_up(self) -> None:
        """Both sides know who the other one is: the neighbour has granted credit, and so has this router."""
        if self.is_up or not self.is_proven or self._sender is None or not self._sender.credit:
            return
        self.is_up = self.was_up = True
        self.on_known(self)
        self.watch_deadline()
        self._neighbours.on_up(self)

    def _grant(self, link: ReceiverLink) -> None:
        self._granted = self._received + CREDIT
        link.grant(CREDIT)

    def _on_flow(self, event: LinkFlow) -> None:
        if isinstance(event.link.context, Half):
            event.link.context.on_flow(event)
        elif event.link is self._sender:
            self._come_up()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        if isinstance(event.link.context, Half):
            event.link.context.on_delivery(event)
            return
        if event.message_format != MESSAGE_FORMAT or event.aborted:
            self.close("amqp:not-implemented", "routers send batches of frames in a message-format of their own")
            return
        self._received += 1
        if self._granted - self._received < CREDIT // 2:
            self._grant(event.link)
        problem = self._neighbours.receive_batch(self, event.payload)
        if problem is not None:
            self.close("amqp:decode-error", problem)

    def _on_disposition(self, event: DispositionReceived) -> None:
        if isinstance(event.link.context, Half):
            event.link.context.on_disposition(event)

    def _on_session_ended(self, event: SessionEnded) -> None:
        for link in event.session.links:
            if isinstance(link.context, Half):
                link.context.on_lost(_LOST)

    def _on_detached(self, event: LinkDetached) -> None:
        if isinstance(event.link.context, Half):
            event.link.context.on_detached(event)
            return
        if event.link is not self._sender and event.link.context is not self:
            return  # a routed link that was refused
        self.close("amqp:illegal-state", "a router does not detach the link its frames go over")

    def _on_sasl(self, event: SaslOutcome) -> None:
        if not event.ok:
            self.refusal = "login failed: inter_router.password must be the same at every router"

    def _on_gone(self, event: ConnectionClosed | ConnectionLost) -> None:
        if event.error is not None and not self.refusal:
            self.refusal = f"{event.error.condition}: {event.error.description}"
        self._down()

    def _down(self) -> None:
        if self.is_up:
            self.is_up = False
            self._neighbours.on_down(self)
        self.routed.lose(_LOST)

    # --- commands -----------------------------------------------------------------------------------------------------

    def send_urgent(self, kind: int, data: bytes) -> None:
        """Send an item that may overtake frames."""
        self.output.add_urgent(kind, data)
        self.mark_dirty()

    def send_frame(self, frame: QueuedFrame) -> None:
        """Send a frame behind the others."""
        self.output.add_frame(frame)
        self.mark_dirty()

    def close(self, condition: str, description: str) -> None:
        """Close the connection with an error."""
        self.refusal = self.refusal or description
        with contextlib.suppress(LocalProtocolError):  # it is closing already
            self.engine.close(amqp_error(condition, description))
        self._down()
        self.close_transport_after(CLOSE_TIMEOUT_S)

    def on_fault(self, error: Exception, doing: str) -> None:
        """K-3b: a fault of our own ends the link to this neighbour; what is lost is repeated (T-4)."""
        self._neighbours.log.fault(Part.NEIGHBOUR, error, doing)
        self.refusal = self.refusal or f"a fault of this router: {error}"
        self._down()
        self.abort()

    # --- output and time ----------------------------------------------------------------------------------------------

    def write_output(self) -> None:
        """Write what waits, as far as the neighbour takes it."""
        transport = self._transport
        if transport is None:
            return
        self.write_engine(transport)
        sender = self._sender
        while self.is_up and sender is not None and not self._is_behind and not self.output.is_empty:
            if sender.session.is_queueing or not sender.credit:
                break  # its session window is closed; its next flow comes in as data
            sender.send(b"f", self.output.next_batch(), settled=True, message_format=MESSAGE_FORMAT)
            self.write_engine(transport)
        if not self.output.is_empty:
            self._drop_late_bodies()
        if not self._is_behind:  # frames first
            self.routed.release()
        if self.engine.state is ConnectionState.ENDED:
            transport.close()

    def _check_queue(self) -> None:
        self._queue_check = None
        if self._is_behind and self._transport is not None:
            self._drop_late_bodies()
            self._queue_check = self._loop.call_later(BEHIND_CHECK_S, self._check_queue)

    def _drop_late_bodies(self) -> None:
        before = self.output.dropped
        broken = self.output.drop_late_bodies(time.monotonic())
        if self.output.dropped > before:
            self._neighbours.on_dropped(self, broken, self.output.dropped - before)

    def _watch_handshake(self) -> None:
        """Wait until the link is up, for as long as the neighbour goes on with the handshake."""
        self._timer = None
        ends_at = min(self._heard_at + self._neighbours.silence_s, self._opened_at + HANDSHAKE_TIMEOUT_S)
        if time.monotonic() >= ends_at:
            self.refusal = self.refusal or self._waits_for or "no answer to the handshake"
            self.abort()
        else:
            delay = max(self.timer_resolution_s, ends_at - time.monotonic())
            self.start_timer(delay, self._watch_handshake)
