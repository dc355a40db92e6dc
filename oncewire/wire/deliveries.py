"""Deliveries of several frames (AMQP 1.0 part 2, section 2.6.14)."""

from __future__ import annotations

from io import BytesIO
from typing import Final

from oncewire.wire.frames import FRAME_HEADER_SIZE
from oncewire.wire.performative_codec import encode_transfer
from oncewire.wire.performatives import DeliveryState

# 2.8.7: "up to 32 octets of binary data", without a minimum: an empty tag is legal.
MAX_TAG_SIZE: Final = 32

# On the safe side for a transfer performative without state: descriptor and list header 6 bytes, handle, delivery-id
# and message-format 5 each, tag 34, two booleans.
TRANSFER_HEAD_BOUND: Final = 64


class IncomingDelivery:
    """A delivery of which not all frames have come (2.6.14). The body grows in one buffer, however small the frames.

    Attributes:
        body: what is put together here; `take` copies nothing of it.
        kept: bytes in ``body``.
        is_streamed: its parts are handed on as they come.
        size: bytes of payload that have come.
    """

    __slots__ = (
        "body",
        "delivery_id",
        "is_streamed",
        "kept",
        "message_format",
        "receiver_settles",
        "resume",
        "settled",
        "size",
        "state",
        "tag",
    )

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, resume: bool) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.resume = resume
        self.settled = False
        self.receiver_settles = False
        self.state: DeliveryState | None = None
        self.body = BytesIO()
        self.kept = 0
        self.size = 0
        self.is_streamed = False

    def keep(self, payload: bytes) -> None:
        """Put a frame's payload to what is there."""
        self.body.write(payload)
        self.kept += len(payload)

    def take(self) -> bytes:
        """What was put together, which is not kept any more. A message of a gigabyte is there once."""
        payload = self.body.getvalue()
        self.body = BytesIO()
        self.kept = 0
        return payload


class OutgoingDelivery:
    """A delivery on its way out frame by frame; the payload is kept once and cut when the session window lets it go.

    It is a whole delivery, or one part of a large one whose payload comes bit by bit.
    """

    __slots__ = (
        "_aborted",
        "_goes_on",
        "_message_format",
        "_number",
        "_offset",
        "_payload",
        "_resume",
        "_settled",
        "_started",
        "_state",
        "_tag",
        "delivery_id",
        "handle",
    )

    def __init__(
        self,
        handle: int,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        state: DeliveryState | None,
        resume: bool,
        aborted: bool,
        message_format: int,
        *,
        started: bool = False,
        goes_on: bool = False,
    ) -> None:
        """Cut nothing yet.

        Args:
            handle, delivery_id, tag, payload, settled, state, resume, aborted, message_format: of the delivery.
            started: its first frame was another part's.
            goes_on: another part follows: no frame of this one is the last.
        """
        self.handle = handle
        self.delivery_id = self._number = delivery_id
        self._tag = tag
        self._payload = payload
        self._settled = settled
        self._state = state
        self._resume = resume
        self._aborted = aborted
        self._message_format = message_format
        self._offset = 0
        self._started = started
        self._goes_on = goes_on

    def _head(self, more: bool) -> bytes:
        return encode_transfer(
            self.handle,
            self._number,
            self._tag,
            self._message_format,
            self._settled,
            more=more,
            state=self._state,
            resume=self._resume,
            aborted=self._aborted,
        )

    def renumber(self, number: int) -> None:
        """The peer gets another number than the owner: deliveries before it were never sent."""
        self._number = number

    @property
    def has_started(self) -> bool:
        """Whether the first frame of the delivery is written."""
        return self._started

    @property
    def unsent_bytes(self) -> int:
        """Bytes of payload that are not written."""
        return len(self._payload) - self._offset

    def smallest_frame(self) -> int:
        """Return a bound of the size of the smallest first frame, the one that carries one byte of payload."""
        head = TRANSFER_HEAD_BOUND if self._state is None else len(self._head(more=True))
        return FRAME_HEADER_SIZE + head + 1

    def next_frame(self, max_frame_size: int) -> tuple[bytes, bytes, bool]:
        """Return the performative and the payload of the next frame, and whether nothing is left here."""
        started = self._started
        self._started = True
        left = len(self._payload) - self._offset
        if not started and self._state is None and left <= max_frame_size - FRAME_HEADER_SIZE - TRANSFER_HEAD_BOUND:
            return self._head(more=self._goes_on), self._payload, True  # as most that wait for the window
        more = encode_transfer(self.handle, more=True) if started else self._head(more=True)
        room = max_frame_size - FRAME_HEADER_SIZE - len(more)
        assert room > 0
        if left > room:
            part = self._payload[self._offset : self._offset + room]
            self._offset += room
            return more, part, False
        part = self._payload[self._offset :] if self._offset else self._payload
        if not started:
            return self._head(more=self._goes_on), part, True
        if self._goes_on:
            return more, part, True
        return encode_transfer(self.handle, aborted=self._aborted), part, True
