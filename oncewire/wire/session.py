"""AMQP sessions: begin and end, links by name and handle, frames of the peer (AMQP 1.0 part 2, section 2.5).

What links use of their session, the windows above all, is in ``session_endpoint``.

An ``AmqpSession`` is made by ``Connection.begin`` or by the peer's begin, which the engine answers by itself. After
``SessionEnded`` or the end of the connection it is dead and so are its links.

Methods called ``receive_*``, ``write*``, ``end_faulty`` and the like, listed behind the public ones, are for the engine
only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncewire.wire.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LimitError,
    LocalProtocolError,
    RemoteProtocolError,
    StateError,
)
from oncewire.wire.frame_writer import FrameWriter
from oncewire.wire.link import AttachOptions, Link, LinkAttached, symbols
from oncewire.wire.link_endpoint import LinkEndpoint
from oncewire.wire.performatives import (
    OUTCOMES,
    AmqpError,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Fields,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
    Transfer,
    UnsettledMap,
)
from oncewire.wire.receiver_link import ReceiverLink
from oncewire.wire.sender_link import SenderLink
from oncewire.wire.session_endpoint import FIRST_OUTGOING_ID, OUTGOING_WINDOW, SessionEndpoint
from oncewire.wire.states import SESSION_MAPPED, SESSION_NEXT, LinkState, SessionState, Step
from oncewire.wire.types import Described, Symbol
from oncewire.wire.unsettled import SERIAL_MASK, serial_difference
from oncewire.wire.whole_delivery import WholeDeliveries

# A link name must fit any answer to its attach, so it may use at most this part of a frame of the peer ...
_NAME_PART_OF_FRAME = 4
# ... and no more than this: names are kept for as long as links live, in every router.
MAX_LINK_NAME_SIZE = 1024

# Control frames that wait behind transfers while the peer's session window is closed: a few for each of many links. A
# peer that makes its partner queue more asks for flows without end and takes none.
MAX_QUEUED_CONTROL = 8192


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """Both begins are exchanged. A session that the peer began is answered by the engine itself."""

    session: AmqpSession


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is gone and its links (``session.links``) with it: they count as suspended (A-9).

    ``error`` is the peer's, or ours when the engine ended the session because of what the peer sent. ``needs_answer``:
    the owner ``answers_end``, and must call ``session.end()``; until then receivers may state outcomes.
    """

    session: AmqpSession
    error: AmqpError | None
    needs_answer: bool = False


