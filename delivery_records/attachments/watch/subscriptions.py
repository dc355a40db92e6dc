"""Keys of subscriptions: attach, move, theft and end (rules A-6, E-7, E-8, I-5, I-6)."""

from __future__ import annotations

from delivery_records.attachments.attempt import Attempt
from delivery_records.attachments.closing import STOLEN
from delivery_records.attachments.watch.shared import SharedChanges
from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.model import effects
from delivery_records.model.inputs import SubscriberAttach
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.topics import matches
from delivery_records.model.view import Change, Subscription, subscription_path
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.filtered_egress import FilteredEgress
from delivery_records.subscriber.member import MemberEgress


class SubscriptionChanges:
    """What follows from a subscription's key."""

    __slots__ = (
        "_attaching",
        "_barrier",
        "_egress_parts",
        "_endpoints",
        "_expiry",
        "_orders",
        "_proposals",
        "_shared",
        "_steals",
        "_to_ingresses",
        "_turn",
    )

    def __init__(self, parts: WatchParts) -> None:
        """Nothing has changed yet."""
        self._attaching = parts.attaching
        self._barrier = parts.barrier
        self._egress_parts = parts.egress
        self._endpoints = parts.endpoints
        self._expiry = parts.expiry
        self._orders = parts.orders
        self._proposals = parts.proposals
        self._steals = parts.steals
        self._to_ingresses = parts.to_ingresses
        self._turn = parts.turn
        self._shared = SharedChanges(parts)

    def on_change(self, change: Change) -> None:
        """It began, moved, was put again, or is gone; another create revision is another subscription."""
        turn = self._turn
        old = turn.view.subscriptions.get(change.key)
        if old is not None and change.record is not None and old.created != change.create_revision:
            self.on_change(Change(change.kind, change.key, None, old.created, change.mod_revision))
            old = None
        turn.view.apply(change)
        turn.plan_version += 1
        awaited = self._expiry.cancel(subscription_path(change.key))
        self._orders.on_subscription(change.key, turn.view.subscriptions.get(change.key), change.mod_revision)  # K-5a
        subscription = turn.view.subscriptions.get(change.key)
        known = old if subscription is None else subscription
        if known is not None and known.record.shared:
            self._shared.on_change(change.key, old, subscription)
            return
        if old is not None:
            self._to_ingresses.remember_epoch(old.epoch, old.key)
        if subscription is None:
            self._deleted(change.key, old)
            if old is not None and old.record.member_of:
                self._shared.on_member_left(old)
            return
        if subscription.record.member_of:
            if self._shared.takes(subscription):
                self._attached(subscription, awaited)
                self._shared.on_member(subscription)
            return
        self._attached(subscription, awaited)
        for ingress in list(self._endpoints.ingresses.values()):
            if matches(subscription.record.topic, ingress.topic):
                ingress.on_subscription(subscription, is_new=old is None)  # I-6, I-5
            else:
                ingress.on_other_subscription(subscription)

    def _attached(self, subscription: Subscription, awaited: int) -> None:
        """A-6 when it is our put; E-7 when the link here was overtaken; K-5 when nobody holds it."""
        turn = self._turn
        path = subscription_path(subscription.key)
        here = self._endpoints.egresses.get(subscription.key)
        proven = self._proposals.reputs.pop(subscription.record.nonce, None)
        if here is not None and proven is here:
            here.on_reput(subscription)
            if here.outgoing.is_closing:
                self._proposals.delete(path, subscription.epoch)  # E-8
            return
        if here is not None:
            self._steal(here, subscription)
        attempt = self._attaching.take(subscription.record.nonce)
        if attempt is not None and not attempt.is_lost:
            assert isinstance(attempt.request, SubscriberAttach)
            turn.durations.attach_subscriber.observe(turn.now - attempt.since)
            self._open(subscription, attempt, attempt.request)
        elif subscription.record.rid == turn.rid:
            self._expiry.on_attachment_lost(path, subscription, awaited)
        elif subscription.record.rid not in turn.view.routers:
            self._expiry.on_orphan(path, subscription)

    def _open(self, subscription: Subscription, attempt: Attempt, request: SubscriberAttach) -> None:
        turn = self._turn
        kind = Egress
        if subscription.record.member_of:
            kind = MemberEgress
        elif subscription.record.filter:
            kind = FilteredEgress  # E-9
        egress = kind(turn, subscription, request, self._egress_parts)
        if not egress.is_member:  # SH-1: of a member its shared subscription counts
            egress.existed = attempt.expect != 0
        self._endpoints.open_egress(egress)
        turn.note(
            Decision.SUBSCRIBER_RESUMED if request.unsettled else Decision.SUBSCRIBER_ATTACHED,
            subscription=subscription.name,
            topic=subscription.record.topic,
            epoch=subscription.epoch,
            unsettled=len(request.unsettled or ()),
            peer=request.peer,
        )
        if request.exactly_once:
            egress.reply()
        else:
            turn.timers.set(Timer.STOCK_REPLY, egress.key, turn.now + turn.limits.stock_reply_wait_s)
        egress.ask_for_life()
        self._barrier.wait(egress)

    def _steal(self, egress: Egress, subscription: Subscription) -> None:
        """E-7: a newer epoch holds the subscription."""
        turn = self._turn
        turn.note(Decision.SUBSCRIBER_STOLEN, subscription=egress.name, by=subscription.record.peer)
        self._steals.on_stolen(subscription_path(egress.key), turn.now, egress.request.peer, subscription.record.peer)
        text = f"attached again by {subscription.record.peer or 'another connection'}"
        self._endpoints.forget_egress(egress)
        turn.out.append(effects.DetachLink(egress.link, egress.outgoing.is_closing, STOLEN, text))

    def _deleted(self, key: str, old: Subscription | None) -> None:
        turn = self._turn
        egress = self._endpoints.egresses.get(key)
        if egress is not None:
            self._endpoints.forget_egress(egress)
            if egress.outgoing.is_closing:
                turn.note(Decision.SUBSCRIBER_CLOSED, subscription=egress.name)
                turn.out.append(effects.DetachLink(egress.link, True))  # E-8: only now is it unsubscribed
            else:
                turn.note(Decision.SUBSCRIBER_DELETED, subscription=egress.name)
                info = {"x-opt-topic-resume": "expired"}
                text = "the subscription has expired or was deleted"
                if egress.is_expelled and egress.progress is not None:
                    text = egress.progress.reason
                turn.out.append(effects.DetachLink(egress.link, True, "amqp:resource-deleted", text, info))
        for ingress in self._endpoints.ingresses.values():
            ingress.on_subscription_deleted(key, old)  # I-3
        self._attaching.on_deleted(subscription_path(key))
