"""The watch of etcd: each change goes into the view, and what it means is carried out (rules K-2, K-4)."""

from __future__ import annotations

from delivery_records.attachments.watch.publishers import PublisherChanges
from delivery_records.attachments.watch.routers import RouterChanges
from delivery_records.attachments.watch.subscriptions import SubscriptionChanges
from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.model.inputs import ViewChanges, ViewSnapshot
from delivery_records.model.outcomes import Decision
from delivery_records.model.view import Change, Kind


class WatchHandlers:
    """Folds changes into the view and carries out what they mean, one change at a time (K-2)."""

    __slots__ = ("_attaching", "_barrier", "_orders", "_publishers", "_routers", "_routing", "_subscriptions", "_turn")

    def __init__(self, parts: WatchParts) -> None:
        """Nothing has changed yet."""
        self._turn = parts.turn
        self._routing = parts.routing
        self._barrier = parts.barrier
        self._attaching = parts.attaching
        self._orders = parts.orders
        self._routers = RouterChanges(parts)
        self._subscriptions = SubscriptionChanges(parts)
        self._publishers = PublisherChanges(parts)

    def on_changes(self, changes: ViewChanges) -> None:
        """Events of whole revisions, in order."""
        turn = self._turn
        for change in changes.changes:
            turn.view.applied = max(turn.view.applied, change.mod_revision)
            self._apply(change)
        self._advance(changes.revision)

    def on_snapshot(self, snapshot: ViewSnapshot) -> None:
        """K-1, K-4: take over a snapshot as the changes that lead to it, before any later message."""
        turn = self._turn
        turn.note(Decision.VIEW_RELOADED, epoch=snapshot.revision, keys=len(snapshot.entries))
        turn.view.applied = max(turn.view.applied, snapshot.revision)
        turn.view.announce(snapshot.entries)
        for change in turn.view.difference(list(snapshot.entries)):
            self._apply(change)
        turn.view.announce(())
        self._routers.on_orphans()
        self._attaching.on_snapshot()
        self._orders.on_snapshot()  # K-5a
        self._advance(snapshot.revision)

    def _advance(self, revision: int) -> None:
        self._turn.view.applied = max(self._turn.view.applied, revision)
        self._routing.on_applied()
        self._barrier.on_applied()

    def _apply(self, change: Change) -> None:
        if change.kind is Kind.ROUTER:
            self._routers.on_change(change)
        elif change.kind is Kind.SUBSCRIPTION:
            self._subscriptions.on_change(change)
        else:
            self._publishers.on_change(change)