class AmqpSession(SessionEndpoint):
    """One AMQP session of a connection: its links by name and handle, and the peer's frames on their way to them.

    Args:
        writer: takes the frames for the peer.
        channel: our channel number.
        handle_max: highest link handle, for both ends.
        incoming_window: transfer frames the peer may have in flight.
        pending_events: where events are added.
        forget: called when both ends have ended the session.
    """

    __slots__ = (
        "_by_handle",
        "_by_name",
        "_by_remote_handle",
        "_end_reported",
        "_forget",
        "_handle_max",
        "answers_end",
    )

    def __init__(
        self,
        writer: FrameWriter,
        channel: int,
        *,
        handle_max: int,
        incoming_window: int,
        pending_events: list[Any],
        forget: Callable[[AmqpSession], None],
    ) -> None:
        super().__init__(writer, channel, incoming_window, pending_events)
        self._handle_max = handle_max
        self._forget = forget
        self._by_name: dict[tuple[str, bool], Link] = {}
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._end_reported = False
        self.answers_end = False
        """Whether the owner answers an end of the peer."""

    def __repr__(self) -> str:
        return f"<AmqpSession channel={self.channel} {self.state.name}>"

    # --- public -------------------------------------------------------------------------------------------------------

    @property
    def links(self) -> list[Link]:
        """The links that are not fully detached; after the end of the session those that it took along."""
        return list(self._by_handle.values())

    def let_go(self) -> None:
        """See `Connection.let_go`."""
        for link in self._by_handle.values():
            link.context = None
        for links in (self._by_handle, self._by_name, self._by_remote_handle):
            links.clear()

    @property
    def link_count(self) -> int:
        """How many there are of them."""
        return len(self._by_handle)

    @property
    def granted(self) -> int:
        """Deliveries that the peer may still send on all links (2.6.7)."""
        return sum([link.credit for link in self._by_handle.values() if not link.is_sender])

    def attach_sender(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | Described | None = None,
        snd_settle_mode: int = SenderSettleMode.UNSETTLED,
        rcv_settle_mode: int = ReceiverSettleMode.SECOND,
        unsettled: UnsettledMap | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Fields | None = None,
    ) -> SenderLink:
        """Attach a link that sends to the peer; ``LinkAttached`` follows. May be called before the begin is answered.

        Args:
            name: unique among the sending links of this container toward the peer.
            source, target: the termini asked for.
            snd_settle_mode, rcv_settle_mode: 2.8.2 and 2.8.3; the default is the exactly-once pair.
            unsettled: None = do not resume; {} = resume with nothing unsettled here.
            incomplete_unsettled: the map did not fit; see ``unsettled_map_bound``.
            initial_delivery_count: where the delivery-count starts.
            max_message_size: bytes, 0 or None = no limit; at a sender it only informs the peer.
            offered_capabilities, desired_capabilities, properties: as in attach.

        Raises:
            StateError: the session is ending or gone, or a sending link of this name is attached or detaching.
            LimitError: the peer's handle-max is reached, or the attach is larger than the peer's max-frame-size.
        """
        options = AttachOptions(
            source,
            target,
            snd_settle_mode,
            rcv_settle_mode,
            unsettled,
            incomplete_unsettled,
            initial_delivery_count,
            max_message_size,
            symbols(offered_capabilities),
            symbols(desired_capabilities),
            properties,
        )
        link = SenderLink(self, name)
        self._attach(link, options)
        return link

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: int = SenderSettleMode.UNSETTLED,
        rcv_settle_mode: int = ReceiverSettleMode.SECOND,
        unsettled: UnsettledMap | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Fields | None = None,
    ) -> ReceiverLink:
        """Attach a link that receives from the peer, as ``attach_sender`` does for one that sends.

        ``max_message_size`` None means ``DEFAULT_MAX_MESSAGE_SIZE``, and larger messages detach the link.
        """
        options = AttachOptions(
            source,
            target,
            snd_settle_mode,
            rcv_settle_mode,
            unsettled,
            incomplete_unsettled,
            0,
            max_message_size,
            symbols(offered_capabilities),
            symbols(desired_capabilities),
            properties,
        )
        link = ReceiverLink(self, name)
        self._attach(link, options)
        return link

    def _attach(self, link: Link, options: AttachOptions) -> None:
        if self.state is not SessionState.MAPPED and self.state is not SessionState.BEGIN_SENT:
            raise StateError(f"no link can be attached on channel {self.channel}: the session is {self.state.name}")
        key = (link.name, link.is_sender)
        if key in self._by_name:
            raise StateError(f"link {link.name!r} is still {self._by_name[key].state.name} in this session")
        link.handle = self._take_handle(link)
        try:
            link.write_attach(options)
        except LocalProtocolError:  # nothing was sent under it
            del self._by_handle[link.handle]
            raise
        self._by_name[key] = link

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; its links count as suspended at both ends. ``SessionEnded`` follows.

        Raises:
            StateError: it is not begun, or ended already.
            LimitError: the error is too large for the peer's frames.
        """
        following = SESSION_NEXT.get((self.state, Step.SEND_END))
        if following is None:
            raise StateError(f"the session on channel {self.channel} cannot be ended: it is {self.state.name}")
        self.write(End(error))
        self.state = following
        self.stop()
        if following is SessionState.ENDED:
            self._forget(self)

    # --- begin and end, engine only -----------------------------------------------------------------------------------

    def write_begin(self) -> None:
        """Send our begin."""
        following = SESSION_NEXT[self.state, Step.SEND_START]
        remote_channel = self.remote_channel if self.remote_channel >= 0 else None
        handle_max = self._handle_max
        self.write(Begin(remote_channel, self._next_outgoing_id, self.incoming_window, OUTGOING_WINDOW, handle_max))
        self.state = following

    def receive_begin(self, begin: Begin, remote_channel: int) -> None:
        """Take the peer's begin, and answer it if it came first."""
        following = SESSION_NEXT.get((self.state, Step.RECEIVE_START))
        if following is None or self.remote_begin is not None:
            raise RemoteProtocolError(ILLEGAL_STATE, f"a second begin for channel {self.channel}")
        self.state = following
        self.remote_begin = begin
        self.remote_channel = remote_channel
        self._incoming_base = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        if following is SessionState.BEGIN_RECEIVED:
            self.write_begin()
        if self.state is SessionState.MAPPED:
            self.pending_events.append(SessionBegun(self))

    def receive_end(self, end: End) -> None:
        """Take the peer's end and answer it, unless that is the owner's decision (A-9a)."""
        self.state = SESSION_NEXT[self.state, Step.RECEIVE_END]
        if self.state is SessionState.END_RECEIVED and self.answers_end and end.error is None:
            self.halt()
            self._report_end(None, True)
            return
        self.stop()
        self._report_end(end.error)
        if self.state is SessionState.END_RECEIVED:
            self.end()
        else:
            self._forget(self)

    def end_faulty(self, condition: Symbol, description: str) -> None:
        """End the session because of what the peer did, and notify the owner at once."""
        error = AmqpError(condition, description)
        self.end(error)
        self._report_end(error)

    def _report_end(self, error: AmqpError | None, needs_answer: bool = False) -> None:
        if not self._end_reported:
            self._end_reported = True
            self.pending_events.append(SessionEnded(self, error, needs_answer))

    def halt(self) -> None:
        """The peer sends no more in this session, and our end is still to come: receivers may state outcomes."""
        self.drop_queue()
        for link in self._by_handle.values():
            if not link.is_sender and link.state in (LinkState.ATTACHED, LinkState.DETACH_RECEIVED):
                link.state = LinkState.DETACH_RECEIVED
                link.halt()
            else:
                link.state = LinkState.DETACHED
                link.stop()
        self._by_name.clear()
        self._by_remote_handle.clear()

    def stop(self) -> None:
        """Deaden the links and drop all deliveries. ``links`` stays for the owner."""
        self.drop_queue()
        for link in self._by_handle.values():
            link.state = LinkState.DETACHED
            link.stop()
        self._by_name.clear()
        self._by_remote_handle.clear()

    def lose(self) -> None:
        """The connection is gone."""
        self.state = SessionState.ENDED
        self.stop()

    # --- handles, engine only -----------------------------------------------------------------------------------------

    def _take_handle(self, link: Link) -> int:
        """Return the lowest free handle and give it to ``link``."""
        limit = self._handle_max
        if self.remote_begin is not None:
            limit = min(limit, self.remote_begin.handle_max)
        handle = len(self._by_handle)
        if handle in self._by_handle:  # a lower one is free
            handle = next(number for number in range(handle) if number not in self._by_handle)
        if handle > limit:
            raise LimitError(f"the session has {limit + 1} links, which is the handle-max of both ends")
        self._by_handle[handle] = link
        return handle

    def release(self, link: LinkEndpoint) -> None:
        """Forget a link that is detached by both ends, once our detach is written."""
        if link.state is not LinkState.DETACHED or not link.detach_written:
            return
        if self._by_handle.get(link.handle) is link:
            del self._by_handle[link.handle]
        self._waiting_echoes.pop(link, None)
        key = (link.name, link.is_sender)
        if self._by_name.get(key) is link:
            del self._by_name[key]

    # --- frames of the peer, engine only ------------------------------------------------------------------------------

    def receive_attach(self, attach: Attach) -> None:
        """Take an attach: the answer to ours, a new link, or the theft of one (2.6.1)."""
        remote_handle = attach.handle
        if remote_handle > self._handle_max:
            raise RemoteProtocolError(FRAMING_ERROR, f"handle {remote_handle} is over our handle-max")
        if remote_handle in self._by_remote_handle:
            self.end_faulty(HANDLE_IN_USE, f"handle {remote_handle} is attached already")
            return
        if len(attach.name.encode()) > min(MAX_LINK_NAME_SIZE, self.send_frame_size // _NAME_PART_OF_FRAME):
            self.end_faulty(INVALID_FIELD, "the name of a link is too long")
            return
        is_sender = attach.role
        link = self._by_name.get((attach.name, is_sender))
        if link is None or link.remote_attach is not None:
            if link is not None and (link.state is LinkState.ATTACHED or link.state is LinkState.ATTACH_RECEIVED):
                # A link stolen before its reply has no termini yet, so there is nothing to suspend: closed.
                link.detach_faulty(STOLEN, "the link was attached again", link.local_attach is None)
            link = SenderLink(self, attach.name) if is_sender else ReceiverLink(self, attach.name)
            try:
                link.handle = self._take_handle(link)
            except LimitError as full:
                self.end_faulty(RESOURCE_LIMIT_EXCEEDED, str(full))
                return
            self._by_name[attach.name, is_sender] = link
        self._by_remote_handle[remote_handle] = link
        link.receive_attach(attach)
        if link.state is not LinkState.DETACH_SENT:
            self.pending_events.append(LinkAttached(link))

    def receive_detach(self, detach: Detach) -> None:
        """Take a detach."""
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            self._unattached(detach.handle)
        else:
            link.receive_detach(detach)

    def receive_flow(self, flow: Flow) -> None:
        """Take a flow: the peer's windows, and the state of a link if it names one (2.5.6, 2.7.4)."""
        if self._queued_control > MAX_QUEUED_CONTROL:
            self.end_faulty(RESOURCE_LIMIT_EXCEEDED, "too many frames wait for the session window to open")
            return
        # 2.5.6: the endpoint "MUST update the next-incoming-id directly from the next-outgoing-id of the frame".
        received = self._incoming_offered - self._incoming_left
        self._incoming_base = (flow.next_outgoing_id - received) & SERIAL_MASK
        # Null: the peer had not seen our begin, so it had seen nothing from our first id on.
        seen = FIRST_OUTGOING_ID if flow.next_incoming_id is None else flow.next_incoming_id
        in_flight = max(0, serial_difference(self._next_outgoing_id, seen))
        self._remote_window = max(0, flow.incoming_window - in_flight)
        if flow.handle is not None:
            link = self._by_remote_handle.get(flow.handle)
            if link is None:
                self._unattached(flow.handle)
                return
            link.receive_flow(flow)
        elif flow.echo:
            self._write_window()
        if self._queue:
            self._write_queued()

    def receive_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery."""
        left = self._incoming_left - 1
        self._incoming_left = left
        if len(payload) > self._largest_frame:
            self._largest_frame = len(payload)
        if left < 0:
            self.end_faulty(WINDOW_VIOLATION, "a transfer came with the session window closed")
            return
        link = self._by_remote_handle.get(transfer.handle)
        if link is None:
            self._unattached(transfer.handle)
            return
        link.receive_transfer(transfer, payload)
        if left < self._replenish_below and self.state is SessionState.MAPPED:
            # The delivery is with the owner now; what limits memory is link credit, so the window opens at once.
            self._write_window()

    def receive_whole(self, whole: WholeDeliveries) -> None:
        """Take a delivery that came in one frame: ``receive_transfer`` in short."""
        left = self._incoming_left - 1
        link = self._by_remote_handle.get(whole.handle)
        if left < 0 or link is None:
            self.receive_transfer(
                Transfer(whole.handle, whole.delivery_id, whole.tag, whole.message_format, whole.settled), whole.payload
            )
            return
        self._incoming_left = left
        size = len(whole.payload)
        if size > self._largest_frame:
            self._largest_frame = size
        link.receive_whole(whole)
        if left < self._replenish_below and self.state is SESSION_MAPPED:
            self._write_window()

    def receive_disposition(self, disposition: Disposition, limit: int) -> tuple[int, Disposition | None]:
        """Take up to ``limit`` deliveries of a disposition; return how many it changed, and what is left to take."""
        state, settled = disposition.state, disposition.settled
        if not settled and not isinstance(state, OUTCOMES):
            return 0, None  # 3.4: nothing is decided until there is an outcome
        unsettled = self.sent_unsettled if disposition.role else self.received_unsettled
        numbers = self._numbers if disposition.role else None
        first = disposition.first
        last = reported = first if disposition.last is None else disposition.last
        if numbers is not None:
            first, last = numbers.own(first), numbers.own(last)
        found, visited, rest = unsettled.select(first, last, settled, limit)
        for link, named in found.items():
            link.receive_disposition(named.ids, named.tags, state, settled)
        if rest is None:
            return visited, None
        rest = rest if numbers is None else numbers.reported(rest)
        return visited, Disposition(disposition.role, rest, reported, settled, state)

    def _unattached(self, handle: int) -> None:
        self.end_faulty(UNATTACHED_HANDLE, f"handle {handle} is not attached")
