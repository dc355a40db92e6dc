"""Frames from other routers: wait for the watch, check the epochs, hand to ingress or egress (T-3, E-1, I-2)."""

from __future__ import annotations

from collections import deque

from delivery_records.channels.channel import Channels
from delivery_records.model.inputs import RouterFrame
from delivery_records.model.limits import PARKED_FRAMES, PARKED_S
from delivery_records.model.messages import (
    Ack,
    Annotations,
    Claim,
    FormerAnnotations,
    LargePart,
    Msg,
    Nack,
    Need,
    Reason,
    Return,
    Room,
    RouterMessage,
    Settle,
    Sync,
    Taken,
)
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.publisher.to_ingresses import ToIngresses
from delivery_records.subscriber.to_egresses import ToEgresses


class FrameRouting:
    """What arrives from other routers, parked while our view is behind."""

    __slots__ = ("_channels", "_parked", "_to_egresses", "_to_ingresses", "_turn")

    def __init__(self, turn: Turn, channels: Channels, to_egresses: ToEgresses, to_ingresses: ToIngresses) -> None:
        """Nothing is parked."""
        self._turn = turn
        self._channels = channels
        self._to_egresses = to_egresses
        self._to_ingresses = to_ingresses
        self._parked: dict[tuple[int, int], deque[tuple[float, RouterMessage]]] = {}
        """By (origin, the epoch whose order must be kept): since when, and frames that name a revision not applied yet.
        Behind PARKED_FRAMES of them the rest is missing: the channel restarts once it is of use."""

    def on_frame(self, frame: RouterFrame) -> None:
        """A sequenced frame: take it in order, park it if it names a revision we have not applied (T-3)."""
        if frame.origin in self._turn.view.dead:
            return  # what a dead incarnation left behind is repeated by the next ingress (I-5)
        channel = self._channels.channel(frame.origin)
        message = channel.on_frame(frame.generation, frame.sequence, frame.message)
        if message is None:
            return
        place = (frame.origin, _order_of(message))
        if place in self._parked or _revision(message) > self._turn.view.applied:
            self._park(place, message)
        else:
            self.deliver(frame.origin, message)

    def _park(self, place: tuple[int, int], message: RouterMessage) -> None:
        self._turn.counts[Decision.FRAME_PARKED] += 1
        self._trace(message, Rule.PARKED, _revision(message))
        queue = self._parked.setdefault(place, deque())
        if len(queue) <= PARKED_FRAMES:
            queue.append((self._turn.now, message))
        if not self._turn.timers.is_set(Timer.PARKED, place[0]):
            self._turn.timers.set(Timer.PARKED, place[0], self._turn.now + PARKED_S)

    def on_applied(self) -> None:
        """Our view advanced: go on with what waited for it."""
        applied = self._turn.view.applied
        for place in list(self._parked):
            queue = self._parked.get(place)
            if queue and len(queue) > PARKED_FRAMES and _revision(queue[0][1]) <= applied:
                self._restart(place[0], "too many frames waited for the watch")
                continue
            while queue and _revision(queue[0][1]) <= applied:
                self._trace(queue[0][1], Rule.UNPARKED, _revision(queue[0][1]))
                self.deliver(place[0], queue.popleft()[1])
            if not queue:
                self._parked.pop(place, None)

    def on_parked_timer(self, rid: int) -> None:
        """T-3: a list that is too old restarts the channel."""
        oldest = min((queue[0][0] for place, queue in self._parked.items() if place[0] == rid), default=None)
        if oldest is None:
            return
        if oldest + PARKED_S <= self._turn.now:
            self._restart(rid, "frames waited too long for the watch")
        else:
            self._turn.timers.set(Timer.PARKED, rid, oldest + PARKED_S)

    def _restart(self, rid: int, reason: str) -> None:
        self.drop(rid)
        channel = self._channels.find(rid)
        if channel is not None:
            channel.restart(reason)

    def drop(self, rid: int) -> None:
        """Forget what is parked of one router: the channel has started over (T-4)."""
        for place in [place for place in self._parked if place[0] == rid]:
            del self._parked[place]
        self._turn.timers.cancel(Timer.PARKED, rid)

    # ------------------------------------------------------------------ handing over

    def deliver(self, origin: int, message: RouterMessage) -> None:
        """Hand a message over."""
        if isinstance(message, (Msg, LargePart, Settle, Sync, FormerAnnotations)):
            self._to_egresses.deliver(origin, message)
        elif isinstance(message, (Ack, Nack, Reason, Annotations, Claim, Return, Room, Taken, Need)):
            self._to_ingresses.deliver(message)

    def _trace(self, message: RouterMessage, rule: Rule, revision: int) -> None:
        if self._turn.tracing is not None and isinstance(message, Msg):
            self._turn.tracing.of_epoch(message.publisher_epoch, message.tag, rule, revision)


def _revision(message: RouterMessage) -> int:
    """T-3, T-8: the largest epoch a message names is the revision it must wait for."""
    if isinstance(message, Msg):
        named = message.publisher_epoch
        if message.after > named:
            named = message.after
        return named if message.to is None else max((named, *message.to))
    if isinstance(message, Sync):
        return max((message.publisher_epoch, *message.subscription_epochs))
    if isinstance(message, (Ack, Nack, Reason, Annotations, Claim, Return, Room, Taken, Need)):
        return message.subscription_epoch
    if isinstance(message, LargePart):
        return max((message.publisher_epoch, *message.to))
    if isinstance(message, FormerAnnotations):
        return max(message.publisher_epoch, message.subscription_epoch)
    assert isinstance(message, Settle)
    return message.publisher_epoch


def _order_of(message: RouterMessage) -> int:
    """Frames with the same value keep their order: a publisher's stream, a subscription's answers (T-3, T-6)."""
    if isinstance(message, (Ack, Nack, Reason, Annotations, Claim, Return, Room, Taken, Need)):
        return -message.subscription_epoch
    assert isinstance(message, (Sync, Msg, LargePart, Settle, FormerAnnotations))
    return message.publisher_epoch
