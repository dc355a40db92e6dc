"""Large deliveries of one publisher on their way to its subscriptions, in parts that nobody keeps (L-2, L-4, L-6).

A *target* is a subscription or a member that is owed a delivery and gets its parts now. What all targets have taken is
dropped; who comes later gets the delivery when the publisher has sent it again (L-7).

In the window a large delivery is a slot like any other, with its head in the place of the body. `LargeArrivals` adds
the parts as they come, `Fanout` offers the delivery to those that owe it, and TAKEN of an egress states how far a
target is. At the end of the turn `flush` sends what may go, and drops what all targets have taken.

A subscription becomes a target only while the first piece is still here, because a stream begins with its beginning. A
later one gets a MSG without a body; its egress keeps the place, and asks for the delivery when it is its turn. Targets
advance independently, each as far as L-4 lets it be ahead of what it has taken. Those that are equally far share one
frame (T-2). So the slowest target decides what waits here, and L-6 leaves it out when the publisher has no room and the
others have taken all there is.

The slot is ARRIVING, and so without an outcome, until its last part has come and no at-most-once target is left (L-1).
An abort ends the stream at all targets that have begun, and the slot is awaited again, or forgotten if no map of the
publisher named it (L-5). A settlement needs no frame of its own: SETTLE ends what an egress is still sending (E-5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from delivery_records.channels.channel import Channels
from delivery_records.model.assigned import Assigned
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.limits import LARGE_LOOKS, LARGE_STALL_S
from delivery_records.model.messages import LargePart, Msg
from delivery_records.model.outcomes import Decision
from delivery_records.model.parts import HAS_IT, Part
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.publisher.policy import Policy
from delivery_records.publisher.window import ARRIVING, Slot, Window
from delivery_records.subscriber.to_egresses import ToEgresses

Copy: TypeAlias = tuple[bool, int, Assigned]
"""What differs between the copies of one delivery: redelivered, attempt, assigned, as in `Msg`."""
FIRST_COPY: Final[Copy] = (False, 0, Assigned.ANEW)


class Target:
    """Who gets the parts of one delivery, and how far it is."""

    __slots__ = ("copy", "epoch", "is_listener", "key", "next", "rid", "sent", "since", "taken")

    def __init__(self, subscription: Subscription, copy: Copy, now: float) -> None:
        """Nothing was sent."""
        self.key = subscription.key
        self.epoch = subscription.epoch
        self.rid = subscription.record.rid
        self.is_listener = subscription.record.mode is SubscriptionMode.AT_MOST_ONCE
        """The publisher's settlement would end it (c.3)."""
        self.copy = copy
        self.next = 0
        """The piece that is sent next."""
        self.sent = 0
        self.taken = 0
        """Bytes that have gone to the subscriber, as its egress says (L-4)."""
        self.since = now
        """When it took something last."""

    @property
    def patience_s(self) -> float:
        """How long it may take nothing: who has no credit and would owe nothing is soon passed over."""
        return LARGE_STALL_S / LARGE_LOOKS if self.is_listener and not self.taken else LARGE_STALL_S


class Stream:
    """One large delivery: the pieces that some target has not taken."""

    __slots__ = ("first", "had", "is_whole", "pieces", "received", "released", "slot", "targets")

    def __init__(self, slot: Slot) -> None:
        """Nothing has come."""
        self.slot = slot
        self.pieces: deque[bytes] = deque()
        self.first = 0
        """Number of the first piece that is here."""
        self.released = 0
        """Bytes before it."""
        self.received = 0
        self.is_whole = False
        self.had = 0
        """How many that owe it were sent it before, and so are no targets."""
        self.targets: dict[str, Target] = {}

    @property
    def end(self) -> int:
        """Number of the piece that comes next."""
        return self.first + len(self.pieces)

    @property
    def has_listener(self) -> bool:
        """Somebody is in it who gets it at most once, and so till it is settled (c.3)."""
        return any(target.is_listener for target in self.targets.values())

    def is_taken_by(self, target: Target) -> bool:
        """It has all that has come."""
        return target.taken >= self.received

    def add(self, data: bytes, size: int, *, is_last: bool) -> None:
        """Cut what has come to pieces that let other frames pass between them."""
        if len(data) <= size:
            if data or is_last:
                self.pieces.append(data)
        else:
            for at in range(0, len(data), size):
                self.pieces.append(data[at : at + size])
        self.received += len(data)
        self.is_whole = is_last

    def part(self, piece: int) -> Part:
        """Which part of the delivery a piece is."""
        if piece == 0:
            return Part.FIRST
        return Part.LAST if self.is_whole and piece == self.end - 1 else Part.MIDDLE


