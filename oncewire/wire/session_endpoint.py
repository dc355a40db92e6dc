"""What the links of an AMQP session use of it: windows, unsettled deliveries, frames out (AMQP 1.0 part 2, 2.5.6).

Control frames of a sender link wait behind its transfers while the peer's session window is closed. Its detach does
not: windows count transfers only, and a peer that keeps its own closed would wait for the answer without end. Methods
called ``write*``, ``end_faulty`` and the like are for the engine only.

Both windows count transfer frames, over all links of the session. Outgoing, `_remote_window` is what the peer's last
flow or begin allows beyond what was sent since. Incoming, `_incoming_left` is what the peer may still send. An offer is
never withdrawn, because frames may be on their way: a smaller window is reached only by frames that come in. The engine
tops the window up by itself, or the owner offers frames one by one (``offer``).

Three things let a transfer wait: the peer's window is closed, the connection's output has no room, or something waits
already. What waits stands in one queue, in the order of its sending, so a link's control frames cannot overtake its own
deliveries. Those of links without anything in the queue go out at once. A delivery in the queue may be sent in part:
the rest of it keeps its place at the head.

A detach in the queue does not wait for a closed window. What its link has not sent is then dropped, and delivery-ids
that were given to it never reach the peer. Some peers end a session in which an id is left out, so from then on
``DeliveryNumbers`` translates our ids to those that the peer sees.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from oncewire.wire.deliveries import OutgoingDelivery
from oncewire.wire.delivery_numbers import DeliveryNumbers
from oncewire.wire.errors import LimitError
from oncewire.wire.frame_writer import FrameWriter
from oncewire.wire.frames import AMQP_FRAME, FRAME_HEADER_SIZE, MIN_DATA_OFFSET
from oncewire.wire.link_endpoint import LinkEndpoint
from oncewire.wire.performative_codec import encode_disposition, encode_performative
from oncewire.wire.performatives import (
    ACCEPTED,
    AmqpError,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Flow,
)
from oncewire.wire.states import LinkState, SessionState
from oncewire.wire.types import Symbol
from oncewire.wire.unsettled import SERIAL_MASK, Unsettled, serial_difference
from oncewire.wire.whole_delivery import MAX_WHOLE_HANDLE, WholeDeliveryWriter

# 2.5.6: the transfer-id (of frames, not deliveries) a session starts with.
FIRST_OUTGOING_ID = 0

# 2.7.2: we keep no limit of our own on transfers in flight to the peer, its incoming window is the limit.
OUTGOING_WINDOW = 0x7FFFFFFF

# How many frames are looked at for their size; the last one of a message may be small, so a few would mislead.
FRAMES_OF_LATE = 32

# 2.3.1: size, data offset, type, channel.
# What is empty at first, shared and never changed: most sessions need neither.
_NOTHING: Final[dict[Any, Any]] = {}
_pack_header = struct.Struct(">IBBH").pack

Ordered: TypeAlias = Attach | Flow | Disposition | Detach
Queued: TypeAlias = OutgoingDelivery | tuple[LinkEndpoint, Ordered]


class SessionEndpoint:
    """An AMQP session as its links see it; ``AmqpSession`` attaches them.

    Attributes:
        context: a slot for the owner; the engine never looks at it.
        state: see ``SessionState``.
        channel: our channel number of it, for logs.
        remote_begin: the begin the peer sent, None before.
        incoming_window: transfer frames the peer may have in flight; topped up by the engine. 0 = not for now.
        largest_window: the most that ``incoming_window`` ever was.
        partial_bytes: bytes of deliveries whose last frame has not come, over all links.
        streamed: deliveries that are handed on part by part, and not complete (``ReceiverLink.stream_above``).
    """

    __slots__ = (
        "_frames_seen",
        "_incoming_base",
        "_incoming_left",
        "_incoming_offered",
        "_largest_before",
        "_largest_frame",
        "_leaving",
        "_next_outgoing_id",
        "_numbers",
        "_out",
        "_queue",
        "_queued_control",
        "_queued_of",
        "_remote_window",
        "_replenish_below",
        "_waiting_echoes",
        "_whole",
        "_writer",
        "channel",
        "context",
        "incoming_window",
        "largest_window",
        "next_delivery_id",
        "partial_bytes",
        "pending_events",
        "received_unsettled",
        "remote_begin",
        "remote_channel",
        "sent_unsettled",
        "state",
        "streamed",
    )

    def __init__(self, writer: FrameWriter, channel: int, incoming_window: int, pending_events: list[Any]) -> None:
        self.context: object = None
        self.state = SessionState.UNMAPPED
        self.channel = channel
        self.remote_channel = -1
        self.remote_begin: Begin | None = None
        self.incoming_window = self.largest_window = incoming_window
        self.partial_bytes = 0
        self.streamed = 0
        # Of the payloads of so many frames, and of those before; -1 = there are none.
        self._frames_seen = self._largest_frame = 0
        self._largest_before = -1
        # Any: links add their events, which are defined above this module.
        self.pending_events = pending_events
        self._writer = writer
        self._out = writer.out
        self._whole = WholeDeliveryWriter(channel)
        # Delivery-ids and what is unsettled, per direction.
        self.next_delivery_id = 0
        self._numbers: DeliveryNumbers | None = None
        self.sent_unsettled = Unsettled()
        self.received_unsettled = Unsettled()
        # 2.5.6: transfer frames, not deliveries, count for the windows.
        self._next_outgoing_id = FIRST_OUTGOING_ID
        self._remote_window = 0
        # The next transfer-id of the peer was this when it had the whole window.
        self._incoming_base: int | None = None
        self._incoming_left = self._incoming_offered = incoming_window
        self._replenish_below = (incoming_window + 1) // 2
        # What waits for the peer's window to open, in order; see write_ordered.
        # A deque that exists takes 600 bytes, and most sessions never need one.
        self._queue: deque[Queued] | None = None
        self._queued_of: dict[int, int] = _NOTHING  # by handle
        self._queued_control = 0
        # Links whose detach is among them.
        self._leaving: dict[LinkEndpoint, None] = _NOTHING
        self._waiting_echoes: dict[LinkEndpoint, None] = _NOTHING

    # --- public -------------------------------------------------------------------------------------------------------

    @property
    def send_frame_size(self) -> int:
        """Bytes of the largest frame we send: 512 until the peer's open has come."""
        return self._writer.max_frame_size

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; its links count as suspended at both ends. ``SessionEnded`` follows.

        Raises:
            StateError: it is not begun, or ended already.
            LimitError: the error is too large for the peer's frames.
        """
        raise NotImplementedError

    def set_incoming_window(self, frames: int, least: int = 0) -> None:
        """Change how many frames the peer may have in flight from now on (2.5.6); what is offered stays so."""
        self.incoming_window = frames
        self.largest_window = max(self.largest_window, frames)
        self._replenish_below = max((frames + 1) // 2, min(least, frames))
        if self._incoming_left < self._replenish_below and self.state is SessionState.MAPPED:
            self._write_window()

    def offer(self, frames: int, least: int = 0) -> None:
        """Let the peer have so many frames in flight, once: the engine tops up nothing until the next call (2.5.6).

        What was offered before stays so. Call it often: nothing is written while ``least`` and half of ``frames`` are
        still offered.
        """
        self.set_incoming_window(frames, least)
        self.incoming_window = self._replenish_below = 0

    @property
    def offered_frames(self) -> int:
        """Transfer frames the peer may still send into the window that it was offered."""
        return max(0, self._incoming_left)

    @property
    def recent_frame(self) -> int:
        """The largest payload of the last 32 to 64 transfer frames, in bytes."""
        return max(self._largest_before, self._largest_frame)

    @property
    def knows_frames(self) -> bool:
        """Whether so many have come that the next ones are likely to be no larger."""
        return self._largest_before >= 0

    @property
    def granted(self) -> int:
        """Deliveries that the peer may still send on all links (2.6.7)."""
        raise NotImplementedError

    @property
    def is_queueing(self) -> bool:
        """Whether frames of sender links wait for the peer's session window."""
        return bool(self._queue)

    # --- for its links, engine only -----------------------------------------------------------------------------------

    def end_faulty(self, condition: Symbol, description: str) -> None:
        """End the session because of what the peer did, and notify the owner at once."""
        raise NotImplementedError

    def release(self, link: LinkEndpoint) -> None:
        """Forget a link that is detached by both ends, once our detach is written."""
        raise NotImplementedError

    # --- frames to the peer, engine only ------------------------------------------------------------------------------

    def write(self, performative: Attach | Begin | Flow | Disposition | Detach | End) -> None:
        """Send a frame without payload at once."""
        if isinstance(performative, Flow):
            if self._incoming_base is not None:
                received = self._incoming_offered - self._incoming_left
                self._frames_seen += received
                self._incoming_base = (self._incoming_base + received) & SERIAL_MASK
            # What was offered once may be on its way: a smaller window is reached by frames that come in.
            self._incoming_left = self._incoming_offered = max(self._incoming_left, self.incoming_window)
            performative.next_incoming_id = self._incoming_base
            performative.incoming_window = self._incoming_left
            performative.next_outgoing_id = self._next_outgoing_id
            performative.outgoing_window = OUTGOING_WINDOW
        self._writer.write(self.channel, encode_performative(performative))

    def _write_of(self, link: LinkEndpoint, performative: Ordered) -> None:
        numbers = self._numbers
        if isinstance(performative, Disposition) and numbers is not None:
            performative.first = numbers.reported(performative.first)
            if performative.last is not None:
                performative.last = numbers.reported(performative.last)
        self.write(performative)
        if isinstance(performative, Detach):
            link.detach_written = True

    def write_ordered(self, link: LinkEndpoint, performative: Ordered) -> None:
        """Send a frame of a link; that of a sender link may not overtake its own transfers that wait for the window.

        A detach waits for the connection to take them, and never for the window: what that keeps back is not sent.
        """
        if not link.is_sender or not self._must_wait(link, performative):
            self._write_of(link, performative)
            return
        self._writer.check_size(len(encode_performative(performative)))
        self._enqueue((link, performative), link.handle)
        self._queued_control += 1
        if isinstance(performative, Detach):
            if not self._leaving:
                self._leaving = {}
            self._leaving[link] = None
            if self._remote_window <= 0:
                self._write_queued()

    def _enqueue(self, item: Queued, handle: int) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(item)
        if not self._queued_of:
            self._queued_of = {}
        self._queued_of[handle] = self._queued_of.get(handle, 0) + 1

    def _must_wait(self, link: LinkEndpoint, performative: Ordered) -> bool:
        if isinstance(performative, Attach):  # 2.6.1: nor the detach of the link that had the name before
            return any(isinstance(item, tuple) and item[0].name == link.name for item in self._queue or ())
        return self._queued_of.get(link.handle, 0) > 0

    def is_written(self, delivery_id: int, handle: int) -> bool:
        """Whether the last frame of a delivery has left the queue, so that its settlement overtakes nothing."""
        if not self._queued_of.get(handle, 0):
            return True
        # Ids ascend on one link; those of others may go back, where a delivery of theirs comes in parts.
        head = next(iter(self._deliveries_of(handle)), None)
        return head is None or serial_difference(delivery_id, head.delivery_id) < 0

    def _deliveries_of(self, handle: int) -> Iterator[OutgoingDelivery]:
        for item in self._queue or ():
            if isinstance(item, OutgoingDelivery) and item.handle == handle:
                yield item

    def waiting_bytes(self, handle: int) -> int:
        """Bytes of payload of a link that wait for the window."""
        if not self._queued_of.get(handle, 0):
            return 0
        return sum(item.unsent_bytes for item in self._deliveries_of(handle))

    def drop_parts(self, delivery_id: int, handle: int) -> bool:
        """Drop what waits of a delivery that is aborted; whether its first frame is written."""
        if not self._queued_of.get(handle, 0):
            return True
        assert self._queue is not None
        waiting = [item for item in self._deliveries_of(handle) if item.delivery_id == delivery_id]
        self._queue = deque(item for item in self._queue if item not in waiting)
        self._queued_of[handle] -= len(waiting)
        return not waiting or waiting[0].has_started

    def write_whole(self, handle: int, delivery_id: int, tag: bytes, settled: bool, payload: bytes) -> bool:
        """Send a delivery in one frame, with a ``WholeDeliveryWriter``; False where that is not possible now."""
        window = self._remote_window
        if window <= 0 or self._queue or handle > MAX_WHOLE_HANDLE:
            return False
        self._remote_window = window - 1
        self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL_MASK
        if self._numbers is not None:
            delivery_id = self._numbers.reported(delivery_id)
        self._whole.write(self._out, handle, delivery_id, tag, settled, payload)
        return True

    def drop_queue(self) -> None:
        """Forget what waits for the window: no delivery moves any more."""
        self._queue = None
        self._leaving = _NOTHING
        self._queued_of.clear()
        self._queued_control = 0
        self._waiting_echoes.clear()

    def write_transfer(self, performative: bytes, payload: bytes) -> None:
        """Send one transfer frame; the window must be open."""
        self._remote_window -= 1
        self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL_MASK
        out = self._out
        size = FRAME_HEADER_SIZE + len(performative) + len(payload)
        self._writer.room -= size
        out.append(_pack_header(size, MIN_DATA_OFFSET, AMQP_FRAME, self.channel) + performative)
        out.append(payload)  # not joined here: large ones are copied only once

    def write_disposition(self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        """Send a disposition at once."""
        if self._numbers is not None and not role:
            first, last = self._numbers.reported(first), self._numbers.reported(last)
        performative = encode_disposition(role, first, None if first == last else last, settled, state)
        size = FRAME_HEADER_SIZE + len(performative)
        self._out.append(_pack_header(size, MIN_DATA_OFFSET, AMQP_FRAME, self.channel) + performative)

    def check_state_size(self, role: bool, settled: bool, state: DeliveryState | None) -> None:
        """Raise LimitError, before anything is changed, if a disposition with ``state`` does not fit a frame."""
        if state is not None and state is not ACCEPTED:
            largest = encode_disposition(role, SERIAL_MASK, SERIAL_MASK, settled, state)
            self._writer.check_size(len(largest))

    def send_in_parts(self, delivery: OutgoingDelivery) -> None:
        """Send a delivery as far as the window allows and keep the rest."""
        if delivery.smallest_frame() > self._writer.max_frame_size:
            raise LimitError("the delivery state does not fit a frame of the peer")
        self._enqueue(delivery, delivery.handle)
        self._write_queued()

    def defer_echo(self, link: LinkEndpoint) -> bool:
        """While frames are queued, note that ``link`` owes the peer its state (once, however often it asks)."""
        if self._queued_of.get(link.handle, 0):
            if not self._waiting_echoes:
                self._waiting_echoes = {}
            self._waiting_echoes[link] = None
            return True
        return False

    def _write_queued(self) -> None:
        """Send what has waited for the window."""
        while queue := self._queue:
            head = queue[0]
            if isinstance(head, OutgoingDelivery):
                if self._remote_window <= 0:
                    if self._leaving:
                        self._expel()
                    if self._queue:
                        return
                    break
                if self._writer.room <= 0:
                    return
                if self._numbers is not None and not head.has_started:
                    head.renumber(self._numbers.reported(head.delivery_id))
                performative, payload, last = head.next_frame(self._writer.max_frame_size)
                self.write_transfer(performative, payload)
                if last:
                    queue.popleft()
                    self._queued_of[head.handle] -= 1
            else:
                queue.popleft()
                self._write_control(*head)
        self._queue = None
        waiting = list(self._waiting_echoes)
        self._waiting_echoes.clear()
        for link in waiting:
            if link.state is LinkState.ATTACHED:
                link.answer_echo()

    def _write_control(self, link: LinkEndpoint, frame: Ordered) -> None:
        """Send a control frame that has left the queue."""
        self._queued_control -= 1
        self._queued_of[link.handle] -= 1
        if isinstance(frame, Detach):
            self._leaving.pop(link, None)
        self._write_of(link, frame)
        self.release(link)

    def _expel(self) -> None:
        """2.5.6: the window is closed, and links that leave do not wait for it: what they have not sent is dropped."""
        handles = {link.handle for link in self._leaving}
        unsent: dict[int, None] = {}
        left: deque[Queued] = deque()
        waits: set[int] = set()
        names: set[str] = set()
        for item in self._queue or ():
            if isinstance(item, OutgoingDelivery):
                if item.handle not in handles:
                    left.append(item)
                    waits.add(item.handle)
                    continue
                if not item.has_started:
                    unsent[item.delivery_id] = None
                self._queued_of[item.handle] -= 1
                continue
            link, frame = item
            if link in self._leaving and isinstance(frame, Disposition | Flow):
                self._queued_of[link.handle] -= 1
                self._queued_control -= 1
            elif link.handle in waits or (isinstance(frame, Attach) and link.name in names):
                left.append(item)
                waits.add(link.handle)
                names.add(link.name)
            else:
                self._write_control(link, frame)
        self._queue = left or None
        if unsent:
            if self._numbers is None:
                self._numbers = DeliveryNumbers()
            self._numbers.drop(unsent, self.sent_unsettled.oldest)

    def write_more(self) -> None:
        """There is room again for what has waited."""
        if self._queue:
            self._write_queued()

    def _write_window(self) -> None:
        self.write(Flow(None, 0, 0, 0))
        if self._frames_seen >= FRAMES_OF_LATE:
            self._largest_before, self._largest_frame, self._frames_seen = self._largest_frame, 0, 0
