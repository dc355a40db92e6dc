"""What the watch makes a router do: rules A-3, A-6, E-6, E-7, I-5 to I-8, K-2, K-4, K-5."""

from __future__ import annotations

from delivery_records.attachments.attaching import Attaching, Attempt
from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.closing import STOLEN
from delivery_records.attachments.ending import OrderedEnds
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.expiry import Expiry
from delivery_records.attachments.refusals import NOT_HELD
from delivery_records.attachments.steals import StealGuard
from delivery_records.channels.routing import FrameRouting
from delivery_records.model import effects
from delivery_records.model.inputs import PublisherAttach, SubscriberAttach, ViewChanges, ViewSnapshot
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.topics import matches
from delivery_records.model.turn import Turn
from delivery_records.model.view import (
    Change,
    Kind,
    Publisher,
    Subscription,
    publisher_path,
    rid_of_key,
    subscription_path,
)
from delivery_records.publisher.ingress import Ingress, IngressParts
from delivery_records.publisher.phase import Phase
from delivery_records.publisher.resumption import Held
from delivery_records.publisher.to_ingresses import ToIngresses
from delivery_records.subscriber.egress import Egress, EgressParts
from delivery_records.subscriber.filtered_egress import FilteredEgress
from delivery_records.subscriber.former_letters import settle_former_letters
from delivery_records.subscriber.member import MemberEgress


