"""One client's AMQP connection: bytes to events to the record core's inputs, and its effects back to bytes.

What was read counts only if the lease was surely valid (K-3a). `PacedProtocol` reads and writes.

The engine turns bytes into events; `process_events` translates all events of one step to inputs and submits them as one
batch, in the order in which they came. The record core answers with effects by link number, for this connection and for
others; the shells in `links` carry them out on the engine. Nothing is written meanwhile: a connection with output is
dirty, and is written once at the end of the loop's turn. So a batch of transfers costs one submit, and its outcomes
leave in one piece.

A link number lives longer than the client's interest in it. An effect for a link that was detached in the same read
finds no shell, or an engine that refuses it, and is dropped: to the core it was lost on the way, as with a lost
connection. Answers to the client's detach, end and close are not the engine's: they wait until the core has stated the
outcomes of what was read (A-9a).

Each way a connection can end leads to `_end_links`: a close, a lost transport, our own close with an error, a fault. To
the core each link then has ended or is lost, and its state stays as A-9 and A-9a say. When the incarnation ends,
`stop_serving` cuts the connection off from the core first: nothing that is read afterwards reaches a record (K-3).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from delivery_records.model.effects import DetachLink
from delivery_records.model.inputs import Input, LinkPlace
from oncewire.transport.paced_protocol import STEP_WORK, PacedProtocol, units_of_a_step
from oncewire.transport.websocket_frames_core import UNREAD_BYTES
from oncewire.wire import (
    CONNECTION_FORCED,
    CONNECTION_REDIRECT,
    LINK_REDIRECT,
    AmqpError,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    ConnectionState,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    DispositionReceived,
    LimitError,
    Link,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    SaslOutcome,
    SaslServer,
    SessionBegun,
    SessionEnded,
    StateError,
    Symbol,
)
from router.amqp.errors import amqp_error
from router.clients import attach_kinds, incoming_attaches
from router.clients.anonymous_link import AnonymousLink
from router.clients.anonymous_links import AnonymousLinks
from router.clients.connection_faults import ConnectionFaults
from router.clients.connection_limits import (
    CLOSE_TIMEOUT_S,
    MAX_CONTAINER_ID_BYTES,
    MAX_WEIGHED,
    OUTPUT_HIGH_BYTES,
    OUTPUT_LIMIT_BYTES,
)
from router.clients.connection_owner import ConnectionOwner
from router.clients.inner_links import InnerPublisher
from router.clients.large_sending import Sendings
from router.clients.link_ends import ClientLink, LinkEnds
from router.clients.link_policy import LinkPolicy
from router.clients.link_refusal import LinkRefusal, detach_link, lighten
from router.clients.local_node import NodeLink, NodeLinks
from router.clients.login_expiry import LoginExpiry
from router.clients.places import Places
from router.clients.publisher_link import LargeEvent, PublisherLink
from router.clients.session_window import SessionWindows
from router.clients.subscriber_link import SubscriberLink
from router.process.logs import EventLog, RouterEvent
from router.records_driver import RecordsDriver
from router.routed.half import CarriedLinks, Half

_CLOSING = (ConnectionState.CLOSE_SENT, ConnectionState.CLOSE_RECEIVED, ConnectionState.ENDED)


class ClientConnection(PacedProtocol):
    """The asyncio protocol of one client connection."""

    high_water_bytes = OUTPUT_HIGH_BYTES
    output_limit_bytes = OUTPUT_LIMIT_BYTES
    timer_resolution_s = 0.05
    peer_noun = "a client"

    __slots__ = (
        "__weakref__",
        "_driver",
        "_expiry",
        "_faults",
        "_is_closing",
        "_is_redirected",
        "anonymous",
        "attaches",
        "container_id",
        "ends",
        "kept_message_size",
        "links",
        "listener",
        "log",
        "max_message_size",
        "nodes",
        "peer",
        "peer_host",
        "places",
        "policy",
        "quota",
        "routed",
        "sasl",
        "sendings",
        "step",
        "weighed_at",
        "windows",
    )

    def __init__(
        self,
        listener: ConnectionOwner[ClientConnection],
        engine: Connection,
        driver: RecordsDriver | None,
        sasl: SaslServer,
        *,
        is_redirected: bool = True,
    ) -> None:
        """Serve one client.

        Args:
            listener: settings and the registry of connections.
            engine: a fresh engine in the server's role.
            driver: the incarnation that serves it; None = there is none, and the client is sent elsewhere (A-1).
            sasl: of the engine.
            is_redirected: whether it learns of other routers (K-8a).
        """
        super().__init__(engine, listener.turn, time.monotonic, listener.unfinished)
        self.listener = listener
        self._driver = driver
        self.log: EventLog = listener.log
        self.max_message_size = listener.config.max_message_size
        self.kept_message_size = listener.config.kept_message_size
        self.container_id = ""
        self.peer = ""
        self.policy = LinkPolicy(listener.current_config)
        """Knows the user, and what the rules say of it."""
        self.sasl: SaslServer | None = sasl
        """None once the client has logged in."""
        self._expiry = LoginExpiry(self)
        self.peer_host = ""
        self.step = STEP_WORK
        """See `step_work`."""
        self.weighed_at = -1
        """The version of weights that it is for."""
        self.nodes = NodeLinks(listener.node, self)
        self.windows = SessionWindows(listener.window_limits())
        self.quota = listener.quota(self, self.windows)
        self.links: dict[int, ClientLink] = {}
        self.anonymous: AnonymousLinks | None = None
        self.places = Places()
        self.sendings = Sendings()
        self.attaches = listener.attach_pace(self)
        self.routed = CarriedLinks()
        self.ends = LinkEnds(self)
        self._is_closing = False  # by the client, and not answered yet
        engine.answers_close = True
        self._is_redirected = is_redirected
        self._faults = ConnectionFaults(self)

    @property
    def driver(self) -> RecordsDriver:
        """The incarnation that serves this client; only links ask, and they exist under one only."""
        assert self._driver is not None
        return self._driver

    @property
    def is_served(self) -> bool:
        """Whether there is an incarnation behind this connection."""
        return self._driver is not None

    def is_served_by(self, driver: RecordsDriver | None) -> bool:
        """Whether this is the incarnation behind it."""
        return self._driver is driver

    @property
    def attach_rate(self) -> float:
        """Attaches a second that its user may make."""
        return self.policy.quota.attach_rate or self.listener.config.attach_rate

    @property
    def waiting_for_store(self) -> int:
        """Operations of all clients that wait for etcd."""
        return 0 if self._driver is None else self._driver.waiting_for_store

    @property
    def unwritten_bytes(self) -> int:
        """What the client has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def unread_bytes(self) -> int:
        """What has come by a WebSocket, and the engine was not given yet."""
        found = 0 if self._transport is None else self._transport.get_extra_info(UNREAD_BYTES, 0)
        assert isinstance(found, int)
        return found

    @property
    def link_numbers(self) -> list[int]:
        """The links it has now, by number."""
        return list(self.links)

    @property
    def link_count(self) -> int:
        """How many links it has now, those to services and the anonymous terminus included."""
        return len(self.links) + self.routed.near_count + (0 if self.anonymous is None else len(self.anonymous))

    @property
    def user(self) -> str | None:
        """Who has logged in; None without a login."""
        return self.policy.user

    def refuse_unless_allowed(self, link: Link, address: str | None) -> None:
        """See `LinkOwner`."""
        self.policy.refuse_unless_allowed(link, address, self.container_id, self.driver.records.view)

    def end_what_is_not_allowed(self) -> None:
        """The rules have changed: links that they do not allow any more are detached; their state stays (A-9)."""
        attach_kinds.end_not_allowed(self, list(self.links.values()))
        self.mark_dirty()

    def place_of(self, link: Link) -> LinkPlace:
        """See `LinkOwner`."""
        return self.places.place_of(link.session, self.driver)

    @property
    def frame_size(self) -> int:
        """The smaller of both max-frame-sizes (C-4)."""
        return min(self.engine.send_frame_size, self.listener.config.max_frame_size)

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected."""
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        self.peer_host = str(name[0]) if isinstance(name, tuple) else ""
        self.listener.add(self)
        self.start_timer(self.listener.config.open_timeout_s, self._on_open_timeout)

    def may_carry_out(self, now: float) -> bool:
        """K-3a: only while the lease was surely valid; without an incarnation nothing is at stake."""
        return self._driver is None or self._driver.vet(now)

    def on_disconnected(self, exc: Exception | None) -> None:
        """The transport is closed."""
        driver = self._driver
        if driver is not None and self.windows.close(driver.records.budget, driver.offers):
            driver.submit([])
        self._expiry.stop()
        self.listener.remove(self)
        self.engine.let_go()

    def expire_after(self, seconds: float) -> None:
        """See `router.authentication.authenticators.ExpiringCaller`."""
        if self._transport is not None:  # else it has ended while the login was checked
            self._expiry.begin(seconds, self._loop)

    def pause_writing(self) -> None:
        """The client reads too slowly (C-2)."""
        super().pause_writing()
        self._submit([found for link in self._subscribers() if (found := link.hold_input()) is not None])

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._submit([found for link in self._subscribers() if (found := link.release_input()) is not None])
        if self.sendings:
            self.mark_dirty()

    # --- events of the engine -----------------------------------------------------------------------------------------

    def process_events(self) -> None:
        """See `EngineProtocol`."""
        self.windows.is_calm = False
        inputs: list[Input] = []
        try:
            for event in self.engine.events():
                if type(event) is DeliveryReceived:  # once per message; all others are far rarer
                    shell = event.link.context
                    if type(shell) is PublisherLink:
                        inputs.append(shell.transfer_input(event))
                    elif isinstance(shell, NodeLink | Half):
                        shell.on_delivery(event)
                    elif isinstance(shell, AnonymousLink):
                        shell.on_delivery(event, inputs)
                else:
                    handler = _HANDLERS.get(type(event))
                    if handler is not None:
                        handler(self, event, inputs)
            for link in self.nodes.take_postponed():
                incoming_attaches.on_postponed(self, link, inputs)
            if self.routed.halves:
                self.routed.release()
        finally:  # K-3b: what came before a fault counts
            if inputs and self._driver is not None:
                self._driver.submit(inputs)
        if not self.is_dirty:
            self.mark_dirty()
        if self.attaches.is_new and (delay_s := self.attaches.delay()):
            self.pause_for(delay_s)
        if self.listener.is_draining:
            self.leave_if_unused()

    def step_work(self) -> int:
        """See `PacedProtocol`: a message to thousands of subscriptions, or costly filters, is thousands of units."""
        if self._driver is not None and self.weighed_at != (version := self._driver.records.weights_version()):
            weight = self._driver.records.weigh(self.links, MAX_WEIGHED)
            self.step = 1 if weight is None else units_of_a_step(weight)
            self.weighed_at = version if weight is not None else self.weighed_at
        return self.step

    def is_held_up(self) -> bool:
        """See `PacedProtocol`: a message to thousands of subscriptions waits until the one before has gone out."""
        return self._driver is not None and self._driver.is_behind and self.step_work() < STEP_WORK

    def pause_again(self) -> float:
        """See `PacedProtocol`: who has attached too often waits on."""
        return self.attaches.delay()

    def _submit(self, inputs: list[Input]) -> None:
        if inputs and self._driver is not None:
            self._driver.submit(inputs)

    def _on_part(self, event: LargeEvent, inputs: list[Input]) -> None:
        shell = event.link.context
        if type(shell) is PublisherLink:  # no other one asks for parts
            inputs.append(shell.large_input(event))

    def _on_disposition(self, event: DispositionReceived, inputs: list[Input]) -> None:
        shell = event.link.context
        if isinstance(shell, PublisherLink | SubscriberLink):
            found = shell.disposition_input(event)
            if found is not None:
                inputs.append(found)
        elif isinstance(shell, Half):
            shell.on_disposition(event)
        elif isinstance(shell, AnonymousLink):
            shell.on_disposition(event, inputs)

    def _on_flow(self, event: LinkFlow, inputs: list[Input]) -> None:
        shell = event.link.context
        if isinstance(shell, PublisherLink | SubscriberLink):
            found = shell.flow_input(event)
            if found is not None:
                inputs.append(found)
        elif isinstance(shell, NodeLink | Half | AnonymousLink):
            shell.on_flow(event)

    def _on_attached(self, event: LinkAttached, inputs: list[Input]) -> None:
        if self._driver is not None:
            incoming_attaches.on_attached(self, event.link, inputs)

    def count_refusal(self, link: Link, refusal: LinkRefusal) -> None:
        """See `AttachClient`."""
        self.listener.count_refusal(self, link.name, refusal)

    def refuse(self, link: Link, refusal: LinkRefusal) -> None:
        """See `AttachClient`."""
        self.count_refusal(link, refusal)
        detach_link(link, True, AmqpError(Symbol(refusal.condition), refusal.description))
        lighten(link)

    def _on_detached(self, event: LinkDetached, inputs: list[Input]) -> None:
        self.ends.on_detached(event, inputs)

    def _on_session_begun(self, event: SessionBegun, _inputs: list[Input]) -> None:
        event.session.answers_end = True
        refusal = self.quota.refusal_of_session()
        if refusal is not None:
            self.listener.count_refusal(self, "", refusal)
            event.session.end(AmqpError(Symbol(refusal.condition), refusal.description))

    def _on_session_ended(self, event: SessionEnded, inputs: list[Input]) -> None:
        self.ends.on_session_ended(event, inputs)

    def _on_opened(self, event: ConnectionOpened, _inputs: list[Input]) -> None:
        self.container_id = event.open.container_id
        self.watch_deadline()
        if not 0 < len(self.container_id.encode()) <= MAX_CONTAINER_ID_BYTES:
            self.close("amqp:invalid-field", f"a container-id has 1 to {MAX_CONTAINER_ID_BYTES} bytes")
            return
        problem = self.listener.refusal(self, event.open.hostname or "")
        if problem is not None:
            self.close(*problem)
            return
        self.log.event(RouterEvent.CLIENT_CONNECTED, container_id=self.container_id, peer=self.peer, **self.policy.who)

    def _on_sasl(self, event: SaslOutcome, _inputs: list[Input]) -> None:
        self.policy.user, self.policy.mechanism = event.user, event.mechanism
        self.sasl = None
        if not event.ok:
            self.log.event(RouterEvent.CLIENT_REFUSED, peer=self.peer, why="login failed", mechanism=event.mechanism)

    def _on_over(self, event: ConnectionClosed | ConnectionLost, inputs: list[Input]) -> None:
        answers = isinstance(event, ConnectionClosed) and event.needs_answer
        was_closing, self._is_closing = self._is_closing, answers
        self._end_links(inputs, answers=answers)
        error = event.error
        why = "" if error is None else f"{error.condition}: {error.description}"
        if (self.container_id or why) and not was_closing:  # who only comes and goes cannot fill the log
            self.log.event(RouterEvent.CLIENT_DISCONNECTED, container_id=self.container_id, peer=self.peer, why=why)

    def _end_links(self, inputs: list[Input], *, answers: bool = False) -> None:
        """A-9: everything the connection carried is suspended."""
        self.ends.end_all(inputs, answers=answers)
        if self.listener.routed is not None:
            self.listener.routed.remove_service(self)
        self.listener.sole.leave(self)

    def forget(self, shell: ClientLink) -> None:
        """See `EndingClient`."""
        self.forget_inner(shell)
        if not isinstance(shell, InnerPublisher) and shell.made is not None:
            self.policy.forget_address(shell.made)

    def add_inner(self, inner: InnerPublisher) -> None:
        """See `AnonymousClient`."""
        self.links[inner.number] = inner

    def forget_inner(self, inner: ClientLink) -> None:
        """See `AnonymousClient`."""
        self.links.pop(inner.number, None)
        self.driver.links.pop(inner.number, None)

    def _subscribers(self) -> list[SubscriberLink]:
        return [link for link in self.links.values() if isinstance(link, SubscriberLink)]

    # --- commands -----------------------------------------------------------------------------------------------------

    def detach(self, number: int, link: Link, effect: DetachLink) -> None:
        """See `LinkOwner`."""
        if number in self.links:
            self.forget(self.links[number])
        if self.ends.release(link):
            return  # its session or the connection ends, and says so
        condition, info = effect.condition, effect.info
        if condition == LINK_REDIRECT:  # K-8a
            reported = self._elsewhere()
            condition, info = (CONNECTION_FORCED, info) if reported is None else (condition, reported)
        error = amqp_error(condition, effect.description, info)
        detach_link(link, effect.closed, error)

    def _elsewhere(self) -> dict[str, object] | None:
        return self.listener.redirect(self.container_id) if self._is_redirected else None

    def close(self, condition: str, description: str, info: dict[str, object] | None = None) -> None:
        """Close the connection with an error; its links count as lost.

        A redirect names the router to go to, if there is one. Stock clients go on only after what is forced (K-8a).
        """
        if condition == CONNECTION_REDIRECT:
            info = self._elsewhere()
            condition = condition if self.windows.resumes and info is not None else CONNECTION_FORCED
        inputs: list[Input] = []
        self._end_links(inputs)
        with contextlib.suppress(StateError):  # it is closing already
            try:
                self.engine.close(amqp_error(condition, description, info))
            except LimitError:  # the client's frames are too small for the explanation
                self.engine.close(amqp_error(condition, ""))
        self._submit(inputs)
        self.close_transport_after(CLOSE_TIMEOUT_S)

    def on_fault(self, error: Exception, doing: str) -> None:
        """See `EngineProtocol`."""
        self._faults.on_fault(error, doing)

    def on_output_fault(self, error: Exception) -> None:
        """See `EngineProtocol`."""
        self._faults.on_output_fault(error)

    def fail(self) -> None:
        """See `LinkOwner`."""
        self._faults.fail()

    def drop_all(self) -> None:
        """End the links and the transport at once; nothing more is written."""
        inputs: list[Input] = []
        self._end_links(inputs)
        self._submit(inputs)
        self.abort()

    def leave_if_unused(self) -> None:
        """K-8a: while the router drains, a connection without links has nothing to wait for."""
        if self.links or self.engine.state in _CLOSING:  # routed links are attached again at another router
            return
        self.close(CONNECTION_REDIRECT, "this router is going to stop; connect to another router")

    def stop_serving(self) -> None:
        """The incarnation is over: nothing this client sent from now on counts (K-3)."""
        self._driver = None
        self.anonymous = None
        self.links.clear()
        self.sendings.forget()
        self.places.forget()

    # --- output and time ----------------------------------------------------------------------------------------------

    def write_output(self) -> None:
        """Write everything the turn produced, in one piece."""
        if self._driver is not None and self._transport is not None and not self._is_closing:
            self._update_windows(self._driver)
        super().write_output()
        if self.sendings:
            self._submit(self.sendings.taken(is_behind=self.is_behind))
        if self.routed.halves and not self._is_behind:
            self.routed.release()

    def _update_windows(self, driver: RecordsDriver) -> None:
        """C-6: offer each session the frames there is room for."""
        self.quota.count_links()
        if self.windows.is_calm:
            return
        publishers = [
            (each.number, each.link.session) for each in self.links.values() if not isinstance(each, SubscriberLink)
        ]
        sessions = self.routed.offered(self.engine.sessions)
        if self.anonymous is not None:
            sessions = [session for session in sessions if self.anonymous.offers(session)]
        if self.windows.look(sessions, publishers, driver, time.monotonic()):
            driver.submit([])
        if self.routed.halves:  # sessions may be offered frames here again without a read
            self.windows.is_calm = False
        self.engine.session_window = self.windows.first(driver.records.budget)
        if self.windows.stopped_for and self.engine.state is ConnectionState.OPENED:
            self.close("amqp:resource-limit-exceeded", self.windows.stopped_for)

    def _on_open_timeout(self) -> None:
        self._timer = None
        self.log.event(RouterEvent.CLIENT_REFUSED, peer=self.peer, why="no open frame came")
        self.abort()


_HANDLERS: dict[type, Callable[[ClientConnection, Any, list[Input]], None]] = {
    DeliveryBegun: ClientConnection._on_part,
    DeliveryPart: ClientConnection._on_part,
    DeliveryEnded: ClientConnection._on_part,
    DeliveryAborted: ClientConnection._on_part,
    DispositionReceived: ClientConnection._on_disposition,
    LinkFlow: ClientConnection._on_flow,
    LinkAttached: ClientConnection._on_attached,
    LinkDetached: ClientConnection._on_detached,
    SessionBegun: ClientConnection._on_session_begun,
    SessionEnded: ClientConnection._on_session_ended,
    ConnectionOpened: ClientConnection._on_opened,
    ConnectionClosed: ClientConnection._on_over,
    ConnectionLost: ClientConnection._on_over,
    SaslOutcome: ClientConnection._on_sasl,
}
"""Behind the class: a compiled one cannot hold its own methods."""
