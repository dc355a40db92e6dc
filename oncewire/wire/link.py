"""Links: attach, credit, deliveries, detach (AMQP 1.0 part 2, section 2.6).

A ``Link`` is made by ``AmqpSession.attach_sender`` or ``attach_receiver``, or by the peer's attach (``LinkAttached``).
It lives for one attach: after ``LinkDetached`` or the end of its session or connection every command raises
``StateError``, and re-attaching makes a new object. What outlives an attach, the unsettled maps, belongs to the owner
and goes in and out through ``unsettled`` of both attaches, untouched.

Methods called ``receive_*``, ``stop`` and ``write_*`` are for the engine only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncewire.wire.deliveries import MAX_TAG_SIZE
from oncewire.wire.errors import ILLEGAL_STATE, INVALID_FIELD, StateError
from oncewire.wire.link_endpoint import LinkEndpoint
from oncewire.wire.performatives import (
    AmqpError,
    Attach,
    DeliveryState,
    Detach,
    Fields,
    Flow,
    Source,
    Target,
    Transfer,
    UnsettledMap,
)
from oncewire.wire.session_endpoint import SessionEndpoint
from oncewire.wire.states import LINK_NEXT, LinkState, Step
from oncewire.wire.transactions import NO_TRANSACTIONS, UNKNOWN_TRANSACTION, acquires
from oncewire.wire.types import Described, Symbol
from oncewire.wire.unsettled import SERIAL_MASK
from oncewire.wire.whole_delivery import WholeDeliveries

# The body of one delivery is held in memory until it is complete (I-1a): the most a receiver link takes if its owner
# names no limit, the same as the router's cap.
DEFAULT_MAX_MESSAGE_SIZE = 64 << 20


@dataclass
class AttachOptions:
    """What both ends of a link may say in their attach (2.7.3), apart from name, handle and role."""

    source: Source | None = None
    target: Target | Described | None = None
    snd_settle_mode: int = 0
    rcv_settle_mode: int = 1
    unsettled: UnsettledMap | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int = 0
    max_message_size: int | None = None
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: Fields | None = None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer's attach arrived: ``link.remote_attach``.

    If ``link.local_attach`` is None the peer began it, and the owner must call ``link.reply()`` or ``link.refuse()``,
    now or later.
    """

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link is detached; its object is dead, a new attach makes a new one.

    Attributes:
        link: the link.
        closed: False = suspended, its state is kept; True = ended for good (2.6.4).
        error: the peer's error, or ours when the engine detached because of what the peer sent.
        needs_answer: the peer closed an attached link without an error, or detached one whose owner
            ``answers_detach``: the owner must call ``link.detach(closed)`` when it has carried that out (E-8, I-8,
            A-9a). Until then a receiver may state outcomes. In all other cases the engine has answered.
    """

    link: Link
    closed: bool
    error: AmqpError | None
    needs_answer: bool


@dataclass(frozen=True, slots=True)
class LinkFlow:
    """A flow of the peer that names a link (2.7.4).

    Attributes:
        link: the link.
        credit_limit: at a sender, how many deliveries the peer allows in total on this attach, counted from 0 and never
            wrapped: the next one may be sent while fewer than this were. None at a receiver.
        delivery_count: the peer's delivery-count as it was sent; None if absent.
        available: at a receiver, how many deliveries the sender says are waiting; None if absent.
        drain: the receiver wants its credit used or given back: answer with ``SenderLink.drained()``.
        echo: the peer asks for our state. The engine has answered, unless ``properties`` is not None: then the owner
            answers with ``flow()``, ``grant()`` or ``drained()`` (A-4).
        properties: link state properties, None if absent.
        skipped: at a receiver, how many deliveries' credit the sender gave back with this flow (2.6.7).
    """

    link: Link
    credit_limit: int | None
    delivery_count: int | None
    available: int | None
    drain: bool
    echo: bool
    properties: Fields | None
    skipped: int = 0


class DispositionReceived:
    """The peer stated an outcome of deliveries of one link, or settled them (2.7.6).

    A frame that spans links gives one event per link, and a long one may give several. What decides nothing is not
    reported: a state that is no outcome, and an outcome behind another, for the first one is final (3.4).

    Attributes:
        link: a sender link when the receiver speaks, a receiver link when the sender settles.
        ids, tags: delivery-id and tag of each delivery that it changes, in the order of their ids.
        state: the outcome; with ``settled`` any state, None if absent.
        settled: the peer has settled them; they are forgotten by the engine and may not be disposed of any more.
    """

    __slots__ = ("ids", "link", "settled", "state", "tags")

    def __init__(
        self, link: Link, ids: list[int], tags: list[bytes], state: DeliveryState | None, settled: bool
    ) -> None:
        self.link = link
        self.ids = ids
        self.tags = tags
        self.state = state
        self.settled = settled

    @property
    def deliveries(self) -> list[tuple[int, bytes]]:
        """(delivery-id, tag) of each."""
        return list(zip(self.ids, self.tags, strict=True))

    def __repr__(self) -> str:
        return (
            f"DispositionReceived(link={self.link!r}, deliveries={self.deliveries!r}, state={self.state!r},"
            f" settled={self.settled})"
        )


class Link(LinkEndpoint):
    """One end of a link. See ``SenderLink`` and ``ReceiverLink``.

    Attributes:
        session: the AMQP session it is attached to.
        answers_detach: whether the owner answers a detach that does not close the link, too.
        context: a slot for the owner; the engine never looks at it.
        local_attach: the attach we sent, None before.
        remote_attach: the attach the peer sent, None before.
    """

    __slots__ = (
        "_credit_limit",
        "_echo_due",
        "_initial_delivery_count",
        "_moved",
        "_reported",
        "answers_detach",
        "context",
        "local_attach",
        "remote_attach",
        "session",
    )

    def __init__(self, session: SessionEndpoint, name: str, is_sender: bool) -> None:
        super().__init__(name, is_sender)
        self.session = session
        self.context: object = None
        self.answers_detach = False
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        # Both count from 0 at the attach and never wrap: deliveries that used credit, and the number of them allowed.
        self._moved = 0
        self._credit_limit = 0
        self._initial_delivery_count = 0
        self._echo_due = False
        self._reported = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle={self.handle} {self.state.name}>"

    @property
    def is_attached(self) -> bool:
        """Whether both attaches are exchanged and no detach."""
        return self.state is LinkState.ATTACHED

    @property
    def delivery_count(self) -> int:
        """The delivery-count as a 32-bit serial number (2.6.7); at a receiver the last one known."""
        return (self._initial_delivery_count + self._moved) & SERIAL_MASK

    @property
    def moved(self) -> int:
        """Deliveries that used credit since the attach, counted from 0 and never wrapped."""
        return self._moved

    @property
    def credit(self) -> int:
        """How many deliveries may still move on the credit granted so far."""
        left = self._credit_limit - self._moved
        return left if left > 0 else 0

    # --- attach and detach --------------------------------------------------------------------------------------------

    def reply(
        self,
        *,
        source: Source | None = None,
        target: Target | Described | None = None,
        unsettled: UnsettledMap | None = None,
        incomplete_unsettled: bool = False,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Fields | None = None,
    ) -> None:
        """Answer the peer's attach with ours.

        Args:
            source, target: as granted, which may be less than the peer asked for (2.6.3).
            unsettled: None = not resumed; {} = resumed with nothing unsettled here (A-3a).
            incomplete_unsettled: the map did not fit; no new delivery may be sent on this attach (C-4).
            snd_settle_mode, rcv_settle_mode: None = as the peer asked.
            initial_delivery_count: at a sender only.
            max_message_size: bytes; at a receiver None means ``DEFAULT_MAX_MESSAGE_SIZE``.
            offered_capabilities, desired_capabilities, properties: as in attach.

        Raises:
            StateError: the peer's attach is not waiting for an answer.
            LimitError: the attach is larger than the peer's max-frame-size; ``unsettled_map_bound`` gives the limit.
        """
        remote = self.remote_attach
        if self.state is not LinkState.ATTACH_RECEIVED or remote is None:
            raise StateError(f"link {self.name!r} waits for no reply: it is {self.state.name}")
        self.write_attach(
            AttachOptions(
                source,
                target,
                remote.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                remote.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                unsettled,
                incomplete_unsettled,
                initial_delivery_count,
                max_message_size,
                symbols(offered_capabilities),
                symbols(desired_capabilities),
                properties,
            )
        )
        if self._echo_due:
            self._echo_due = False
            self.answer_echo()

    def refuse(self, error: AmqpError) -> None:
        """Refuse the peer's attach for good: an attach without termini, then a closing detach with ``error`` (A-8).

        Raises:
            StateError: the attach is answered already, or gone.
            LimitError: the error is too large for the peer's frames.
        """
        if self.local_attach is not None:
            raise StateError(f"link {self.name!r} cannot be refused any more: its attach is answered")
        self.detach(True, error)

    def detach(self, closed: bool, error: AmqpError | None = None) -> None:
        """Detach the link, or answer a detach that ``needs_answer``.

        Args:
            closed: False = suspend it, state stays at both ends; True = end it for good.
            error: why, if not on request.

        ``LinkDetached`` follows when the peer has answered. The peer's frames until then are ignored.

        Raises:
            StateError: it is detached, or detaching on our side already.
            LimitError: the error is too large for the peer's frames.
        """
        following = LINK_NEXT.get((self.state, Step.SEND_END))
        if following is None and self.state is not LinkState.ATTACH_RECEIVED:
            raise StateError(f"link {self.name!r} cannot be detached: it is {self.state.name}")
        if self.local_attach is None:
            # A detach needs a handle, and so an attach before it; null termini say that nothing is behind it.
            self.write_attach(AttachOptions())
            following = LINK_NEXT[self.state, Step.SEND_END]
        assert following is not None
        self.session.write_ordered(self, Detach(self.handle, closed, error))
        self.state = following
        self.stop()
        self.session.release(self)

    def detach_faulty(self, condition: Symbol, description: str, closed: bool = False) -> None:
        """Detach because of what the peer did, and notify the owner at once."""
        error = AmqpError(condition, description)
        self.detach(closed, error)
        self._report(closed, error, False)

    def _report(self, closed: bool, error: AmqpError | None, needs_answer: bool) -> None:
        if not self._reported:
            self._reported = True
            self.session.pending_events.append(LinkDetached(self, closed, error, needs_answer))

    def write_attach(self, options: AttachOptions) -> None:
        """Send our attach, under the handle the session gave."""
        following = LINK_NEXT[self.state, Step.SEND_START]
        size = options.max_message_size
        if not self.is_sender and size is None:
            size = DEFAULT_MAX_MESSAGE_SIZE
        attach = Attach(
            self.name,
            self.handle,
            not self.is_sender,
            options.snd_settle_mode,
            options.rcv_settle_mode,
            options.source,
            options.target,
            options.unsettled,
            options.incomplete_unsettled,
            options.initial_delivery_count if self.is_sender else None,
            size,
            options.offered_capabilities,
            options.desired_capabilities,
            options.properties,
        )
        self.session.write_ordered(self, attach)
        self.local_attach = attach
        self.state = following
        if self.is_sender:
            self._initial_delivery_count = options.initial_delivery_count

    def receive_attach(self, attach: Attach) -> None:
        """Take the peer's attach."""
        self.state = LINK_NEXT[self.state, Step.RECEIVE_START]
        self.remote_attach = attach
        if not self.is_sender:
            self._initial_delivery_count = attach.initial_delivery_count or 0
        longest = max(map(len, attach.unsettled or ()), default=0)
        if self.state is not LinkState.DETACH_SENT and longest > MAX_TAG_SIZE:
            text = f"a delivery-tag of the unsettled map has more than {MAX_TAG_SIZE} bytes (2.8.7)"
            self.detach_faulty(INVALID_FIELD, text, self.local_attach is None)

    def receive_detach(self, detach: Detach) -> None:
        """Take the peer's detach and answer it, unless that is the owner's decision (E-8, I-8)."""
        detaching = self.state is LinkState.DETACH_SENT
        needs_answer = (detach.closed or self.answers_detach) and detach.error is None and not detaching
        self.state = LINK_NEXT[self.state, Step.RECEIVE_END]
        if needs_answer:
            self.halt()
        else:
            self.stop()
        self._report(detach.closed, detach.error, needs_answer)
        if detaching:
            self.session.release(self)
        elif not needs_answer:
            self.detach(detach.closed)

    def halt(self) -> None:
        """The peer has ended the link, and our answer is still to come."""
        self.stop()

    def stop(self) -> None:
        """Drop what belongs to this attach only; from now on no delivery moves."""
        self._credit_limit = self._moved
        session = self.session
        (session.sent_unsettled if self.is_sender else session.received_unsettled).forget(self)

    # --- frames -------------------------------------------------------------------------------------------------------

    def receive_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery; only a receiver does so."""
        self.session.end_faulty(ILLEGAL_STATE, "a transfer came from the receiving end of a link")

    def receive_whole(self, whole: WholeDeliveries) -> None:
        """Take a delivery that came in one frame."""
        self.receive_transfer(
            Transfer(self.handle, whole.delivery_id, whole.tag, whole.message_format, whole.settled), whole.payload
        )

    def receive_disposition(
        self, ids: list[int], tags: list[bytes], state: DeliveryState | None, settled: bool
    ) -> None:
        """Take what the peer stated of deliveries of this link."""
        self.session.pending_events.append(DispositionReceived(self, ids, tags, state, settled))

    def receive_flow(self, flow: Flow) -> None:
        """Take a flow of the peer that names this link."""
        if self.state is LinkState.DETACH_SENT:
            return
        if acquires(flow.properties):  # 4.4.3
            self.detach_faulty(UNKNOWN_TRANSACTION, NO_TRANSACTIONS)
            return
        moved = self._moved
        credit_limit = self.take_flow(flow)
        self.session.pending_events.append(
            LinkFlow(
                self,
                credit_limit,
                flow.delivery_count,
                flow.available,
                flow.drain,
                flow.echo,
                flow.properties,
                self._moved - moved,
            )
        )
        if flow.echo and flow.properties is None:
            if self.local_attach is None:
                self._echo_due = True
            else:
                self.answer_echo()

    def take_flow(self, flow: Flow) -> int | None:
        """Bring our picture of the peer up to date and return the credit limit to report."""
        raise NotImplementedError

    def _check_flow_allowed(self) -> None:
        if self.state is not LinkState.ATTACHED and self.state is not LinkState.ATTACH_SENT:
            raise StateError(f"no flow can be sent on link {self.name!r}: it is {self.state.name}")


def symbols(values: Sequence[str]) -> tuple[Symbol, ...]:
    """Return capabilities as AMQP symbols."""
    return tuple(Symbol(value) for value in values)