class WatchHandlers:
    """Folds changes into the view and carries out what they mean, one change at a time (K-2)."""

    __slots__ = (
        "_attaching", "_barrier", "_egress_parts", "_endpoints", "_expiry", "_ingress_parts", "_orders", "_proposals",
        "_routing", "_steals", "_to_ingresses", "_turn",
    )  # fmt: skip

    def __init__(
        self, turn: Turn, endpoints: Endpoints, ingress_parts: IngressParts, egress_parts: EgressParts,
        attaching: Attaching, barrier: AttachBarrier, expiry: Expiry, orders: OrderedEnds, steals: StealGuard,
        routing: FrameRouting, to_ingresses: ToIngresses,
    ) -> None:  # fmt: skip
        """Whatever follows the watch, and what new ingresses and egresses are made of."""
        self._turn = turn
        self._endpoints = endpoints
        self._ingress_parts = ingress_parts
        self._egress_parts = egress_parts
        self._proposals = ingress_parts.proposals
        self._attaching = attaching
        self._barrier = barrier
        self._expiry = expiry
        self._orders = orders
        self._steals = steals
        self._routing = routing
        self._to_ingresses = to_ingresses

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
        turn.note(Decision.VIEW_RELOADED, revision=snapshot.revision, keys=len(snapshot.entries))
        turn.view.applied = max(turn.view.applied, snapshot.revision)
        turn.view.announce(snapshot.entries)
        for change in turn.view.difference(list(snapshot.entries)):
            self._apply(change)
        turn.view.announce(())
        self._orphans()
        self._attaching.on_snapshot()
        self._orders.on_snapshot()  # K-5a
        self._advance(snapshot.revision)

    def _advance(self, revision: int) -> None:
        self._turn.view.applied = max(self._turn.view.applied, revision)
        self._routing.on_applied()
        self._barrier.on_applied()

    def _apply(self, change: Change) -> None:
        if change.kind is Kind.ROUTER:
            self._on_router(change)
        elif change.kind is Kind.SUBSCRIPTION:
            self._on_subscription(change)
        else:
            self._on_publisher(change)

    # ------------------------------------------------------------------ routers

    def _on_router(self, change: Change) -> None:
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
            if ingress.fanout.letters is not None:
                ingress.mark_dirty()  # I-3e: it may have been the last of an older release
        self._ingress_parts.channels.drop(rid)
        self._routing.drop(rid)
        for egress in list(self._endpoints.egresses.values()):
            egress.cut_off(rid)  # L-5
        for ingress in self._endpoints.ingresses.values():
            ingress.large.on_router_gone(rid)
        if gone is not None and rid != turn.rid:
            self._barrier.on_router_gone(rid, gone.record.leaving)
        self._orphans(rid)

    def _orphans(self, rid: int | None = None) -> None:
        """K-5, K-6: attachments of a dead incarnation; timers start from zero at our own observation."""
        turn = self._turn
        for path_of, attachments in (
            (subscription_path, turn.view.subscriptions), (publisher_path, turn.view.publishers)
        ):  # fmt: skip
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

    # ------------------------------------------------------------------ subscriptions

    def _on_subscription(self, change: Change) -> None:
        turn = self._turn
        old = turn.view.subscriptions.get(change.key)
        if old is not None and change.record is not None and old.created != change.create_revision:
            self._on_subscription(Change(change.kind, change.key, None, old.created, change.mod_revision))
            old = None
        turn.view.apply(change)
        turn.plan_version += 1
        awaited = self._expiry.cancel(subscription_path(change.key))
        self._orders.on_subscription(
            change.key, turn.view.subscriptions.get(change.key), change.mod_revision
        )  # K-5a
        subscription = turn.view.subscriptions.get(change.key)
        known = old if subscription is None else subscription
        if known is not None and known.record.shared:
            self._on_shared(change.key, old, subscription)
            return
        if old is not None:
            self._to_ingresses.remember_epoch(old.epoch, old.key)
        if subscription is None:
            self._subscription_deleted(change.key, "" if old is None else old.name)
            if old is not None and old.record.member_of:
                self._member_left(old)
            return
        if subscription.record.member_of:
            self._on_member(subscription, awaited)
            return
        self._subscription_attached(subscription, awaited)
        for ingress in list(self._endpoints.ingresses.values()):
            if matches(subscription.record.topic, ingress.topic):
                ingress.on_subscription(subscription, is_new=old is None)  # I-6, I-5
            else:
                ingress.on_other_subscription(subscription)

    def _subscription_attached(self, subscription: Subscription, awaited: int) -> None:
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
            self._steal_subscriber(here, subscription)
        attempt = self._attaching.take(subscription.record.nonce)
        if attempt is not None and not attempt.is_lost:
            assert isinstance(attempt.request, SubscriberAttach)
            turn.durations.attach_subscriber.observe(turn.now - attempt.since)
            self._open_egress(subscription, attempt.request)
        elif subscription.record.rid == turn.rid:
            self._expiry.on_attachment_lost(path, subscription, awaited)
        elif subscription.record.rid not in turn.view.routers:
            self._expiry.on_orphan(path, subscription)

    # ------------------------------------------------------------------ shared subscriptions (SH-1)

    def _on_shared(self, key: str, old: Subscription | None, shared: Subscription | None) -> None:
        """It began, was put again with a member, or ended."""
        turn = self._turn
        path = subscription_path(key)
        if shared is None:
            for member in list(turn.view.members_of.get(key, {}).values()):
                self._end_member(member)
            for ingress in self._endpoints.ingresses.values():
                ingress.on_subscription_deleted(key, "" if old is None else old.name)
            return
        if key not in turn.view.members_of:
            self._expiry.on_orphan(path, shared)
        if old is None:
            for ingress in list(self._endpoints.ingresses.values()):
                if matches(shared.record.topic, ingress.topic):
                    ingress.on_subscription(shared, is_new=True)

    def _on_member(self, member: Subscription, awaited: int) -> None:
        """It attached, moved, or showed life."""
        turn = self._turn
        shared = turn.view.subscriptions.get(member.record.member_of)
        if shared is None:
            attempt = self._attaching.take(member.record.nonce)
            if attempt is not None and not attempt.is_lost:
                self._attaching.links.pop(attempt.link, None)
                self._turn.out.append(effects.DetachLink(attempt.link, True, "amqp:resource-deleted", _SHARED_ENDED))
            self._end_member(member)  # its put was on its way when the shared subscription ended
            return
        self._expiry.cancel(subscription_path(shared.key))
        self._subscription_attached(member, awaited)
        for ingress in list(self._endpoints.ingresses.values()):
            if matches(shared.record.topic, ingress.topic):
                ingress.on_member(member)

    def _member_left(self, member: Subscription) -> None:
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

    def _open_egress(self, subscription: Subscription, request: SubscriberAttach) -> None:
        turn = self._turn
        kind = Egress
        if subscription.record.member_of:
            kind = MemberEgress
        elif subscription.record.filter:
            kind = FilteredEgress  # E-9
        egress = kind(turn, subscription, request, self._egress_parts)
        self._endpoints.open_egress(egress)
        turn.note(
            Decision.SUBSCRIBER_RESUMED if request.unsettled else Decision.SUBSCRIBER_ATTACHED,
            subscription=subscription.name, topic=subscription.record.topic, epoch=subscription.epoch,
            unsettled=len(request.unsettled or ()), peer=request.peer,
        )  # fmt: skip
        if request.exactly_once:
            egress.reply()
        else:
            turn.timers.set(Timer.STOCK_REPLY, egress.key, turn.now + turn.limits.stock_reply_wait_s)
        egress.ask_for_life()
        self._barrier.wait(egress)

    def _steal_subscriber(self, egress: Egress, subscription: Subscription) -> None:
        """E-7: a newer epoch holds the subscription."""
        turn = self._turn
        turn.note(Decision.SUBSCRIBER_STOLEN, subscription=egress.name, by=subscription.record.peer)
        self._steals.on_stolen(subscription_path(egress.key), turn.now, egress.request.peer, subscription.record.peer)
        text = f"attached again by {subscription.record.peer or 'another connection'}"
        self._endpoints.forget_egress(egress)
        turn.out.append(effects.DetachLink(egress.link, egress.outgoing.is_closing, STOLEN, text))

    def _subscription_deleted(self, key: str, name: str) -> None:
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
            ingress.on_subscription_deleted(key, name)  # I-3
        self._attaching.on_deleted(subscription_path(key))

    # ------------------------------------------------------------------ publishers

    def _on_publisher(self, change: Change) -> None:
        turn = self._turn
        old = turn.view.publishers.get(change.key)
        turn.view.apply(change)
        awaited = self._expiry.cancel(publisher_path(change.key))
        publisher = turn.view.publishers.get(change.key)
        if old is not None and old.session and (publisher is None or publisher.session != old.session):
            for egress in list(self._endpoints.egresses.values()):
                egress.on_session_gone(old.session)  # E-6
        elif old is not None:
            for egress in list(self._egress_parts.synced_letters.get(old.epoch, {}).values()):
                settle_former_letters(turn, egress)  # I-3e
        if publisher is None:
            self._publisher_deleted(change.key)
        else:
            self._publisher_attached(publisher, awaited)

    def _publisher_attached(self, publisher: Publisher, awaited: int) -> None:
        """A-3 when it is our put; I-7 when the link here was overtaken."""
        turn = self._turn
        path = publisher_path(publisher.key)
        here = self._endpoints.ingresses.get(publisher.key)
        started = self._proposals.reputs.pop(publisher.record.nonce, None)
        if here is not None and started is here:
            turn.timers.cancel(Timer.UNKNOWN_PUT, publisher.record.nonce)
            self._endpoints.ingress_by_epoch[publisher.epoch] = self._endpoints.ingress_by_epoch.pop(here.epoch)
            here.on_reput(publisher)
            if here.link is None:
                self._expiry.on_attachment_lost(path, publisher, awaited)
            elif here.phase is Phase.CLOSING:
                self._proposals.delete(path, publisher.epoch)  # I-8
            return
        attempt: Attempt | None = self._attaching.take(publisher.record.nonce)
        held = self._held(here, publisher, attempt)
        if here is not None:
            self._endpoints.forget_ingress(here)
            if here.link is not None:
                self._steal_publisher(here, publisher)
        if attempt is not None and not attempt.is_lost:
            self._open_ingress(publisher, attempt, held, awaited)
        elif publisher.record.rid == turn.rid:
            self._expiry.on_attachment_lost(path, publisher, awaited)
        elif publisher.record.rid not in turn.view.routers:
            self._expiry.on_orphan(path, publisher)

    def _held(self, here: Ingress | None, publisher: Publisher, attempt: Attempt | None) -> Held | None:
        """A-3b: what a publisher without the capability may resume; None: nothing, or it is not known."""
        request = None if attempt is None else attempt.request
        if not isinstance(request, PublisherAttach) or not request.resumes:
            return None
        if here is not None:
            here.large.abort(is_link_lost=True)  # L-5: if its link is still there
        return self._attaching.held(publisher_path(publisher.key), publisher.session, request)

    def _open_ingress(self, publisher: Publisher, attempt: Attempt, held: Held | None, awaited: int) -> None:
        turn, request = self._turn, attempt.request
        assert isinstance(request, PublisherAttach)
        if held is None and request.resumes:  # A-3c: it was forgotten since the put
            turn.note(Decision.PUBLISHER_UNKNOWN, publisher=publisher.name)
            self._endpoints.links.pop(attempt.link, None)
            turn.out.append(effects.DetachLink(attempt.link, True, *NOT_HELD))
            self._expiry.on_attachment_lost(publisher_path(publisher.key), publisher, awaited)
            return
        turn.durations.attach_publisher.observe(turn.now - attempt.since)
        ingress = Ingress(turn, publisher, request, attempt.since, self._ingress_parts, held)
        self._endpoints.open_ingress(ingress, attempt.link)
        ingress.open(request)

    def _steal_publisher(self, ingress: Ingress, publisher: Publisher) -> None:
        turn = self._turn
        assert ingress.link is not None
        turn.note(Decision.PUBLISHER_STOLEN, publisher=ingress.name, by=publisher.record.peer)
        self._steals.on_stolen(publisher_path(ingress.key), turn.now, ingress.peer, publisher.record.peer)
        text = f"attached again by {publisher.record.peer or 'another connection'}"
        turn.out.append(effects.DetachLink(ingress.link, ingress.phase is Phase.CLOSING, STOLEN, text))

    def _publisher_deleted(self, key: str) -> None:
        turn = self._turn
        self._ingress_parts.failures.forget_resends(key)
        ingress = self._endpoints.ingresses.get(key)
        if ingress is None:
            return
        self._endpoints.forget_ingress(ingress)
        if ingress.link is None:
            return
        if ingress.phase is Phase.CLOSING:
            turn.note(Decision.PUBLISHER_CLOSED, publisher=ingress.name)
            turn.out.append(effects.DetachLink(ingress.link, True))  # I-8
        else:
            info = {"x-opt-topic-resume": "expired"}
            text = "the publisher's session has expired or was deleted"
            turn.out.append(effects.DetachLink(ingress.link, True, "amqp:resource-deleted", text, info))


_SHARED_ENDED = "the shared subscription has expired or was deleted"
