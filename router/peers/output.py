"""What waits to be written to one neighbour: urgent items first, then frames in order, bodies dropped when it is slow.

Frames of one channel are numbered, so they keep their order; only what carries no number may overtake (T-6). A router
never stops reading because a neighbour is slow: what cannot be passed on in time is dropped, and its channel starts
again (T-2, T-4).
"""

from __future__ import annotations

from collections import deque
from struct import Struct, error
from typing import Final

FRAME: Final = 1
"""Item: a frame of delivery_records.channels.codec."""
LINK_STATE: Final = 2
"""Item: an announcement of the routing protocol between neighbours."""

QUEUE_LIMIT_BYTES: Final = 8 << 20
"""Bodies that may wait for one neighbour (T-2)."""
QUEUE_LIMIT_S = 2.0
"""How long a body may wait for one neighbour (T-2)."""
BATCH_BYTES: Final = 64 * 1024
"""Items are written together up to this size: few system calls, and urgent items wait for no more than this."""

_ITEM = Struct(">BI")
_ITEM_SIZE: Final = 5
_read_item: Final = _ITEM.unpack_from
_write_item: Final = _ITEM.pack


class BatchError(ValueError):
    """Bytes that are no batch of items; the neighbour is at fault."""


class QueuedFrame:
    """A frame that waits, in pieces that are not joined before it is written."""

    __slots__ = ("body", "has_body", "head", "queued_at", "targets")

    def __init__(self, head: bytes, body: bytes, has_body: bool, targets: tuple[int, ...], queued_at: float) -> None:
        self.head = head
        self.body = body
        self.has_body = has_body
        self.targets = targets
        """Channels of our own that break when it is dropped; empty for frames of other routers."""
        self.queued_at = queued_at


class NeighbourOutput:
    """The queue toward one neighbour."""

    __slots__ = ("_frames", "_urgent", "dropped", "queued_bytes")

    def __init__(self) -> None:
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._frames: deque[QueuedFrame] = deque()
        self.queued_bytes = 0
        self.dropped = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._frames and not self._urgent

    def add_urgent(self, kind: int, data: bytes) -> None:
        """Queue an item that may overtake frames."""
        self._urgent.append((kind, data))

    def add_frame(self, frame: QueuedFrame) -> None:
        """Queue a frame behind the others."""
        self._frames.append(frame)
        self.queued_bytes += len(frame.head) + len(frame.body)

    def next_batch(self) -> bytes:
        """Take out what goes into one transfer; empty when nothing waits."""
        parts: list[bytes] = []
        size = 0
        while self._urgent and size < BATCH_BYTES:
            kind, data = self._urgent.popleft()
            parts += (_write_item(kind, len(data)), data)
            size += len(data)
        frames = self._frames
        while frames and size < BATCH_BYTES:
            frame = frames.popleft()
            length = len(frame.head) + len(frame.body)
            parts += (_write_item(FRAME, length), frame.head, frame.body)
            size += length
            self.queued_bytes -= length
        return b"".join(parts)

    def drop_late_bodies(self, now: float) -> set[int]:
        """Drop all bodies if there are too many or the oldest frame waits too long (T-2).

        Returns:
            The routers to which frames of our own were dropped: their channels must start again.
        """
        frames = self._frames
        if not frames:
            return set()
        if self.queued_bytes <= QUEUE_LIMIT_BYTES and now - frames[0].queued_at <= QUEUE_LIMIT_S:
            return set()
        broken: set[int] = set()
        kept: deque[QueuedFrame] = deque()
        for frame in frames:
            if frame.has_body:
                broken.update(frame.targets)
                self.queued_bytes -= len(frame.head) + len(frame.body)
                self.dropped += 1
            else:
                kept.append(frame)
        self._frames = kept
        return broken


def read_batch(batch: bytes) -> list[tuple[int, bytes]]:
    """The (kind, data) items of one transfer.

    Raises:
        BatchError: they do not fill the transfer exactly.
    """
    items: list[tuple[int, bytes]] = []
    at = 0
    end = len(batch)
    try:
        while at < end:
            kind, size = _read_item(batch, at)
            at += _ITEM_SIZE
            if at + size > end:
                raise BatchError(f"an item of {size} bytes in a batch that has {end - at} left")
            items.append((kind, batch[at : at + size]))
            at += size
    except error:
        raise BatchError("a batch that ends within the head of an item") from None
    return items
