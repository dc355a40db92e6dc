"""Keys of shared subscriptions and of their members (rules SH-1, SH-3, SH-4)."""

from __future__ import annotations

from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.model import effects
from delivery_records.model.topics import matches
from delivery_records.model.view import Subscription, subscription_path

_SHARED_ENDED = "the shared subscription has expired or was deleted"


class SharedChanges:
    """What follows from the key of a shared subscription, or of a member."""

    __slots__ = ("_attaching", "_endpoints", "_expiry", "_proposals", "_turn")

    def __init__(self, parts: WatchParts) -> None:
        """Nothing has changed yet."""
        self._attaching = parts.attaching
        self._endpoints = parts.endpoints
        self._expiry = parts.expiry
        self._proposals = parts.proposals
        self._turn = parts.turn

    def on_change(self, key: str, old: Subscription | None, shared: Subscription | None) -> None:
        """It began, was put again with a member, or ended."""
        turn = self._turn
        path = subscription_path(key)
        if shared is None:
            for member in list(turn.view.members_of.get(key, {}).values()):
                self._end_member(member)
            for ingress in self._endpoints.ingresses.values():
                ingress.on_subscription_deleted(key, old)
            return
        if key not in turn.view.members_of:
            self._expiry.on_orphan(path, shared)
        if old is None:
            for ingress in list(self._endpoints.ingresses.values()):
                if matches(shared.record.topic, ingress.topic):
                    ingress.on_subscription(shared, is_new=True)

    def takes(self, member: Subscription) -> bool:
        """Whether the shared subscription is there; a member whose put was on its way when it ended, ends with it."""
        shared = self._turn.view.subscriptions.get(member.record.member_of)
        if shared is not None:
            self._expiry.cancel(subscription_path(shared.key))
            return True
        attempt = self._attaching.take(member.record.nonce)
        if attempt is not None and not attempt.is_lost:
            self._attaching.links.pop(attempt.link, None)
            self._turn.out.append(effects.DetachLink(attempt.link, True, "amqp:resource-deleted", _SHARED_ENDED))
        self._end_member(member)
        return False

    def on_member(self, member: Subscription) -> None:
        """It attached, moved, or showed life (SH-4)."""
        topic = self._turn.view.subscriptions[member.record.member_of].record.topic
        for ingress in list(self._endpoints.ingresses.values()):
            if matches(topic, ingress.topic):
                ingress.on_member(member)

    def on_member_left(self, member: Subscription) -> None:
        """SH-3; and SH-1: without members the time of the shared subscription begins."""
        for ingress in list(self._endpoints.ingresses.values()):
            ingress.on_member_deleted(member)
        shared = self._turn.view.subscriptions.get(member.record.member_of)
        if shared is not None and shared.key not in self._turn.view.members_of:
            self._expiry.on_orphan(subscription_path(shared.key), shared)

    def _end_member(self, member: Subscription) -> None:
        """SH-1: a member ends with its shared subscription; whoever is its router takes the key out."""
        egress = self._endpoints.egresses.get(member.key)
        if egress is not None:
            self._endpoints.forget_egress(egress)
            info = {"x-opt-topic-resume": "expired"}
            closed = egress.outgoing.is_closing
            condition, text = ("", "") if closed else ("amqp:resource-deleted", _SHARED_ENDED)
            self._turn.out.append(effects.DetachLink(egress.link, True, condition, text, {} if closed else info))
        if member.record.rid == self._turn.rid or member.record.rid not in self._turn.view.routers:
            self._proposals.delete(subscription_path(member.key), member.epoch)
