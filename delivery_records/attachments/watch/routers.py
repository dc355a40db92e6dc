"""Keys of routers: who is a member, and whose attachments a dead one leaves behind (rules K-5, K-6)."""

from __future__ import annotations

from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.model.view import Change, Subscription, publisher_path, rid_of_key, subscription_path
from delivery_records.subscriber.large_parts import cut_off


class RouterChanges:
    """What follows from a router's key."""

    __slots__ = ("_barrier", "_endpoints", "_expiry", "_ingress_parts", "_routing", "_turn")

    def __init__(self, parts: WatchParts) -> None:
        """Nothing has changed yet."""
        self._barrier = parts.barrier
        self._endpoints = parts.endpoints
        self._expiry = parts.expiry
        self._ingress_parts = parts.ingress
        self._routing = parts.routing
        self._turn = parts.turn

    def on_change(self, change: Change) -> None:
        """It came, changed, or is gone: its channel with it, and what was on its way there."""
        turn = self._turn
        turn.plan_version += 1
        if change.record is not None:
            turn.view.apply(change)
            return
        rid = rid_of_key(change.key)
        gone = turn.view.routers.get(rid)
        turn.view.apply(change)
        for ingress in self._endpoints.ingresses.values():
            ingress.on_less_waits()
        self._ingress_parts.channels.drop(rid)
        self._routing.drop(rid)
        for egress in list(self._endpoints.egresses.values()):
            cut_off(egress, rid)  # L-5
        for ingress in self._endpoints.ingresses.values():
            ingress.large.on_router_gone(rid)
        if gone is not None and rid != turn.rid:
            self._barrier.on_router_gone(rid, gone.record.leaving)
        self.on_orphans(rid)

    def on_orphans(self, rid: int | None = None) -> None:
        """K-5, K-6: attachments of a dead incarnation; timers start from zero at our own observation."""
        turn = self._turn
        for path_of, attachments in (
            (subscription_path, turn.view.subscriptions),
            (publisher_path, turn.view.publishers),
        ):
            for key, attachment in attachments.items():
                owner = attachment.record.rid
                path = path_of(key)
                if isinstance(attachment, Subscription) and attachment.record.shared:
                    if rid is None and key not in turn.view.members_of and not self._expiry.is_counting(path):
                        self._expiry.on_orphan(path, attachment)  # SH-1
                    continue
                if rid is None and (owner == turn.rid or owner in turn.view.routers or self._expiry.is_counting(path)):
                    continue
                if rid is None or owner == rid:
                    self._expiry.on_orphan(path, attachment)
