"""Frames from other routers: wait for the watch, check the epochs, hand to ingress or egress (T-3, E-1, I-2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from delivery_records.inputs import PeerFrame
from delivery_records.limits import PARKED_FRAMES, PARKED_S, PAST_EPOCHS
from delivery_records.outcomes import Decision, Outcome
from delivery_records.peer_messages import Ack, Msg, Nack, PeerMessage, Run, Settle, Sync
from delivery_records.timers import Timer
from delivery_records.trace import Rule
from delivery_records.view import Subscription

if TYPE_CHECKING:
    from delivery_records.egress import Egress
    from delivery_records.ingress import Ingress
    from delivery_records.records import Records


class Peering:
    """What arrives from other routers, parked while our view is behind."""

    __slots__ = ("_core", "_parked", "_past_epochs", "_turn")

    def __init__(self, core: Records) -> None:
        """Nothing is parked."""
        self._core = core
        self._turn = core.turn
        self._parked: dict[tuple[int, int], deque[tuple[float, PeerMessage]]] = {}
        """By (origin, the epoch whose order must be kept): since when, and frames that name a revision not applied yet.
        Behind PARKED_FRAMES of them the rest is missing: the channel restarts once it is of use."""
        self._past_epochs: dict[int, str] = {}

    def on_frame(self, frame: PeerFrame) -> None:
        """A sequenced frame: take it in order, park it if it names a revision we have not applied (T-3)."""
        if frame.origin in self._turn.view.dead:
            return  # what a dead incarnation left behind is repeated by the next ingress (I-5)
        channel = self._core.peers.channel(frame.origin)
        message = channel.on_frame(frame.generation, frame.sequence, frame.message)
        if message is None:
            return
        place = (frame.origin, _order_of(message))
        if place in self._parked or _revision(message) > self._turn.view.applied:
            self._park(place, message)
        else:
            self.deliver(frame.origin, message)

    def _park(self, place: tuple[int, int], message: PeerMessage) -> None:
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
        channel = self._core.peers.find(rid)
        if channel is not None:
            channel.restart(reason)

    def drop(self, rid: int) -> None:
        """Forget what is parked of one router: the channel has started over (T-4)."""
        for place in [place for place in self._parked if place[0] == rid]:
            del self._parked[place]
        self._turn.timers.cancel(Timer.PARKED, rid)

    def remember_epoch(self, epoch: int, key: str) -> None:
        """A subscription's former epoch: its late ACKs are still true (I-2)."""
        self._past_epochs[epoch] = key
        if len(self._past_epochs) > PAST_EPOCHS:
            self._past_epochs.pop(next(iter(self._past_epochs)))

    # ------------------------------------------------------------------ handing over

    def deliver(self, origin: int, message: PeerMessage) -> None:
        """Hand a message over; one from this very router comes here directly."""
        if isinstance(message, Msg):
            self._on_msg(message)
        elif isinstance(message, Ack):
            self._on_ack(message)
        elif isinstance(message, Settle):
            self._on_settle(message)
        elif isinstance(message, Sync):
            self._on_sync(origin, message)
        elif isinstance(message, Nack):
            self._on_nack(message)

    def _on_sync(self, origin: int, sync: Sync) -> None:
        key = self._turn.view.publisher_epochs.get(sync.publisher_epoch)
        if key is None:  # E-1: only the publisher's latest epoch speaks for it
            self._turn.counts[Decision.FRAME_STALE] += 1
            return
        session = self._turn.view.publishers[key].session
        for epoch in sync.subscription_epochs:
            egress = self._core.egresses.get(self._turn.view.subscription_epochs.get(epoch, ""))
            if egress is not None:
                # E-1: a former epoch is not in the view, and a link is as old as the epoch that is (T-8).
                assert egress.epoch == epoch
                try:
                    egress.on_sync(key, origin, session, sync)
                except Exception as error:  # noqa: BLE001  (K-3b)
                    self._core.faults.of_endpoint(egress, error)
            else:
                self._turn.counts[Decision.FRAME_STALE] += 1

    def _on_msg(self, message: Msg) -> None:
        synced = self._core.synced.get(message.publisher_epoch)
        if synced is None:
            self._turn.counts[Decision.FRAME_NOT_SYNCED] += 1
            self._trace(message, Rule.NOT_SYNCED, message.publisher_epoch)
            return
        if message.to is None:
            egresses = list(synced.values())
        else:
            keys = [self._turn.view.subscription_epochs.get(epoch, "") for epoch in message.to]
            egresses = [synced[key] for key in keys if key in synced]
        for egress in egresses:
            try:
                if message.settled:
                    egress.on_presettled(
                        message.publisher_epoch, message.tag, message.message, message.message_format
                    )
                else:
                    egress.on_msg(
                        message.publisher_epoch, message.number, message.tag, message.message, message.redelivered,
                        message.attempt, message.message_format,
                    )  # fmt: skip
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._core.faults.of_endpoint(egress, error)

    def _trace(self, message: PeerMessage, rule: Rule, *fields: object) -> None:
        if self._turn.tracing is not None and isinstance(message, Msg):
            self._turn.tracing.of_epoch(message.publisher_epoch, message.tag, rule, *fields)

    def _on_settle(self, settle: Settle) -> None:
        for egress in list(self._core.synced.get(settle.publisher_epoch, {}).values()):
            self.settle(egress, settle.publisher_epoch, settle.runs)

    def settle(self, egress: Egress, publisher_epoch: int, runs: Sequence[Run]) -> None:
        """E-5, for one egress here."""
        try:
            egress.on_settle(publisher_epoch, runs)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._core.faults.of_endpoint(egress, error)

    def _on_ack(self, ack: Ack) -> None:
        subscription = self._subscription(ack.subscription_epoch)
        ingress = self._core.ingress_by_epoch.get(ack.publisher_epoch)  # T-7: numbers of this epoch only
        if subscription is None or ingress is None:
            self._turn.counts[Decision.ACK_STALE] += 1
            return
        self.acknowledge(ingress, subscription, ack.runs, ack.outcome)

    def acknowledge(
        self, ingress: Ingress, subscription: Subscription, runs: Iterable[Sequence[int]], outcome: Outcome
    ) -> None:
        """I-2, for one ingress here."""
        try:
            for first, count in runs:
                ingress.on_acknowledged(subscription, first, count, outcome)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._core.faults.of_endpoint(ingress, error)

    def _on_nack(self, nack: Nack) -> None:
        subscription = self._subscription(nack.subscription_epoch)
        ingress = self._core.ingress_by_epoch.get(nack.publisher_epoch)
        if subscription is not None and ingress is not None:
            try:
                ingress.retries.on_again(subscription, nack.number, nack.failed)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._core.faults.of_endpoint(ingress, error)

    def _subscription(self, epoch: int) -> Subscription | None:
        """I-2: any epoch counts; what a former life of the subscription was sent lies before the start of this one."""
        view = self._turn.view
        key = view.subscription_epochs.get(epoch) or self._past_epochs.get(epoch)
        return None if key is None else view.subscriptions.get(key)


def _revision(message: PeerMessage) -> int:
    """T-3, T-8: the largest epoch a message names is the revision it must wait for."""
    if isinstance(message, Msg):
        named = message.publisher_epoch
        if message.after > named:
            named = message.after
        return named if message.to is None else max(named, *message.to)
    if isinstance(message, Sync):
        return max(message.publisher_epoch, *message.subscription_epochs)
    if isinstance(message, (Ack, Nack)):
        return message.subscription_epoch
    assert isinstance(message, Settle)
    return message.publisher_epoch


def _order_of(message: PeerMessage) -> int:
    """Frames with the same value keep their order: a publisher's stream, a subscription's answers (T-3, T-6)."""
    if isinstance(message, (Ack, Nack)):
        return -message.subscription_epoch
    assert isinstance(message, (Sync, Msg, Settle))
    return message.publisher_epoch
