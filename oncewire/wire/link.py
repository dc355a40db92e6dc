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
from typing import TYPE_CHECKING

from oncewire.wire.deliveries import MAX_TAG_SIZE, SERIAL_MASK
from oncewire.wire.errors import ILLEGAL_STATE, INVALID_FIELD, LocalProtocolError, StateError
from oncewire.wire.events import LinkDetached, LinkFlow
from oncewire.wire.performatives import (
    AmqpError,
    Attach,
    Detach,
    Fields,
    Flow,
    Source,
    Target,
    Transfer,
    UnsettledMap,
)
from oncewire.wire.states import LINK_NEXT, LinkState, Step
from oncewire.wire.transactions import NO_TRANSACTIONS, UNKNOWN_TRANSACTION, acquires
from oncewire.wire.types import Described, Symbol

if TYPE_CHECKING:
    from oncewire.wire.connection import Connection
    from oncewire.wire.session import AmqpSession

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


class Link:
    """One end of a link. See ``SenderLink`` and ``ReceiverLink``.

    Attributes:
        name: the link's name; with the container-ids and the direction it names the link for good.
        session: the AMQP session it is attached to.
        is_sender: True if deliveries go from here to the peer.
        context: a slot for the owner; the engine never looks at it.
        local_attach: the attach we sent, None before.
        remote_attach: the attach the peer sent, None before.
        state: see ``LinkState``.
        handle: our handle of it, for logs.
        unsettled_tags: delivery-id -> tag of what is unsettled on this attach; the engine's own.
    """

    __slots__ = (
        "_credit_limit",
        "_echo_due",
        "_initial_delivery_count",
        "_moved",
        "_reported",
        "context",
        "detach_written",
        "handle",
        "is_sender",
        "local_attach",
        "name",
        "remote_attach",
        "session",
        "state",
        "unsettled_tags",
    )

    def __init__(self, session: AmqpSession, name: str, is_sender: bool) -> None:
        self.session = session
        self.name = name
        self.is_sender = is_sender
        self.context: object = None
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        self.state = LinkState.INITIAL
        self.handle = -1
        self.detach_written = False
        self.unsettled_tags: dict[int, bytes] = {}
        # Both count from 0 at the attach and never wrap: deliveries that used credit, and the number of them allowed.
        self._moved = 0
        self._credit_limit = 0
        self._initial_delivery_count = 0
        self._echo_due = False
        self._reported = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle={self.handle} {self.state.name}>"

    @property
    def connection(self) -> Connection:
        """The connection the link lives on."""
        return self.session.connection

    @property
    def is_attached(self) -> bool:
        """Whether both attaches are exchanged and no detach."""
        return self.state is LinkState.ATTACHED

    @property
    def delivery_count(self) -> int:
        """The delivery-count as a 32-bit serial number (2.6.7); at a receiver the last one known."""
        return (self._initial_delivery_count + self._moved) & SERIAL_MASK

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
        """Detach because of what the peer did, and tell the owner at once."""
        error = AmqpError(condition, description)
        self.detach(closed, error)
        self._report(closed, error, False)

    def _report(self, closed: bool, error: AmqpError | None, needs_answer: bool) -> None:
        if not self._reported:
            self._reported = True
            self.session.pending_events.append(LinkDetached(self, closed, error, needs_answer))

    def write_attach(self, options: AttachOptions) -> None:
        """Send our attach."""
        following = LINK_NEXT[self.state, Step.SEND_START]
        session = self.session
        handle = session.take_handle(self) if self.handle < 0 else self.handle
        size = options.max_message_size
        if not self.is_sender and size is None:
            size = DEFAULT_MAX_MESSAGE_SIZE
        attach = Attach(
            self.name,
            handle,
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
        try:
            session.write_ordered(self, attach)
        except LocalProtocolError:
            if self.handle < 0:
                session.give_back_handle(handle)
            raise
        self.handle = handle
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
        if self.state is not LinkState.DETACH_SENT and any(
            len(tag) > MAX_TAG_SIZE for tag in attach.unsettled or ()
        ):
            text = f"a delivery-tag of the unsettled map has more than {MAX_TAG_SIZE} bytes (2.8.7)"
            self.detach_faulty(INVALID_FIELD, text, self.local_attach is None)

    def receive_detach(self, detach: Detach) -> None:
        """Take the peer's detach and answer it, unless that is the owner's decision (E-8, I-8)."""
        detaching = self.state is LinkState.DETACH_SENT
        needs_answer = detach.closed and detach.error is None and not detaching
        self.state = LINK_NEXT[self.state, Step.RECEIVE_END]
        self.stop()
        self._report(detach.closed, detach.error, needs_answer)
        if detaching:
            self.session.release(self)
        elif not needs_answer:
            self.detach(detach.closed)

    def stop(self) -> None:
        """Drop what belongs to this attach only; from now on no delivery moves."""
        self._credit_limit = self._moved
        session = self.session
        (session.sent_unsettled if self.is_sender else session.received_unsettled).forget(self)

    # --- frames -------------------------------------------------------------------------------------------------------

    def receive_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery; only a receiver does so."""
        self.session.end_faulty(ILLEGAL_STATE, "a transfer came from the receiving end of a link")

    def receive_whole(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, message_format: int
    ) -> None:
        """Take a delivery that came in one frame."""
        self.receive_transfer(Transfer(self.handle, delivery_id, tag, message_format, settled), payload)

    def receive_flow(self, flow: Flow) -> None:
        """Take a flow of the peer that names this link."""
        if self.state is LinkState.DETACH_SENT:
            return
        if acquires(flow.properties):  # 4.4.3
            self.detach_faulty(UNKNOWN_TRANSACTION, NO_TRANSACTIONS)
            return
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

    def answer_echo(self) -> None:
        """Send the state of the link because the peer asked for it."""
        raise NotImplementedError

    def _check_flow_allowed(self) -> None:
        if self.state is not LinkState.ATTACHED and self.state is not LinkState.ATTACH_SENT:
            raise StateError(f"no flow can be sent on link {self.name!r}: it is {self.state.name}")


def symbols(values: Sequence[str]) -> tuple[Symbol, ...]:
    """Return capabilities as AMQP symbols."""
    return tuple(Symbol(value) for value in values)
