"""The sending end of a link: send, settle, drain (AMQP 1.0 part 2, sections 2.6.7, 2.6.12).

Methods called ``receive_*``, ``stop`` and ``write_*`` are for the engine only.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.wire.deliveries import MAX_TAG_SIZE, TRANSFER_HEAD_BOUND, OutgoingDelivery
from oncewire.wire.errors import CreditError, LimitError, StateError
from oncewire.wire.frames import FRAME_HEADER_SIZE
from oncewire.wire.link import Link
from oncewire.wire.performatives import Attach, DeliveryState, Disposition, Fields, Flow
from oncewire.wire.session_endpoint import SessionEndpoint
from oncewire.wire.states import LINK_ATTACHED, LinkState
from oncewire.wire.unsettled import SERIAL_MASK, serial_difference


class OpenDelivery:
    """A delivery whose payload comes bit by bit (2.6.14): what its next frames need."""

    __slots__ = ("delivery_id", "message_format", "resume", "settled", "size", "started", "state", "tag")

    def __init__(
        self,
        delivery_id: int,
        tag: bytes,
        settled: bool,
        state: DeliveryState | None,
        resume: bool,
        message_format: int,
    ) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.settled = settled
        self.state = state
        self.resume = resume
        self.message_format = message_format
        # Bytes of payload so far, and whether a part with the first frame was handed to the session.
        self.size = 0
        self.started = False


class SenderLink(Link):
    """The sending end of a link."""

    __slots__ = ("_draining", "_one_frame_payload", "_open")

    def __init__(self, session: SessionEndpoint, name: str) -> None:
        super().__init__(session, name, True)
        self._draining = False
        # Up to so many bytes of payload go out in one frame, without a closer look.
        self._one_frame_payload = 0
        self._open: OpenDelivery | None = None

    @property
    def credit_limit(self) -> int:
        """How many deliveries may move in all on this attach, counted as ``moved`` is.

        The limit of a ``LinkFlow`` is that of its frame: a later flow of the same read may have lowered it by the time
        that the event is looked at. This is the one to send by.
        """
        return max(self._credit_limit, self._moved)

    def receive_attach(self, attach: Attach) -> None:
        """Take the peer's attach."""
        super().receive_attach(attach)
        self._learn_frame_payload()

    def _learn_frame_payload(self) -> None:
        attach = self.remote_attach
        assert attach is not None
        size = self.session.send_frame_size - FRAME_HEADER_SIZE - TRANSFER_HEAD_BOUND
        if attach.max_message_size:
            size = min(size, attach.max_message_size)
        self._one_frame_payload = size

    def send(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool = False,
        state: DeliveryState | None = None,
        resume: bool = False,
        message_format: int = 0,
        aborted: bool = False,
    ) -> int:
        """Send a delivery and return its delivery-id; it uses one credit.

        Frames wait here while the peer's session window is closed. Tags must be unique among the deliveries of this
        link that either end holds unsettled; the engine does not keep a record of them.

        Args:
            tag: up to 32 bytes; an empty one is a tag like any other (2.8.7).
            payload: the encoded message; empty when only the state of a resumed delivery is sent.
            settled: no outcome is wanted and none will come.
            state: our state of the delivery, when it is resumed (2.6.13).
            resume: both ends hold it from before this attach.
            message_format: 0 for an AMQP message.
            aborted: give up a resumed delivery that cannot be resumed; it counts as settled.

        Raises:
            StateError: the link is not attached, or a delivery is begun and neither finished nor aborted.
            CreditError: no credit is left.
            LimitError: tag or message are over the limits of AMQP or the peer.
        """
        moved = self._moved
        if moved >= self._credit_limit:
            if self.state is not LinkState.ATTACHED:
                raise StateError(f"nothing can be sent on link {self.name!r}: it is {self.state.name}")
            raise CreditError(f"link {self.name!r} has no credit left")
        if self.state is not LINK_ATTACHED:
            raise StateError(f"nothing can be sent on link {self.name!r}: it is {self.state.name}")
        size = len(tag)
        if size > MAX_TAG_SIZE:
            raise LimitError(f"a delivery-tag has at most {MAX_TAG_SIZE} bytes, not {size}")
        session = self.session
        delivery_id = session.next_delivery_id
        if (
            state is not None
            or resume
            or aborted
            or message_format
            or len(payload) > self._one_frame_payload
            or not session.write_whole(self.handle, delivery_id, tag, settled, payload)
        ):
            self._queue(delivery_id, tag, payload, settled, state, resume, aborted, message_format)
        session.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        self._moved = moved + 1
        if not settled and not aborted:
            session.sent_unsettled.add(delivery_id, self, tag)
        return delivery_id

    def _queue(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
        message_format: int,
    ) -> None:
        """Send what needs more than one frame or more than a few fields, or must wait for the session window."""
        if self._open is not None:
            raise StateError(f"a delivery has begun on link {self.name!r}: finish or abort it first (2.6.14)")
        self._check_size(len(payload))
        self.session.send_in_parts(
            OutgoingDelivery(self.handle, delivery_id, tag, payload, settled, state, resume, aborted, message_format)
        )

    def _check_size(self, size: int) -> None:
        remote = self.remote_attach
        assert remote is not None
        if remote.max_message_size and size > remote.max_message_size:
            raise LimitError(
                f"the message has {size} bytes; the peer of link {self.name!r} takes {remote.max_message_size} at most"
            )

    # --- part by part -------------------------------------------------------------------------------------------------

    def begin(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool = False,
        state: DeliveryState | None = None,
        resume: bool = False,
        message_format: int = 0,
    ) -> int:
        """Begin a delivery whose payload is not all here, and return its delivery-id; it uses one credit.

        Nothing else can be sent on this link until ``finish`` or ``abort`` (2.6.14). A detach before that leaves the
        delivery as one that has come in part.

        Args:
            tag: as for ``send``.
            payload: the first bytes of the encoded message.
            settled, state, resume, message_format: as for ``send``.

        Raises:
            StateError: the link is not attached, or a delivery has begun on it already.
            CreditError: no credit is left.
            LimitError: tag or message are over the limits of AMQP or the peer.
        """
        if self.state is not LinkState.ATTACHED or self._open is not None:
            raise StateError(f"no delivery can begin on link {self.name!r}: {self._why_not()}")
        if self._moved >= self._credit_limit:
            raise CreditError(f"link {self.name!r} has no credit left")
        if len(tag) > MAX_TAG_SIZE:
            raise LimitError(f"a delivery-tag has at most {MAX_TAG_SIZE} bytes, not {len(tag)}")
        self._check_size(len(payload))
        session = self.session
        delivery_id = session.next_delivery_id
        begun = OpenDelivery(delivery_id, tag, settled, state, resume, message_format)
        session.send_in_parts(self._part(begun, payload, goes_on=True))
        begun.size, begun.started = len(payload), True
        self._open = begun
        # Whatever `send` is given goes to `_queue`, which refuses it: no test more for those that never begin one.
        self._one_frame_payload = -1
        session.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        self._moved += 1
        if not settled:
            session.sent_unsettled.add(delivery_id, self, tag)
        return delivery_id

    def send_part(self, payload: bytes) -> None:
        """Send more of the delivery that has begun.

        Raises:
            StateError: the link is not attached, or no delivery has begun.
            LimitError: the message is now larger than the peer takes; the delivery is still to be aborted.
        """
        if payload:
            self._send_part(payload, goes_on=True)

    def finish(self, payload: bytes = b"") -> None:
        """Send the last of the delivery that has begun. The errors are those of ``send_part``."""
        self._send_part(payload, goes_on=False)
        self._end_open()

    def _send_part(self, payload: bytes, *, goes_on: bool) -> None:
        begun = self._begun()
        self._check_size(begun.size + len(payload))
        begun.size += len(payload)
        self.session.send_in_parts(self._part(begun, payload, goes_on=goes_on))

    def abort(self, payload: bytes = b"") -> None:
        """Give up the delivery that has begun: the peer drops it, and it counts as settled (2.7.5).

        What of it waits for the session window is dropped.

        Args:
            payload: in the same frame; it "MUST be ignored" (2.7.5). It spoils the message for a peer that knows of no
                aborts and would read what has come.

        Raises:
            StateError: the link is not attached, or no delivery has begun.
        """
        begun = self._begun()
        session = self.session
        begun.started = session.drop_parts(begun.delivery_id, self.handle)
        session.send_in_parts(self._part(begun, payload, goes_on=False, aborted=True))
        session.sent_unsettled.merge(self, [begun.delivery_id], True)
        self._end_open()

    @property
    def has_begun(self) -> bool:
        """Whether a delivery has begun, and is neither finished nor aborted."""
        return self._open is not None

    @property
    def begun_bytes(self) -> int:
        """Bytes of payload so far of the delivery that has begun; 0 = none has."""
        return 0 if self._open is None else self._open.size

    @property
    def unsent_bytes(self) -> int:
        """Bytes of payload on this link that wait for the session window."""
        return self.session.waiting_bytes(self.handle)

    def _begun(self) -> OpenDelivery:
        begun = self._open
        if begun is None or self.state is not LinkState.ATTACHED:
            raise StateError(f"no delivery goes on on link {self.name!r}: {self._why_not()}")
        return begun

    def _why_not(self) -> str:
        if self.state is not LinkState.ATTACHED:
            return f"it is {self.state.name}"
        return "none has begun" if self._open is None else "one has begun already (2.6.14)"

    def _part(self, begun: OpenDelivery, payload: bytes, *, goes_on: bool, aborted: bool = False) -> OutgoingDelivery:
        return OutgoingDelivery(
            self.handle,
            begun.delivery_id,
            begun.tag,
            payload,
            begun.settled,
            begun.state,
            begun.resume,
            aborted,
            begun.message_format,
            started=begun.started,
            goes_on=goes_on,
        )

    def _end_open(self) -> None:
        self._open = None
        self._learn_frame_payload()

    def stop(self) -> None:
        """Drop what belongs to this attach only; from now on no delivery moves."""
        super().stop()
        self._open = None

    def settle(self, delivery_ids: Sequence[int], state: DeliveryState | None = None) -> None:
        """Settle deliveries: both ends forget them. Ids that are settled already are skipped.

        Neighbouring ids go out as one range, so pass them in ascending order.

        Args:
            delivery_ids: as ``send`` returned them.
            state: the final outcome, if the receiver needs to hear it.

        Raises:
            StateError: the link is not attached.
            LimitError: the state does not fit a frame of the peer.
        """
        if self.state is not LinkState.ATTACHED:
            raise StateError(f"nothing can be settled on link {self.name!r}: it is {self.state.name}")
        session = self.session
        session.check_state_size(False, True, state)
        for first, last in session.sent_unsettled.merge(self, delivery_ids, True):
            if not session.is_written(last, self.handle):  # it must not overtake the transfer
                session.write_ordered(self, Disposition(False, first, None if first == last else last, True, state))
            else:
                session.write_disposition(False, first, last, True, state)

    @property
    def is_draining(self) -> bool:
        """Whether the receiver waits for its credit to be used or given back."""
        return self._draining

    def drained(self) -> None:
        """Answer a flow with ``drain``: give back all credit, having sent what there was (2.6.7, C-5).

        Raises:
            StateError: the link is not attached.
        """
        self._check_flow_allowed()
        if self._credit_limit > self._moved:
            self._moved = self._credit_limit
        self.flow()
        self._draining = False

    def skip(self, count: int) -> None:
        """Give back the credit of so many deliveries and keep the rest; ``drained`` gives back all (2.6.7).

        Raises:
            StateError: our attach is not sent, or the link is detached.
            CreditError: there is not so much.
        """
        self._check_flow_allowed()
        if count > self.credit:
            raise CreditError(f"link {self.name!r} has a credit of {self.credit}, not of {count}")
        self._moved += count
        self.flow()
        if not self.credit:
            self._draining = False

    def flow(self, properties: Fields | None = None, echo: bool = False, available: int | None = None) -> None:
        """Send the peer the state of the link.

        Args:
            properties: link state properties, passed through.
            echo: ask for the peer's state; its answer comes as ``LinkFlow``.
            available: how many deliveries wait here for credit, if known.

        Raises:
            StateError: our attach is not sent, or the link is detached.
        """
        self._check_flow_allowed()
        flow = Flow(None, 0, 0, 0, self.handle, self.delivery_count, self.credit)
        flow.available = available
        flow.drain = self._draining
        flow.echo = echo
        flow.properties = properties
        self.session.write_ordered(self, flow)

    def answer_echo(self) -> None:
        """Send the state of the link because the peer asked for it."""
        if not self.session.defer_echo(self):
            self.flow()

    def take_flow(self, flow: Flow) -> int | None:
        """Bring our picture of the peer up to date and return the credit limit to report."""
        if flow.link_credit is not None:
            seen = self._moved
            if flow.delivery_count is None:  # the receiver wrote it before it saw our attach
                seen = 0
            else:
                # It cannot have seen deliveries that were never sent.
                seen += min(0, serial_difference(flow.delivery_count, self.delivery_count))
            limit = seen + flow.link_credit
            self._credit_limit = limit if limit > 0 else 0
        self._draining = flow.drain
        return self._credit_limit