class LargeStreams(Policy):
    """The streams of one publisher, by the number of the delivery."""

    __slots__ = ("_blocked_since", "_channels", "_endpoint", "_streams", "_to_egresses", "_turn", "_window")

    def __init__(
        self, turn: Turn, endpoint: Endpoint, window: Window, to_egresses: ToEgresses, channels: Channels
    ) -> None:
        """No stream yet.

        Args:
            turn: of this router.
            endpoint: the ingress.
            window: of the publisher.
            to_egresses: the egresses of this router.
            channels: the way to those of other routers.
        """
        self._turn = turn
        self._endpoint = endpoint
        self._window = window
        self._to_egresses = to_egresses
        self._channels = channels
        self._streams: dict[int, Stream] = {}
        self._blocked_since = turn.now

    def __len__(self) -> int:
        """Streams that are not through."""
        return len(self._streams)

    def all(self) -> list[Stream]:
        """In the order of the window."""
        return list(self._streams.values())

    @property
    def held_bytes(self) -> int:
        """Of bodies: what some target has not taken."""
        return sum(len(piece) for stream in self._streams.values() for piece in stream.pieces)

    # ------------------------------------------------------------------ what the publisher sends

    def begin(self, slot: Slot, first: bytes, delivery_id: int) -> None:
        """L-1: a large delivery was entered; `first` is its first part, as it goes out."""
        stream = self._streams[slot.number] = Stream(slot)
        stream.add(first, self._turn.limits.large_piece_bytes, is_last=False)
        head = stream.pieces[0] if stream.pieces else b""
        self._window.begin_large(slot, head, delivery_id)
        self._window.hold(stream.received)

    def add(self, slot: Slot, data: bytes, *, is_last: bool) -> None:
        """One more part; it goes out at the end of this turn."""
        stream = self._streams.get(slot.number)
        if stream is not None:
            stream.add(data, self._turn.limits.large_piece_bytes, is_last=is_last)
            self._window.hold(len(data))
        if is_last and (stream is None or not stream.has_listener):
            self._window.end_large(slot)

    def abort(self, slot: Slot) -> None:
        """L-5: there will be no more of it; nobody has anything of it."""
        stream = self._streams.get(slot.number)
        if stream is not None:
            begun = [target for target in stream.targets.values() if target.next]
            self._drop(stream)
            self._send(stream, begun, LargePart(self._endpoint.epoch, slot.number, _epochs(begun), Part.ABORT))

    def forget(self, slot: Slot) -> None:
        """It has left the window: its SETTLE ends it at the egresses (E-5)."""
        stream = self._streams.get(slot.number)
        if stream is not None:
            self._drop(stream)

    def clear(self) -> None:
        """I-7: a newer epoch has the window."""
        self._streams = {}

    def _drop(self, stream: Stream) -> None:
        del self._streams[stream.slot.number]
        self._let_go(stream, len(stream.pieces))

    # ------------------------------------------------------------------ who gets it

    def offer(self, slot: Slot, subscriptions: Iterable[Subscription], copy: Copy = FIRST_COPY) -> None:
        """L-2: they are owed it, or listen: as targets while all of it is here, else without its body (L-7)."""
        stream = self._streams.get(slot.number)
        late: list[Subscription] = []
        for subscription in subscriptions:
            rid = subscription.record.rid
            if rid != self._turn.rid and rid not in self._turn.view.routers:
                continue  # it has no link; the SYNC to its next egress names the delivery
            if stream is not None and subscription.key in stream.targets:
                continue  # it gets it
            if stream is None or stream.first:
                late.append(subscription)
            else:
                stream.targets[subscription.key] = Target(subscription, copy, self._turn.now)
        if stream is not None:
            self._pump(stream)
        redelivered, attempt, assigned = copy
        for rid in {subscription.record.rid for subscription in late}:
            epochs = tuple(subscription.epoch for subscription in late if subscription.record.rid == rid)
            message = Msg(
                self._endpoint.epoch,
                slot.number,
                slot.tag,
                slot.message,
                epochs,
                redelivered=redelivered,
                attempt=attempt,
                message_format=slot.message_format,
                assigned=assigned,
                is_large=True,
            )
            if rid == self._turn.rid:
                self._to_egresses.deliver(rid, message)
            else:
                self._channels.send_stream(rid, message)

    def goes_on(self, slot: Slot) -> bool:
        """L-7: some subscriber is in the middle of it, and takes it."""
        stream = self._streams.get(slot.number)
        late = self._turn.now - LARGE_STALL_S
        return stream is not None and any(t.taken and t.since > late for t in stream.targets.values())

    def leave(self, key: str) -> None:
        """A subscription ended, moved, or is sent all of it anew (I-5)."""
        for stream in self._streams.values():
            stream.targets.pop(key, None)

    def leave_one(self, number: int, key: str) -> None:
        """SH-2: a member gave one back."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.targets.pop(key, None)

    def on_router_gone(self, rid: int) -> None:
        """What was on its way to that router is lost."""
        for stream in self._streams.values():
            for target in [target for target in stream.targets.values() if target.rid == rid]:
                del stream.targets[target.key]

    def on_taken(self, key: str, epoch: int, number: int, taken: int) -> None:
        """L-4: so much has gone to the subscriber; L-2: or it is no target any more."""
        stream = self._streams.get(number)
        target = None if stream is None else stream.targets.get(key)
        if stream is None or target is None or target.epoch != epoch:
            return
        if taken >= HAS_IT:
            del stream.targets[key]
            stream.had += taken == HAS_IT
        elif taken > target.taken:
            target.taken = min(taken, target.sent)
            target.since = self._turn.now

    # ------------------------------------------------------------------ sending

    def flush(self) -> None:
        """At the end of a turn: send what may go, and drop what all have taken."""
        for stream in list(self._streams.values()):
            self._pump(stream)
            self._release(stream)

    def _pump(self, stream: Stream) -> None:
        ahead = self._turn.limits.large_ahead_bytes
        while True:
            groups: dict[tuple[int, Copy], list[Target]] = {}
            for target in stream.targets.values():
                if target.next < stream.end and target.sent - target.taken < ahead:  # L-4
                    copy = FIRST_COPY if target.next else target.copy
                    groups.setdefault((target.next, copy), []).append(target)
            if not groups:
                return
            for (piece, copy), group in groups.items():
                self._send_piece(stream, piece, copy, group)

    def _send_piece(self, stream: Stream, piece: int, copy: Copy, group: list[Target]) -> None:
        slot, data = stream.slot, stream.pieces[piece - stream.first]
        part = stream.part(piece)
        for target in group:
            target.next += 1
            target.sent += len(data)
        message = LargePart(self._endpoint.epoch, slot.number, _epochs(group), part, data)
        if part is Part.FIRST:
            message.tag, message.message_format = slot.tag, slot.message_format
            message.redelivered, message.attempt, message.assigned = copy
        self._send(stream, group, message)

    def _send(self, stream: Stream, group: Iterable[Target], message: LargePart) -> None:
        """One frame for all routers that are equally far (T-2)."""
        turn = self._turn
        rids = {target.rid: None for target in group}
        if turn.rid in rids:
            self._to_egresses.deliver(turn.rid, message)
        remote = [self._channels.channel(rid) for rid in rids if rid != turn.rid and rid in turn.view.routers]
        if remote:
            self._channels.broadcast(remote, message)

    def _release(self, stream: Stream) -> None:
        """L-2: what every target has taken goes; without any, all of it, unless somebody may still get it whole."""
        targets = stream.targets
        if stream.is_whole:
            for target in [t for t in targets.values() if t.next == stream.end and t.taken >= stream.received]:
                del targets[target.key]
            if stream.slot.state is ARRIVING and not stream.has_listener:
                self._window.end_large(stream.slot)
        if targets:
            floor = min(target.taken for target in targets.values())
            last = min(target.next for target in targets.values())
            while stream.first < last and stream.released + len(stream.pieces[0]) <= floor:
                self._let_go(stream, 1)
            return
        if stream.slot.pending > stream.had and not stream.first:
            return
        self._let_go(stream, len(stream.pieces))
        if stream.is_whole:
            del self._streams[stream.slot.number]

    def _let_go(self, stream: Stream, count: int) -> None:
        """Drop the oldest pieces."""
        dropped = sum(len(stream.pieces.popleft()) for _ in range(count))
        stream.first += count
        stream.released += dropped
        self._window.hold(-dropped)

    # ------------------------------------------------------------------ who holds up the others

    def look(self, *, has_room: bool) -> None:
        """L-6: whoever takes nothing while others have taken all there is, and the publisher has no room."""
        turn = self._turn
        if has_room or not any(self._starves(stream) for stream in self._streams.values()):
            self._blocked_since = turn.now
        for stream in self._streams.values():
            for target in list(stream.targets.values()):
                since = max(target.since, self._blocked_since)
                if target.is_listener and (stream.is_whole or not has_room):
                    since = target.since  # L-1: nobody waits for it without limit
                waits = stream.is_whole or not stream.is_taken_by(target)
                if waits and turn.now - since >= target.patience_s:
                    self._leave_out(stream, target)

    def _starves(self, stream: Stream) -> bool:
        if stream.is_whole:
            return False
        return any(stream.is_taken_by(target) for target in stream.targets.values())

    def _leave_out(self, stream: Stream, target: Target) -> None:
        del stream.targets[target.key]
        number = stream.slot.number
        self._turn.note(Decision.LARGE_LEFT_OUT, publisher=self._endpoint.name, number=number, key=target.key)
        out = LargePart(self._endpoint.epoch, number, (target.epoch,), Part.ABORT, is_owed=True)
        self._send(stream, (target,), out)


def _epochs(targets: Iterable[Target]) -> tuple[int, ...]:
    return tuple(target.epoch for target in targets)
