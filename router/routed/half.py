"""One half of a routed link: an engine link with its session and connection, for the relay core of the link."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from oncewire.wire import (
    FRAME_SIZE_TOO_SMALL,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    Attach,
    Connection,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Fields,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    ReceiverLink,
    SenderLink,
    SessionEndpoint,
    StateError,
)
from router.routed import relay_core as core
from router.routed.relay_core import RelayCore, Side
from router.routed.terms import Terms, terms_of

WINDOW_BYTES = 256 * 1024
"""Bodies that may be under way from hop to hop for one routed link (R-8)."""
FIRST_FRAMES = 16
"""The window before the size of a link's frames is known."""
MOST_FRAMES = 512
GROWTH = 4
"""Frames may become so many times larger before the window was too wide."""
SMALLEST_FRAME = 512

T = TypeVar("T")

_NOTHING: Final[dict[Any, None]] = {}
"""What a connection has without routed links; never changed. Most have none."""


class Inlet(Protocol):
    """The near half's end where one of a client's links has several routed links behind it (X-1)."""

    context: object
    remote_attach: Attach | None

    @property
    def name(self) -> str:
        """Of the link."""
        ...

    @property
    def session(self) -> SessionEndpoint:
        """Of the client."""
        ...

    @property
    def moved(self) -> int:
        """Deliveries that came in."""
        ...

    def reply(self, **terms: Any) -> None:
        """Answer the attach."""

    def grant(
        self, link_credit: int, *, drain: bool = False, echo: bool = False, properties: Fields | None = None
    ) -> None:
        """Let more come in."""

    def dispose(self, delivery_ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """State an outcome."""

    def detach(self, closed: bool, error: AmqpError | None = None) -> None:
        """Detach, answer a detach, or refuse."""


NearLink: TypeAlias = ReceiverLink | SenderLink | Inlet


class Carrier(Protocol):
    """A connection that carries halves of routed links."""

    engine: Connection
    routed: CarriedLinks

    @property
    def is_behind(self) -> bool:
        """Whether what is written waits because the other end reads too slowly."""
        ...

    def mark_dirty(self) -> None:
        """Write at the end of this turn."""


class CarriedLinks:
    """The halves on one connection."""

    __slots__ = ("_blocked", "_kept", "_touched", "halves")

    def __init__(self) -> None:
        """There are none yet."""
        self.halves: dict[Half, None] = {}
        """In the order in which they began: how links end must not depend on where they lie in memory."""
        self._blocked: dict[Half, None] = _NOTHING
        self._touched: dict[Half, None] = _NOTHING
        self._kept: dict[object, None] = _NOTHING

    def __len__(self) -> int:
        return len(self.halves)

    def block(self, half: Half) -> None:
        """This half waits until its connection or session takes more."""
        if not self._blocked:
            self._blocked = {}
        self._blocked[half] = None

    def touch(self, half: Half) -> None:
        """Deliveries came for this half: its window is looked at."""
        if not self._touched:
            self._touched = {}
        self._touched[half] = None

    def forget(self, half: Half) -> None:
        """This half is over."""
        self.halves.pop(half, None)
        self._kept.pop(half.link.session, None)
        self._blocked.pop(half, None)
        self._touched.pop(half, None)

    @property
    def near_count(self) -> int:
        """Routed links that the other end of the connection has attached."""
        return sum(half.side is Side.NEAR for half in self.halves) if self.halves else 0

    def keep(self, session: object, is_kept: bool) -> None:
        """Offer a session frames here and nowhere else, or let others do it again."""
        if is_kept:
            if not self._kept:
                self._kept = {}
            self._kept[session] = None
        else:
            self._kept.pop(session, None)

    def offered(self, sessions: list[T]) -> list[T]:
        """The sessions that others offer frames: not ours, and not those whose deliveries wait here (R-8)."""
        return [session for session in sessions if session not in self._kept] if self._kept else sessions

    def release(self) -> None:
        """Something was read or written: go on where there is room now."""
        if self._blocked:
            for half in list(self._blocked):
                if half.has_room:
                    self._blocked.pop(half, None)
                    half.routed.on_room()
        if self._touched:
            for half in self._touched:
                half.adjust_window()
            self._touched.clear()

    def lose(self, why: str) -> None:
        """The connection has ended. What stands for a client's link to several addresses ends by itself (X-1)."""
        for half in list(self.halves):
            if isinstance(half.link, ReceiverLink | SenderLink):
                half.on_lost(why)


class Half:
    """One half."""

    __slots__ = ("carrier", "is_stopped", "link", "owns_session", "routed", "side")

    def __init__(self, routed: RoutedLink, side: Side, carrier: Carrier, link: NearLink, owns_session: bool) -> None:
        """Take the link's events from now on.

        Args:
            routed: the link it is a half of.
            side: which half.
            carrier: its connection.
            link: at the engine.
            owns_session: the session is for this link alone, so its window and its end are ours.
        """
        self.routed = routed
        self.side = side
        self.carrier = carrier
        self.link = link
        self.owns_session = owns_session
        self.is_stopped = False
        link.context = self
        carrier.routed.halves[self] = None
        if owns_session:
            carrier.routed.keep(link.session, True)

    @property
    def has_room(self) -> bool:
        """Whether a delivery that is sent now leaves at once."""
        return not (self.carrier.is_behind or self.link.session.is_queueing)

    def on_attached(self) -> None:
        """The other end has answered our attach."""
        assert self.link.remote_attach is not None
        self.routed.do(self.routed.core.on_answer(terms_of(self.link.remote_attach)))

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A delivery came in."""
        self.routed.on_delivery(event)
        self.carrier.routed.touch(self)

    def on_flow(self, event: LinkFlow) -> None:
        """A flow of this link came."""
        relay, link = self.routed.core, self.link
        self.routed.do(
            relay.on_receiver_flow(event, link.credit_limit)
            if isinstance(link, SenderLink)
            else relay.on_sender_flow(event)
        )

    def on_disposition(self, event: DispositionReceived) -> None:
        """Outcomes came, or settlements."""
        self.routed.do(self.routed.core.on_disposition(self.side, event))

    def on_detached(self, event: LinkDetached) -> None:
        """The link is detached by its end, or by the engine."""
        self.routed.do(self.routed.core.on_detached(self.side, event))

    def on_lost(self, why: str) -> None:
        """Session or connection have ended."""
        self.routed.do(self.routed.core.on_lost(self.side, why))

    def set_window(self, is_open: bool) -> None:
        """R-8: the session is offered frames, or none."""
        self.is_stopped = not is_open
        if self.owns_session:
            self.adjust_window()
        else:
            self.carrier.routed.keep(self.link.session, self.is_stopped)
        self.carrier.mark_dirty()

    def adjust_window(self) -> None:
        """Offer as many frames as `WINDOW_BYTES` are, of the size that frames of late had."""
        if not self.owns_session or not isinstance(self.link, ReceiverLink):
            return  # a client's session, see `CarriedLinks.offered`
        session = self.link.session
        counted = max(SMALLEST_FRAME, GROWTH * session.recent_frame)
        frames = max(1, min(MOST_FRAMES, WINDOW_BYTES // counted)) if session.knows_frames else FIRST_FRAMES
        wanted = 0 if self.is_stopped else frames
        if session.incoming_window != wanted:
            session.set_incoming_window(wanted)

    def detach(self, closed: bool, error: AmqpError | None) -> None:
        """Detach, answer a detach, or refuse."""
        with contextlib.suppress(StateError):  # link, session or connection are gone already
            try:
                self.link.detach(closed, error)
            except LocalProtocolError:  # the frames are too small for the explanation
                self.link.detach(closed, None if error is None else AmqpError(error.condition))
        self.carrier.mark_dirty()

    def forget(self) -> None:
        """Both halves are over."""
        self.carrier.routed.forget(self)
        if self.owns_session and self.side is Side.FAR:
            with contextlib.suppress(LocalProtocolError):
                self.link.session.end()
        self.carrier.mark_dirty()


class RoutedLink:
    """One routed link at this router: carries out what its core decides."""

    __slots__ = ("_max_message_size", "_on_over", "core", "far", "near")

    def __init__(
        self,
        carrier: Carrier,
        link: NearLink,
        owns_session: bool,
        limits: tuple[int, int],
        on_over: Callable[[RoutedLink], None],
    ) -> None:
        """An attach came; `far` is set before anything else happens.

        Args:
            carrier: where it came.
            link: the near half's.
            owns_session: whether the session is for this link alone.
            limits: bytes that may wait here, and bytes of the largest message.
            on_over: called when both halves are over.
        """
        held_bytes, self._max_message_size = limits
        is_inward = not isinstance(link, SenderLink)
        self.core = RelayCore(Side.NEAR if is_inward else Side.FAR, held_bytes)
        self.near = Half(self, Side.NEAR, carrier, link, owns_session)
        self.far: Half | None = None
        self._on_over = on_over

    def attach(self, carrier: Carrier, name: str, terms: Terms) -> None:
        """Attach the far half, in a session of its own.

        Raises:
            LocalProtocolError: the connection takes no more sessions, or the attach does not fit its frames.
        """
        session = carrier.engine.begin()
        try:
            if not isinstance(self.near.link, SenderLink):
                link: ReceiverLink | SenderLink = session.attach_sender(name, **_sender(terms))
            else:
                link = session.attach_receiver(name, **_receiver(terms, self._max_message_size))
        except LocalProtocolError:
            session.end()
            raise
        self.far = Half(self, Side.FAR, carrier, link, True)
        carrier.mark_dirty()

    def abandon(self) -> None:
        """The attach could not be forwarded: there is a near half only, and whoever asked refuses it."""
        self.near.carrier.routed.forget(self.near)
        self.near.link.context = None

    @property
    def halves(self) -> tuple[Half, Half]:
        """The half that comes in and the half that goes out."""
        assert self.far is not None
        return (self.near, self.far) if not isinstance(self.near.link, SenderLink) else (self.far, self.near)

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A delivery came in."""
        outward = self.halves[1]
        self.do(self.core.on_delivery(event, outward.has_room))
        if self.core.waiting:
            outward.carrier.routed.block(outward)

    def on_room(self) -> None:
        """The half that goes out takes more."""
        self.do(self.core.on_room())

    def do(self, effects: Iterable[core.Effect]) -> None:
        """Carry out effects."""
        inward, outward = self.halves
        for effect in effects:
            try:
                self._carry_out(effect, inward, outward)
            except StateError:  # gone meanwhile: its end is reported, and ends the other half
                continue
            except LocalProtocolError as error:
                condition = FRAME_SIZE_TOO_SMALL if isinstance(effect, core.Reply) else RESOURCE_LIMIT_EXCEEDED
                self.do(self.core.on_failed(AmqpError(condition, str(error))))
                return

    def _carry_out(self, effect: Any, inward: Half, outward: Half) -> None:
        source, sink = inward.link, outward.link
        assert not isinstance(source, SenderLink)
        assert isinstance(sink, SenderLink)
        if isinstance(effect, core.Send):
            each = effect.delivery
            number = sink.send(
                each.tag,
                each.payload,
                settled=each.settled,
                state=each.state,
                resume=each.resume,
                message_format=each.message_format,
                aborted=each.aborted,
            )
            self.core.sent(each, number)
            outward.carrier.mark_dirty()
        elif isinstance(effect, core.Dispose):
            source.dispose(effect.ids, effect.state, effect.settled)
            inward.carrier.mark_dirty()
        elif isinstance(effect, core.Settle):
            sink.settle(effect.ids, effect.state)
            outward.carrier.mark_dirty()
        elif isinstance(effect, core.Grant):
            credit = max(0, effect.limit - source.moved)
            source.grant(credit, drain=effect.drain, echo=effect.echo, properties=effect.properties)
            inward.carrier.mark_dirty()
        elif isinstance(effect, core.Skip):
            sink.skip(effect.count)
            outward.carrier.mark_dirty()
        elif isinstance(effect, core.State):
            sink.flow(effect.properties, effect.echo, effect.available)
            outward.carrier.mark_dirty()
        elif isinstance(effect, core.Window):
            inward.set_window(effect.is_open)
        elif isinstance(effect, core.Reply):
            self._reply(effect.terms)
        elif isinstance(effect, core.Detach):
            (self.near if effect.side is Side.NEAR else outward if inward is self.near else inward).detach(
                effect.closed, effect.error
            )
        elif isinstance(effect, core.Finished):
            self._finish()

    def _reply(self, terms: Terms) -> None:
        link = self.near.link
        is_inward = not isinstance(link, SenderLink)
        size = _smaller(terms.max_message_size, self._max_message_size) if is_inward else terms.max_message_size
        link.reply(
            source=terms.source,
            target=terms.target,
            unsettled=terms.unsettled,
            incomplete_unsettled=terms.incomplete_unsettled,
            snd_settle_mode=terms.snd_settle_mode,
            rcv_settle_mode=terms.rcv_settle_mode,
            initial_delivery_count=terms.initial_delivery_count,
            max_message_size=size,
            offered_capabilities=terms.offered_capabilities,
            desired_capabilities=terms.desired_capabilities,
            properties=terms.properties,
        )
        for half in self.halves:
            half.adjust_window()
        self.near.carrier.mark_dirty()

    def _finish(self) -> None:
        for half in self.halves:
            half.forget()
        self._on_over(self)


def _smaller(size: int | None, limit: int) -> int:
    return min(size, limit) if size else limit


def _common(terms: Terms) -> dict[str, Any]:
    return {
        "source": terms.source,
        "target": terms.target,
        "snd_settle_mode": terms.snd_settle_mode,
        "rcv_settle_mode": terms.rcv_settle_mode,
        "unsettled": terms.unsettled,
        "incomplete_unsettled": terms.incomplete_unsettled,
        "offered_capabilities": terms.offered_capabilities,
        "desired_capabilities": terms.desired_capabilities,
        "properties": terms.properties,
    }


def _sender(terms: Terms) -> dict[str, Any]:
    count, size = terms.initial_delivery_count, terms.max_message_size
    return {**_common(terms), "initial_delivery_count": count, "max_message_size": size}


def _receiver(terms: Terms, limit: int) -> dict[str, Any]:
    return {**_common(terms), "max_message_size": _smaller(terms.max_message_size, limit)}
