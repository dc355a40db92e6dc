"""The receiving end of a link: credit, deliveries, dispositions (AMQP 1.0 part 2, sections 2.6.7, 2.6.12 and 2.6.14).

Methods called ``receive_*``, ``stop`` and ``write_*`` are for the engine only.

Credit is kept as two totals. `_credit_limit` is how many deliveries may have come in all; the link-credit of a flow is
what is left of it. A flow that lowers it may cross transfers in flight, so what counts as a fault is measured against
`_hard_limit`, the most that was ever granted. A sender's own delivery-count moves ours forward and never back, for
going back would give credit that nobody granted.

A delivery of one frame that has nothing special takes a short way (`receive_whole`). One of several frames becomes an
``IncomingDelivery`` with the first. Later frames are checked against it: another id, tag or message-format detaches
the link. Its pieces are joined when the last one has come. A delivery longer than `stream_above` is not put together:
what has come is handed on, then each frame as a part, and only its size is kept. One that is known to be settled is
put together nevertheless, and `most_kept` bounds it.

What arrives unsettled is noted in the session, because delivery-ids count per session. An id that is unsettled already
ends the session. `dispose` states outcomes, also behind the peer's detach for as long as that is not answered, and
joins neighbouring ids into ranges.

A fault of the peer detaches the link, and raises nothing here. Transfers behind our own detach were in flight and are
dropped; more of them than the session's largest window end the session.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.wire.deliveries import MAX_TAG_SIZE, IncomingDelivery
from oncewire.wire.delivery_parts import DeliveryAborted, DeliveryBegun, DeliveryEnded, DeliveryPart
from oncewire.wire.errors import (
    ERRANT_LINK,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    LimitError,
    StateError,
)
from oncewire.wire.link import DEFAULT_MAX_MESSAGE_SIZE, AttachOptions, Link
from oncewire.wire.performatives import DeliveryState, Fields, Flow, ReceiverSettleMode, Transfer
from oncewire.wire.session_endpoint import SessionEndpoint
from oncewire.wire.states import LINK_ATTACHED, LinkState
from oncewire.wire.transactions import NO_TRANSACTIONS, UNKNOWN_TRANSACTION, is_transactional
from oncewire.wire.unsettled import SERIAL_MASK, serial_difference
from oncewire.wire.whole_delivery import WholeDeliveries


class DeliveryReceived:
    """A whole delivery arrived (several frames are put together), or an aborted one was given up.

    Attributes:
        link: the receiver link.
        delivery_id: names the delivery on this session until it is settled.
        tag: up to 32 bytes, may be empty (2.8.7).
        payload: the encoded message; empty for an aborted delivery and for a resumed one that only states a state.
        settled: the sender has settled it: it must not be disposed of.
        resume: the sender means a delivery that both ends held before this attach (2.6.13).
        state: the sender's state of it, None as a rule.
        message_format: 0 for an AMQP message.
        aborted: drop it; it counts as settled.
        receiver_settles: on a link of rcv-settle-mode second, the sender asks for mode first for this delivery: the
            receiver must settle it together with its outcome, and not wait for the sender (2.7.5).
    """

    __slots__ = (
        "aborted",
        "delivery_id",
        "link",
        "message_format",
        "payload",
        "receiver_settles",
        "resume",
        "settled",
        "state",
        "tag",
    )

    def __init__(
        self,
        link: ReceiverLink,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool = False,
        resume: bool = False,
        state: DeliveryState | None = None,
        message_format: int = 0,
        aborted: bool = False,
        receiver_settles: bool = False,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.resume = resume
        self.state = state
        self.message_format = message_format
        self.aborted = aborted
        self.receiver_settles = receiver_settles

    def __repr__(self) -> str:
        return (
            f"DeliveryReceived(link={self.link!r}, delivery_id={self.delivery_id}, tag={self.tag!r},"
            f" payload={len(self.payload)} bytes, settled={self.settled}, resume={self.resume}, state={self.state!r},"
            f" message_format={self.message_format}, aborted={self.aborted},"
            f" receiver_settles={self.receiver_settles})"
        )


class ReceiverLink(Link):
    """The receiving end of a link.

    Attributes:
        stream_above: an unsettled delivery of which more bytes than this have come, and not all, is handed on part by
            part (see ``delivery_parts``); None: each delivery is put together here.
        most_kept: bytes of the largest delivery of several frames that is put together here; None = as the attach says.
        why_kept: what a sender gets beside that limit.
    """

    __slots__ = ("_errant", "_hard_limit", "_max_message_size", "_partial", "most_kept", "stream_above", "why_kept")

    def __init__(self, session: SessionEndpoint, name: str) -> None:
        super().__init__(session, name, False)
        self.stream_above: int | None = None
        self.most_kept: int | None = None
        self.why_kept = ""
        self._partial: IncomingDelivery | None = None
        self._max_message_size = DEFAULT_MAX_MESSAGE_SIZE
        # Credit that was granted once may be used in flight after it was lowered: the most ever allowed.
        self._hard_limit = 0
        self._errant = 0

    def write_attach(self, options: AttachOptions) -> None:
        """Send our attach."""
        super().write_attach(options)
        self._max_message_size = options.max_message_size or DEFAULT_MAX_MESSAGE_SIZE

    def halt(self) -> None:
        """The peer sends no more; the outcomes of what has come may still be stated."""
        self._credit_limit = self._moved
        self._drop_partial()

    def stop(self) -> None:
        """Drop what belongs to this attach only; from now on no delivery moves."""
        super().stop()
        self._drop_partial()

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self.session.partial_bytes -= self._partial.kept
            if self._partial.is_streamed:
                self.session.streamed -= 1
            self._partial = None

    @property
    def incoming(self) -> tuple[int, int] | None:
        """Delivery-id of a delivery that has come in part, and its bytes so far."""
        partial = self._partial
        return None if partial is None else (partial.delivery_id, partial.size)

    # --- credit -------------------------------------------------------------------------------------------------------

    def grant(
        self, link_credit: int, *, drain: bool = False, echo: bool = False, properties: Fields | None = None
    ) -> None:
        """Set the credit: so many deliveries more than were received until now (2.6.7).

        Args:
            link_credit: not added to what is left but instead of it. Lowering it does not call back deliveries in
                flight.
            drain: the sender is to use the credit at once or give it back; its answer comes as ``LinkFlow``.
            echo: ask for the peer's state; its answer comes as ``LinkFlow``.
            properties: link state properties, passed through.

        Raises:
            StateError: our attach is not sent, or the link is detached.
            LimitError: not a 32-bit number.
        """
        self._check_flow_allowed()
        if not 0 <= link_credit <= SERIAL_MASK:
            raise LimitError(f"link credit is between 0 and {SERIAL_MASK}, not {link_credit}")
        self._credit_limit = self._moved + link_credit
        if self._credit_limit > self._hard_limit:
            self._hard_limit = self._credit_limit
        self._write_flow(drain, echo, properties)

    def flow(self, properties: Fields | None = None, echo: bool = False) -> None:
        """Send the peer the state of the link without changing the credit.

        Args:
            properties: link state properties, passed through.
            echo: ask for the peer's state; its answer comes as ``LinkFlow``.

        Raises:
            StateError: our attach is not sent, or the link is detached.
        """
        self._check_flow_allowed()
        self._write_flow(False, echo, properties)

    def answer_echo(self) -> None:
        """Send the state of the link because the peer asked for it."""
        self._write_flow(False, False, None)

    def _write_flow(self, drain: bool, echo: bool, properties: Fields | None) -> None:
        # 2.7.4: before the sender's attach is seen its delivery-count is unknown and must not be set.
        count = None if self.remote_attach is None else self.delivery_count
        flow = Flow(None, 0, 0, 0, self.handle, count, self.credit)
        flow.drain = drain
        flow.echo = echo
        flow.properties = properties
        self.session.write(flow)

    def take_flow(self, flow: Flow) -> int | None:
        """Bring our picture of the peer up to date and return the credit limit to report."""
        if flow.delivery_count is not None:
            # The sender's word counts, but going back would give it credit that was never granted.
            ahead = serial_difference(flow.delivery_count, self.delivery_count)
            if ahead > 0:
                self._moved += ahead
        return None

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def dispose(self, delivery_ids: Sequence[int], state: DeliveryState | None, settled: bool) -> None:
        """Send the sender the state of deliveries. Ids that are settled already are skipped.

        Neighbouring ids go out as one range, so pass them in ascending order.

        Args:
            delivery_ids: from ``DeliveryReceived``.
            state: the outcome, as a rule.
            settled: True = we forget them now; False = the sender settles later (rcv-settle-mode second).

        Raises:
            StateError: the link is not attached, and waits for no answer to the peer's detach.
            LimitError: the state does not fit a frame of the peer.
        """
        if self.state is not LinkState.ATTACHED and self.state is not LinkState.DETACH_RECEIVED:
            raise StateError(f"nothing can be disposed of on link {self.name!r}: it is {self.state.name}")
        session = self.session
        session.check_state_size(True, settled, state)
        for first, last in session.received_unsettled.merge(self, delivery_ids, settled):
            session.write_disposition(True, first, last, settled, state)

    def receive_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery."""
        # 4.4.1: published outside of its transaction, it could not be rolled back.
        if self.state is LINK_ATTACHED and is_transactional(transfer.state):
            self.detach_faulty(UNKNOWN_TRANSACTION, NO_TRANSACTIONS)
            return
        if self._partial is not None:
            self._continue(self._partial, transfer, payload)
            return
        moved = self._moved
        if moved >= self._hard_limit or self.state is not LINK_ATTACHED:
            self._reject_uncredited()
            return
        delivery_id = transfer.delivery_id
        tag = transfer.delivery_tag
        # 2.7.5: both must be there on the first frame. A tag that is empty is there (2.8.7).
        if delivery_id is None or tag is None or len(tag) > MAX_TAG_SIZE:
            self.detach_faulty(
                INVALID_FIELD, f"the first frame of a delivery needs an id and a tag of at most {MAX_TAG_SIZE} bytes"
            )
            return
        mode = transfer.rcv_settle_mode
        if mode is not None and not self._check_settle_mode(transfer, mode):
            return
        self._moved = moved + 1
        if transfer.more or transfer.aborted:
            partial = IncomingDelivery(delivery_id, tag, transfer.message_format or 0, transfer.resume)
            self._partial = partial
            self._continue(partial, transfer, payload)
            return
        if len(payload) > self._max_message_size:
            self._too_large()
            return
        settled = transfer.settled is True
        message_format = transfer.message_format or 0
        settles = self._receiver_settles(mode)
        self._complete(delivery_id, tag, payload, settled, transfer.resume, transfer.state, message_format, settles)

    def receive_whole(self, whole: WholeDeliveries) -> None:
        """Take a delivery that came in one frame: the short way where nothing is special about it."""
        moved = self._moved
        session = self.session
        unsettled = session.received_unsettled
        payload = whole.payload
        delivery_id = whole.delivery_id
        if (
            moved >= self._hard_limit
            or self.state is not LINK_ATTACHED
            or self._partial is not None
            or len(payload) > self._max_message_size
            or not unsettled.takes(delivery_id)
        ):
            super().receive_whole(whole)
            return
        self._moved = moved + 1
        tag = whole.tag
        settled = whole.settled
        if not settled:
            unsettled.add(delivery_id, self, tag)
        session.pending_events.append(
            DeliveryReceived(self, delivery_id, tag, payload, settled, False, None, whole.message_format)
        )

    @property
    def _settles_first(self) -> bool:
        """2.8.3: whether this end settles at once. What the receiver says in its attach is the mode in use (2.7.3)."""
        attach = self.local_attach
        assert attach is not None  # deliveries come on attached links only
        return attach.rcv_settle_mode == ReceiverSettleMode.FIRST

    def _check_settle_mode(self, transfer: Transfer, mode: int) -> bool:
        """Detach the link and return False if this frame may not carry this rcv-settle-mode."""
        if mode > ReceiverSettleMode.SECOND:
            self.detach_faulty(INVALID_FIELD, f"{mode} is no rcv-settle-mode (2.8.3)")
            return False
        # 2.7.5: "If the negotiated link value is first, then it is illegal to set this field to second." It is
        # ignored on what is sent settled.
        if mode == ReceiverSettleMode.SECOND and self._settles_first and not transfer.settled:
            self.detach_faulty(INVALID_FIELD, "rcv-settle-mode second on a transfer of a link whose mode is first")
            return False
        return True

    def _receiver_settles(self, mode: int | None) -> bool:
        """2.7.5: "If first, this indicates that the receiver MUST settle the delivery once it has arrived"."""
        return mode == ReceiverSettleMode.FIRST and not self._settles_first

    def _continue(self, partial: IncomingDelivery, transfer: Transfer, payload: bytes) -> None:
        """Add a frame to the delivery that is coming in."""
        if not self._check_continuation(partial, transfer):
            return
        if transfer.settled:  # 2.7.5: on any frame of a delivery
            partial.settled = True
        if transfer.state is not None:
            partial.state = transfer.state
        if transfer.aborted:
            self._abort(partial)
            return
        partial.size += len(payload)
        if partial.is_streamed:
            self._stream(partial, transfer.more, payload)
            return
        above = self.stream_above
        begins = above is not None and transfer.more and not partial.settled and partial.size > above
        if self.most_kept is not None and partial.size > self.most_kept and not begins:
            self._too_large_to_keep(self.most_kept)
            return
        if partial.size > self._max_message_size:
            self._too_large()
            return
        partial.keep(payload)
        self.session.partial_bytes += len(payload)
        if begins:
            self._begin_stream(partial)
        elif not transfer.more:
            self._drop_partial()
            self._complete(
                partial.delivery_id,
                partial.tag,
                partial.take(),
                partial.settled,
                partial.resume,
                partial.state,
                partial.message_format,
                partial.receiver_settles,
            )

    def _check_continuation(self, partial: IncomingDelivery, transfer: Transfer) -> bool:
        """Detach the link and return False if this frame cannot be one of the delivery that is coming in."""
        named = transfer.delivery_id
        tag = transfer.delivery_tag
        if (named is not None and named != partial.delivery_id) or (tag is not None and tag != partial.tag):
            self.detach_faulty(INVALID_FIELD, "another delivery began before the last frame of the one before")
            return False
        message_format = transfer.message_format
        # 2.7.5: "It is an error if the message-format on a continuation transfer differs from the message-format on
        # the first transfer of a delivery."
        if message_format is not None and message_format != partial.message_format:
            self.detach_faulty(
                INVALID_FIELD,
                f"the message-format of a delivery changes from {partial.message_format} to {message_format}",
            )
            return False
        mode = transfer.rcv_settle_mode
        if mode is not None:
            if not self._check_settle_mode(transfer, mode):
                return False
            partial.receiver_settles = self._receiver_settles(mode)
        return True

    def _abort(self, partial: IncomingDelivery) -> None:
        """The sender gives up the delivery that is coming in; it counts as settled."""
        self._drop_partial()
        if partial.is_streamed:
            self.session.received_unsettled.merge(self, [partial.delivery_id], True)
            self.session.pending_events.append(DeliveryAborted(self, partial.delivery_id))
            return
        event = DeliveryReceived(self, partial.delivery_id, partial.tag, b"", True, partial.resume)
        event.state = partial.state
        event.message_format = partial.message_format
        event.aborted = True
        self.session.pending_events.append(event)

    def _begin_stream(self, partial: IncomingDelivery) -> None:
        """Hand on what has come of a large delivery; nothing of it is kept from here on."""
        if not self._add_unsettled(partial.delivery_id, partial.tag):
            return
        self.session.partial_bytes -= partial.kept
        payload = partial.take()
        self.session.streamed += 1
        partial.is_streamed = True
        self.session.pending_events.append(
            DeliveryBegun(
                self,
                partial.delivery_id,
                partial.tag,
                payload,
                partial.resume,
                partial.message_format,
                partial.receiver_settles,
            )
        )

    def _stream(self, partial: IncomingDelivery, more: bool, payload: bytes) -> None:
        session = self.session
        if partial.size > self._max_message_size:
            self._too_large()
        elif not more:
            self._drop_partial()
            if partial.settled:
                session.received_unsettled.merge(self, [partial.delivery_id], True)
            session.pending_events.append(DeliveryEnded(self, partial.delivery_id, payload, partial.settled))
        elif payload:
            session.pending_events.append(DeliveryPart(self, partial.delivery_id, payload))

    def _add_unsettled(self, delivery_id: int, tag: bytes) -> bool:
        """Take note of an unsettled delivery; False: its id cannot be distinguished, and the session ends."""
        session = self.session
        unsettled = session.received_unsettled
        if not unsettled.takes(delivery_id):
            text = f"delivery-id {delivery_id} is unsettled already, or 2**31 ahead of one that is"
            session.end_faulty(INVALID_FIELD, text)
            return False
        unsettled.add(delivery_id, self, tag)
        return True

    def _complete(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        resume: bool,
        state: DeliveryState | None,
        message_format: int,
        receiver_settles: bool,
    ) -> None:
        if not settled and not self._add_unsettled(delivery_id, tag):
            return
        event = DeliveryReceived(self, delivery_id, tag, payload, settled, resume, state, message_format)
        event.receiver_settles = receiver_settles and not settled
        self.session.pending_events.append(event)

    def _too_large(self) -> None:
        self.detach_faulty(
            MESSAGE_SIZE_EXCEEDED, f"a message is larger than the {self._max_message_size} bytes this link takes"
        )

    def _too_large_to_keep(self, most: int) -> None:
        text = f"a message of more than {most} bytes is not stored whole"
        self.detach_faulty(MESSAGE_SIZE_EXCEEDED, f"{text}: {self.why_kept}" if self.why_kept else text)

    def _reject_uncredited(self) -> None:
        if self.state is not LinkState.DETACH_SENT:
            self.detach_faulty(TRANSFER_LIMIT_EXCEEDED, "a transfer came without link credit")
            return
        # Frames in flight when our detach went out are harmless. They may have been offered by a window that was larger
        # than the one of now (2.5.6).
        self._errant += 1
        if self._errant > self.session.largest_window:
            self.session.end_faulty(ERRANT_LINK, "transfers go on coming on a link after its detach")
