"""What the watch makes a router do: rules A-3, A-6, E-6, E-7, I-5 to I-8, K-2, K-4, K-5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delivery_records import effects
from delivery_records.attaching import Attempt
from delivery_records.egress import Egress
from delivery_records.ingress import Ingress, Phase
from delivery_records.inputs import LossCause, PublisherAttach, SubscriberAttach, ViewChanges, ViewSnapshot
from delivery_records.outcomes import Decision
from delivery_records.timers import OF_AN_INGRESS, Timer
from delivery_records.topics import matches
from delivery_records.view import Change, Kind, Publisher, Subscription, rid_of_key

if TYPE_CHECKING:
    from delivery_records.records import Records

_STOLEN = "amqp:link:stolen"


class Reactions:
    """Folds changes into the view and carries out what they mean, one change at a time (K-2)."""

    __slots__ = ("_core", "_turn",)

    def __init__(self, core: Records) -> None:
        """Act on `core`."""
        self._core = core
        self._turn = core.turn

    def on_changes(self, changes: ViewChanges) -> None:
        """Events of whole revisions, in order."""
        turn = self._turn
        for change in changes.changes:
            turn.view.applied = max(turn.view.applied, change.mod_revision)
            self._apply(change)
        self._advance(changes.revision)

    def on_snapshot(self, snapshot: ViewSnapshot) -> None:
        """K-1, K-4: take over a snapshot as the changes that lead to it, before any later message."""
        core = self._core
        turn = self._turn
        turn.note(Decision.VIEW_RELOADED, revision=snapshot.revision, keys=len(snapshot.entries))
        turn.view.applied = max(turn.view.applied, snapshot.revision)
        turn.view.announce(snapshot.entries)
        for change in turn.view.difference(list(snapshot.entries)):
            self._apply(change)
        turn.view.announce(())
        self._orphans()
        core.attaching.on_snapshot()
        core.ordered_ends.on_snapshot()  # K-5a
        self._advance(snapshot.revision)

    def _advance(self, revision: int) -> None:
        self._turn.view.applied = max(self._turn.view.applied, revision)
        self._core.peering.on_applied()
        self._core.barrier.on_applied()

    def _apply(self, change: Change) -> None:
        if change.kind is Kind.ROUTER:
            self._on_router(change)
        elif change.kind is Kind.SUBSCRIPTION:
            self._on_subscription(change)
        else:
            self._on_publisher(change)

    # ------------------------------------------------------------------ routers

    def _on_router(self, change: Change) -> None:
        core = self._core
        turn = self._turn
        turn.plan_version += 1
        if change.record is not None:
            turn.view.apply(change)
            return
        rid = rid_of_key(change.key)
        gone = turn.view.routers.get(rid)
        turn.view.apply(change)
        core.peers.drop(rid)
        core.peering.drop(rid)
        if gone is not None and rid != turn.rid:
            core.barrier.on_router_gone(rid, gone.record.leaving)
        self._orphans(rid)

    def _orphans(self, rid: int | None = None) -> None:
        """K-5, K-6: attachments of a dead incarnation; timers start from zero at our own observation."""
        core = self._core
        turn = self._turn
        for kind, attachments in (("subs", turn.view.subscriptions), ("pubs", turn.view.publishers)):
            for key, attachment in attachments.items():
                owner = attachment.record.rid
                path = f"{kind}/{key}"
                if rid is None and (owner == turn.rid or owner in turn.view.routers or core.expiry.is_counting(path)):
                    continue
                if rid is None or owner == rid:
                    core.expiry.on_orphan(path, attachment)

    # ------------------------------------------------------------------ subscriptions

    def _on_subscription(self, change: Change) -> None:
        core = self._core
        turn = self._turn
        old = turn.view.subscriptions.get(change.key)
        if old is not None and change.record is not None and old.created != change.create_revision:
            self._on_subscription(Change(change.kind, change.key, None, old.created, change.mod_revision))
            old = None
        turn.view.apply(change)
        turn.plan_version += 1
        awaited = core.expiry.cancel(f"subs/{change.key}")
        core.ordered_ends.on_subscription(
            change.key, turn.view.subscriptions.get(change.key), change.mod_revision
        )  # K-5a
        if old is not None:
            core.peering.remember_epoch(old.epoch, old.key)
        subscription = turn.view.subscriptions.get(change.key)
        if subscription is None:
            self._subscription_deleted(change.key)
            return
        self._subscription_attached(subscription, awaited)
        for ingress in list(core.ingresses.values()):
            if matches(subscription.record.topic, ingress.topic):
                ingress.on_subscription(subscription, is_new=old is None)  # I-6, I-5

    def _subscription_attached(self, subscription: Subscription, awaited: int) -> None:
        """A-6 when it is our put; E-7 when the link here was overtaken; K-5 when nobody holds it."""
        core = self._core
        turn = self._turn
        path = f"subs/{subscription.key}"
        here = core.egresses.get(subscription.key)
        proven = core.reputs.pop(subscription.record.nonce, None)
        if here is not None and proven is here:
            here.on_reput(subscription)
            if here.is_closing:
                core.propose_deletion(path, subscription.epoch)  # E-8
            return
        if here is not None:
            self._steal_subscriber(here, subscription)
        attempt = core.attaching.take(subscription.record.nonce)
        if attempt is not None and not attempt.is_lost:
            assert isinstance(attempt.request, SubscriberAttach)
            turn.durations.attach_subscriber.observe(turn.now - attempt.since)
            self._open_egress(subscription, attempt.request)
        elif subscription.record.rid == turn.rid:
            core.expiry.on_attachment_lost(path, subscription, awaited)
        elif subscription.record.rid not in turn.view.routers:
            core.expiry.on_orphan(path, subscription)

    def _open_egress(self, subscription: Subscription, request: SubscriberAttach) -> None:
        core = self._core
        turn = self._turn
        egress = Egress(core, subscription, request)
        core.egresses[subscription.key] = egress
        turn.budget.hold_map(len(request.unsettled or ()))
        core.links[request.link] = egress
        turn.plan_version += 1
        turn.note(
            Decision.SUBSCRIBER_RESUMED if request.unsettled else Decision.SUBSCRIBER_ATTACHED,
            subscription=subscription.name, topic=subscription.record.topic, epoch=subscription.epoch,
            unsettled=len(request.unsettled or ()), peer=request.peer,
        )  # fmt: skip
        if request.exactly_once:
            egress.reply()
        else:
            turn.timers.set(Timer.STOCK_REPLY, egress.key, turn.now + turn.limits.stock_reply_wait_s)
        if not egress.is_proven:
            core.proofs.ask(egress)
        core.barrier.wait(egress)

    def _steal_subscriber(self, egress: Egress, subscription: Subscription) -> None:
        """E-7: a newer epoch holds the subscription."""
        core = self._core
        turn = self._turn
        turn.note(Decision.SUBSCRIBER_STOLEN, subscription=egress.name, by=subscription.record.peer)
        core.steals.on_stolen(f"subs/{egress.key}", turn.now, egress.request.peer, subscription.record.peer)
        text = f"attached again by {subscription.record.peer or 'another connection'}"
        core.forget_egress(egress)
        turn.out.append(effects.Detach(egress.link, egress.is_closing, _STOLEN, text))

    def _subscription_deleted(self, key: str) -> None:
        core = self._core
        turn = self._turn
        egress = core.egresses.get(key)
        if egress is not None:
            core.forget_egress(egress)
            if egress.is_closing:
                turn.note(Decision.SUBSCRIBER_CLOSED, subscription=egress.name)
                turn.out.append(effects.Detach(egress.link, True))  # E-8: only now is it unsubscribed
            else:
                turn.note(Decision.SUBSCRIBER_DELETED, subscription=egress.name)
                info = {"x-opt-topic-resume": "expired"}
                text = "the subscription has expired or was deleted"
                turn.out.append(effects.Detach(egress.link, True, "amqp:resource-deleted", text, info))
        for ingress in core.ingresses.values():
            ingress.on_subscription_deleted(key)  # I-3
        core.attaching.on_deleted(f"subs/{key}")

    # ------------------------------------------------------------------ publishers

    def _on_publisher(self, change: Change) -> None:
        core = self._core
        turn = self._turn
        old = turn.view.publishers.get(change.key)
        turn.view.apply(change)
        awaited = core.expiry.cancel(f"pubs/{change.key}")
        publisher = turn.view.publishers.get(change.key)
        if old is not None and old.session and (publisher is None or publisher.session != old.session):
            for egress in list(core.egresses.values()):
                egress.on_session_gone(old.session)  # E-6
        if publisher is None:
            self._publisher_deleted(change.key)
        else:
            self._publisher_attached(publisher, awaited)

    def _publisher_attached(self, publisher: Publisher, awaited: int) -> None:
        """A-3 when it is our put; I-7 when the link here was overtaken."""
        core = self._core
        turn = self._turn
        path = f"pubs/{publisher.key}"
        here = core.ingresses.get(publisher.key)
        started = core.reputs.pop(publisher.record.nonce, None)
        if here is not None and started is here:
            turn.timers.cancel(Timer.UNKNOWN_PUT, publisher.record.nonce)
            here.on_reput(publisher)
            if here.link is None:
                core.expiry.on_attachment_lost(path, publisher, awaited)
            elif here.phase is Phase.CLOSING:
                core.propose_deletion(path, publisher.epoch)  # I-8
            return
        if here is not None:
            self.forget_ingress(here)
            if here.link is not None:
                self._steal_publisher(here, publisher)
        attempt: Attempt | None = core.attaching.take(publisher.record.nonce)
        if attempt is not None and not attempt.is_lost:
            assert isinstance(attempt.request, PublisherAttach)
            turn.durations.attach_publisher.observe(turn.now - attempt.since)
            ingress = Ingress(core, publisher, attempt.request, attempt.since)
            core.ingresses[publisher.key] = ingress
            core.ingress_by_epoch[publisher.epoch] = ingress
            core.links[attempt.link] = ingress
            ingress.open(attempt.request)
        elif publisher.record.rid == turn.rid:
            core.expiry.on_attachment_lost(path, publisher, awaited)
        elif publisher.record.rid not in turn.view.routers:
            core.expiry.on_orphan(path, publisher)

    def _steal_publisher(self, ingress: Ingress, publisher: Publisher) -> None:
        core = self._core
        turn = self._turn
        assert ingress.link is not None
        turn.note(Decision.PUBLISHER_STOLEN, publisher=ingress.name, by=publisher.record.peer)
        core.steals.on_stolen(f"pubs/{ingress.key}", turn.now, ingress.peer, publisher.record.peer)
        text = f"attached again by {publisher.record.peer or 'another connection'}"
        turn.out.append(effects.Detach(ingress.link, ingress.phase is Phase.CLOSING, _STOLEN, text))

    def _publisher_deleted(self, key: str) -> None:
        core = self._core
        turn = self._turn
        core.forget_resend_failures(key)
        ingress = core.ingresses.get(key)
        if ingress is None:
            return
        self.forget_ingress(ingress)
        if ingress.link is None:
            return
        if ingress.phase is Phase.CLOSING:
            turn.note(Decision.PUBLISHER_CLOSED, publisher=ingress.name)
            turn.out.append(effects.Detach(ingress.link, True))  # I-8
        else:
            info = {"x-opt-topic-resume": "expired"}
            text = "the publisher's session has expired or was deleted"
            turn.out.append(effects.Detach(ingress.link, True, "amqp:resource-deleted", text, info))

    def forget_ingress(self, ingress: Ingress) -> None:
        """I-7: the window belongs to the newest epoch alone."""
        core = self._core
        turn = self._turn
        core.ingresses.pop(ingress.key, None)
        core.disconnected.pop(ingress.key, None)
        core.ingress_by_epoch.pop(ingress.epoch, None)
        ingress.retire()
        if ingress.link is not None:
            core.links.pop(ingress.link, None)
        for timer in OF_AN_INGRESS:
            turn.timers.cancel(timer, ingress.key)

    # ------------------------------------------------------------------ the router's budget

    def on_budget(self) -> None:
        """C-6: the budget is full, or was. Windows of publishers without a link go; with room, look at the others."""
        core = self._core
        turn = self._turn
        forgettable = core.disconnected
        while forgettable and turn.budget.is_short:
            ingress = next(iter(forgettable.values()))
            turn.note(Decision.WINDOW_FORGOTTEN, publisher=ingress.name, unsettled=len(ingress.window))
            self.forget_ingress(ingress)  # as in a crash (N-1): its publisher presents its map, and sends again
        if turn.budget.has_room_again():
            self._look_for_room()

    def on_room_timer(self) -> None:
        """C-6: less room than is worth a look in every turn must not be kept from those who wait for it."""
        if self._turn.budget.has_room_again(however_little=True):
            self._look_for_room()

    def _look_for_room(self) -> None:
        core = self._core
        turn = self._turn
        turn.out.append(effects.RoomAgain())
        for ingress in core.ingresses.values():
            ingress.mark_dirty()

    # ------------------------------------------------------------------ deletions that lost

    def on_deletion_lost(self, path: str) -> None:
        """E-8, I-8: the compare failed: somebody attached again, so the link here is not closed but stolen."""
        core = self._core
        turn = self._turn
        kind, _, key = path.partition("/")
        endpoint = core.egresses.get(key) if kind == Kind.SUBSCRIPTION.value else core.ingresses.get(key)
        if path in core.deletions.values() or (endpoint is not None and self._is_writing(endpoint)):
            return  # it lost to a put of the link itself: the deletion at that put's revision decides
        if isinstance(endpoint, Egress) and endpoint.is_closing:
            turn.out.append(effects.Detach(endpoint.link, True, _STOLEN, _LOST_CLOSE))
            core.suspend_subscriber(endpoint, LossCause.DETACH)
        elif isinstance(endpoint, Ingress) and endpoint.phase is Phase.CLOSING and endpoint.link is not None:
            turn.out.append(effects.Detach(endpoint.link, True, _STOLEN, _LOST_CLOSE))
            core.suspend_publisher(endpoint, LossCause.DETACH)

    def _is_writing(self, endpoint: Ingress | Egress) -> bool:
        core = self._core
        if isinstance(endpoint, Egress):
            return core.proofs.is_writing(endpoint)
        return any(found is endpoint for found in core.reputs.values())

    def on_deletion_failed(self, path: str) -> None:
        """E-8, I-8: etcd cannot be reached: as with an attach, the client must come back and close again (K-2a)."""
        core = self._core
        turn = self._turn
        kind, _, key = path.partition("/")
        endpoint = core.egresses.get(key) if kind == Kind.SUBSCRIPTION.value else core.ingresses.get(key)
        if isinstance(endpoint, Egress) and endpoint.is_closing:
            turn.out.append(effects.CloseConnection(endpoint.link, "amqp:connection:forced", _FAILED_CLOSE))
            core.suspend_subscriber(endpoint, LossCause.CONNECTION_LOSS)
        elif isinstance(endpoint, Ingress) and endpoint.phase is Phase.CLOSING and endpoint.link is not None:
            turn.out.append(effects.CloseConnection(endpoint.link, "amqp:connection:forced", _FAILED_CLOSE))
            core.suspend_publisher(endpoint, LossCause.CONNECTION_LOSS)


_FAILED_CLOSE = "the link could not be closed, for this router cannot reach etcd; attach and close again"
_LOST_CLOSE = "the link was attached again elsewhere while it was being closed; attach and close again"
