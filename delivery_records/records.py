"""Records: the whole record core of one router incarnation.

`handle(inputs, now)` takes everything the router saw in one turn and returns the effects, merged over the turn: one
disposition per link, one ACK and one SETTLE per stream. A router that loses its lease throws its
Records away and starts with new ones (K-3): nothing in here outlives the incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from delivery_records.attachments.attaching import Attaching
from delivery_records.attachments.attempt import Attempt
from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.closing import Closing
from delivery_records.attachments.departing import Departing
from delivery_records.attachments.draining import Draining
from delivery_records.attachments.ending import OrderedEnds
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.expiry import Expiry
from delivery_records.attachments.room import Room
from delivery_records.attachments.steals import StealGuard
from delivery_records.attachments.watch.watch_handlers import WatchHandlers
from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.channels.channel import Channels
from delivery_records.channels.routing import FrameRouting
from delivery_records.diagnostics.figures import Figures
from delivery_records.diagnostics.tables import describe
from delivery_records.faults import Faults
from delivery_records.model import effects, inputs
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.failures import PastFailures
from delivery_records.model.inputs import Input, LossCause
from delivery_records.model.limits import ANNOTATIONS_BYTES, Limits, PolicyOf
from delivery_records.model.message_format import NO_FORMAT, MessageFormat
from delivery_records.model.messages import Ack, Hello, Msg, Settle, ToIngress
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.runs import frozen_runs
from delivery_records.model.timers import OF_AN_EGRESS, OF_AN_INGRESS, Owner, Timer
from delivery_records.model.turn import Turn
from delivery_records.publisher.ingress import Ingress, IngressParts
from delivery_records.publisher.to_ingresses import ToIngresses
from delivery_records.subscriber import large_parts
from delivery_records.subscriber.egress import Egress, EgressParts
from delivery_records.subscriber.entries import SyncState
from delivery_records.subscriber.filters import FilterEngine, MessageFilters, NoFilters
from delivery_records.subscriber.former_letters import settle_former_letters
from delivery_records.subscriber.to_egresses import ToEgresses


class Records:
    """State machines of all links of one router incarnation, over one view of the cluster."""

    def __init__(
        self,
        *,
        rid: int,
        node_id: str,
        nonce: bytes,
        limits: Limits | None = None,
        message_format: MessageFormat = NO_FORMAT,
        era: int = 0,
        nonce_revision: int = 0,
        filters: FilterEngine | None = None,
        policy_of: PolicyOf | None = None,
    ) -> None:
        """Start empty.

        Args:
            rid: this incarnation, the id of its etcd lease (K-1a).
            node_id: the router's name, for people.
            nonce: the cluster nonce, 4 bytes, in every network tag.
            limits: what the operator set.
            message_format: reads and edits messages.
            era: drawn together with the nonce, part of the incarnations that are reported to subscribers (K-9).
            nonce_revision: when the nonce was written; publisher sessions of before are over (K-9).
            filters: reads the filters of subscriptions; None: a subscription with a filter is refused (E-9).
            policy_of: the operator's rules for topics; None: all have the policy of the limits (I-3d).
        """
        self.turn = turn = Turn(rid, nonce, limits or Limits(), era, policy_of)
        self.node_id = node_id
        self.rid, self.nonce, self.limits, self.view, self.timers = rid, nonce, turn.limits, turn.view, turn.timers
        self.budget, self.counts, self.durations, self.trace = turn.budget, turn.counts, turn.durations, turn.trace
        proposals, failures, steals = Proposals(turn), PastFailures(), StealGuard()
        self._to_egresses = ToEgresses(turn, self._on_fault, self._notify_ingress)
        self._to_ingresses = ToIngresses(turn, self._on_fault)
        self.channels = Channels(turn, self._sync_router, self._drop_parked, self._on_sent)
        self._routing = FrameRouting(turn, self.channels, self._to_egresses, self._to_ingresses)
        self.egresses = self._to_egresses.egresses
        self._filters = MessageFilters(filters or NoFilters())
        self.attaching = Attaching(turn, proposals, failures, steals, nonce_revision, self._filters)
        self.links = self.attaching.links
        self.barrier = AttachBarrier(turn, self.channels.channel)
        self.expiry = Expiry(turn, proposals)
        self.endpoints = Endpoints(
            turn, self.attaching, self.expiry, self.barrier, self.egresses, self._to_ingresses.by_epoch
        )
        self.ingresses = self.endpoints.ingresses
        self.figures = Figures(turn, self.endpoints, self.barrier)
        """For the shell and for operators."""
        self._departing = Departing(turn, self.endpoints, proposals, self.expiry.on_timer, self.attaching.on_free)
        self.expiry.keeps, self.attaching.is_busy = self._departing.keeps, self._departing.is_busy
        self._ingress_parts = self._parts_of_ingresses(proposals, failures, message_format)
        self._egress_parts = self._parts_of_egresses(proposals, failures, message_format)
        self._proposals = proposals
        self._orders = OrderedEnds(turn, proposals, self.egresses)
        self._closing = Closing(turn, proposals, self.endpoints, self.attaching, self._orders)
        self._draining = Draining(turn, self.endpoints)
        self._room = Room(turn, self.endpoints)
        self._faults = Faults(turn, self.endpoints, self.expiry, self.channels)
        self._watch = WatchHandlers(self._parts_of_the_watch(steals))
        self._handlers = self._handler_of_each_input()
        self._timer_handlers = self._handler_of_each_timer()
        assert len(self._timer_handlers) == len(list(Timer)), "each leads to something"

    def _parts_of_ingresses(
        self, proposals: Proposals, failures: PastFailures, message_format: MessageFormat
    ) -> IngressParts:
        return IngressParts(
            message_format,
            proposals,
            failures,
            self._to_egresses,
            self.channels,
            [],
            self.endpoints.suspend,
            self._departing.look,
        )

    def _parts_of_egresses(
        self, proposals: Proposals, failures: PastFailures, message_format: MessageFormat
    ) -> EgressParts:
        return EgressParts(
            proposals,
            failures,
            self._to_egresses.synced,
            self._to_egresses.synced_members,
            self._to_egresses.synced_letters,
            self._to_egresses.former_epochs,
            [],
            [],
            self._answer,
            self.endpoints.suspend,
            self._filters,
            message_format,
            self.attaching.on_answered,
        )

    def _parts_of_the_watch(self, steals: StealGuard) -> WatchParts:
        return WatchParts(
            self.turn,
            self.endpoints,
            self._ingress_parts,
            self._egress_parts,
            self.attaching,
            self.barrier,
            self.expiry,
            self._orders,
            steals,
            self._routing,
            self._to_ingresses,
        )

    def _handler_of_each_input(self) -> dict[type, Callable[[Any], None]]:
        return {
            inputs.SubscriberDisposition: self._on_disposition,
            inputs.LargeTransfer: self._on_large,
            inputs.LargeTaken: self._on_large_taken,
            inputs.PublisherSettle: self._on_settle,
            inputs.RouterFrame: self._routing.on_frame,
            inputs.RouterDatagram: self._on_datagram,
            inputs.ClientFlow: self._on_flow,
            inputs.SessionRoom: self._on_session_room,
            inputs.PublisherAttach: self.attaching.start,
            inputs.SubscriberAttach: self.attaching.start,
            inputs.MapPart: self.attaching.on_map_part,
            inputs.LinkDetach: self._on_detach,
            inputs.LinkLost: self._on_lost,
            inputs.EndpointEnded: self._on_endpoint_ended,
            inputs.ReadDone: self.attaching.on_read,
            inputs.StoreFailed: self._closing.on_failed,
            inputs.ViewChanges: self._watch.on_changes,
            inputs.ViewSnapshot: self._watch.on_snapshot,
            inputs.StoreHealth: self._on_store_health,
            inputs.PathsChanged: self.channels.on_paths,
            inputs.Drain: self._draining.start,
            inputs.EndSubscription: self._orders.start,
            inputs.SendFailed: self._faults.on_send_failed,
            inputs.PoliciesChanged: self._on_policies,
        }

    # ------------------------------------------------------------------ driving

    def weights_version(self) -> int:
        """Grows whenever what a message of some publisher costs may have changed."""
        return self.turn.plan_version + self.turn.activations

    def weigh(self, links: Iterable[int], most: int) -> int | None:
        """What a message on the heaviest of these links costs this router, in deliveries; 0 without a publisher.

        Returns:
            None when more than `most` fan-outs had changed: the others are looked at by the next call.
        """
        heaviest = 0
        for link in links:
            endpoint = self.links.get(link)
            if isinstance(endpoint, Ingress):
                if endpoint.fanout.is_changed:
                    if not most:
                        return None
                    most -= 1
                heaviest = max(heaviest, endpoint.fanout.weight())
        return heaviest

    @property
    def is_behind(self) -> bool:
        """A message to many goes in pieces (T-10), and not all have it: nothing else that leads to much goes first."""
        return bool(self._to_egresses.pieces.lines)

    def heaviest(self) -> int:
        """What one input of another router leads to here, at most, in deliveries: a message to all subscriptions."""
        return self._to_egresses.pieces.heaviest()

    def weight_of(self, given: Input) -> int:
        """What an input of another router leads to here, in deliveries."""
        if not isinstance(given, inputs.RouterFrame) or not isinstance(given.message, Msg | Settle):
            return 1
        synced = self._to_egresses.synced.get(given.message.publisher_epoch)
        return 1 if synced is None else sum(egress.weight() for egress in synced.values())

    def handle(self, batch: Sequence[Input], now: float) -> list[effects.Effect]:
        """Take the inputs of one turn, in order; return the effects to carry out, in order.

        Args:
            batch: what the router saw.
            now: seconds on the caller's monotonic clock; never smaller than before.
        """
        self.turn.begin(now)
        handlers = self._handlers
        for item in batch:
            try:
                if type(item) is inputs.PublisherTransfer:  # most inputs are
                    endpoint = self.links.get(item.link)
                    if isinstance(endpoint, Ingress):
                        endpoint.on_transfer(item)
                else:
                    handlers[type(item)](item)
            except Exception as error:  # noqa: BLE001  (K-3b: whatever it is, it ends what it concerns)
                self._faults.of_input(item, error)
        return self._finish_turn()

    def handle_timer(self, now: float) -> list[effects.Effect]:
        """Carry out every deadline that has come. Call it at `next_deadline()`."""
        self.turn.begin(now)
        for timer, owner in self.timers.due(now):
            try:
                self._on_timer(timer, owner)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._faults.of_timer(timer, owner, error)
        return self._finish_turn()

    @property
    def now(self) -> float:
        """Seconds on the caller's clock, as of the last call of `handle` or `handle_timer`."""
        return self.turn.now

    def next_deadline(self) -> float | None:
        """When `handle_timer` wants to be called; None: not before the next input."""
        return self.timers.next_deadline()

    def _finish_turn(self) -> list[effects.Effect]:
        if self.attaching.order:
            self.attaching.go_on()
        budget = self.budget
        if budget.was_full:
            self._room.make()
        dirty_syncs, dirty_ingresses = self._egress_parts.dirty_syncs, self._ingress_parts.dirty
        while dirty_syncs or dirty_ingresses:
            syncs = dirty_syncs[:]
            dirty_syncs.clear()
            for sync in syncs:
                self._send_acks(sync)
            ingresses = dirty_ingresses[:]
            dirty_ingresses.clear()
            for ingress in ingresses:
                try:
                    ingress.flush()
                except Exception as error:  # noqa: BLE001  (K-3b)
                    self._faults.of_endpoint(ingress, error)
        if budget.was_full:
            self._room.set_timer()
        dirty_outgoing = self._egress_parts.dirty
        if dirty_outgoing:
            links = dirty_outgoing[:]
            dirty_outgoing.clear()
            for outgoing in links:
                outgoing.flush()
        if self._filters.is_used:
            self._filters.forget()
        return self.turn.end()

    def _send_acks(self, sync: SyncState) -> None:
        for outcome, runs in sync.take_runs().items():
            if sync.ingress_rid == self.rid:
                ingress = self._to_ingresses.by_epoch.get(sync.epoch)
                subscription = self.view.subscriptions.get(sync.key)
                if ingress is not None and subscription is not None:
                    self._to_ingresses.acknowledge(ingress, subscription, runs, outcome)
            else:
                ack = Ack(sync.epoch, sync.named, outcome, frozen_runs(runs))
                self.channels.send_control(sync.ingress_rid, ack)

    # ------------------------------------------------------------------ what the parts ask for

    def _on_fault(self, endpoint: Endpoint, error: Exception) -> None:
        self._faults.of_endpoint(endpoint, error)

    def _answer(self, sync: SyncState, message: ToIngress) -> None:
        """E-4a, SH-2, SH-4: notify the ingress of a stream, here or at another router."""
        self._notify_ingress(sync.ingress_rid, message)

    def _notify_ingress(self, rid: int, message: ToIngress) -> None:
        if rid == self.rid:
            self._to_ingresses.deliver(message)
        else:
            self.channels.send_control(rid, message)

    def _sync_router(self, rid: int) -> None:
        """T-4: a channel came up; repeat I-5 for all publishers here."""
        for ingress in self.ingresses.values():
            ingress.fanout.sync_router(rid)

    def _drop_parked(self, rid: int) -> None:
        """T-4: what the old generation left parked is repeated."""
        self._routing.drop(rid)
        for egress in list(self.egresses.values()):
            large_parts.cut_off(egress, rid)  # L-5
        for ingress in self.ingresses.values():
            ingress.on_less_waits()

    def _on_sent(self, epoch: int) -> None:
        """C-1: less of that publisher waits for a channel."""
        ingress = self._to_ingresses.by_epoch.get(epoch)
        if ingress is not None:
            ingress.on_less_waits()

    # ------------------------------------------------------------------ inputs of client links

    def _on_large(self, transfer: inputs.LargeTransfer) -> None:
        endpoint = self.links.get(transfer.link)
        if isinstance(endpoint, Ingress):
            endpoint.large.on_transfer(transfer)

    def _on_large_taken(self, taken: inputs.LargeTaken) -> None:
        endpoint = self.links.get(taken.link)
        if isinstance(endpoint, Egress):
            large_parts.on_taken(endpoint, taken.size)

    def _on_settle(self, settle: inputs.PublisherSettle) -> None:
        endpoint = self.links.get(settle.link)
        if isinstance(endpoint, Ingress):
            endpoint.on_settled(list(settle.tags))

    def _on_disposition(self, disposition: inputs.SubscriberDisposition) -> None:
        endpoint = self.links.get(disposition.link)
        if isinstance(endpoint, Egress):
            tags, outcome, added, fits = disposition.tags, disposition.outcome, disposition.annotations, True
            if disposition.error:
                endpoint.statements.reject(tags, disposition.error)
            elif added and outcome is not None:
                fits = endpoint.statements.annotate(tags, outcome, added)
            endpoint.on_disposition(tags, outcome, disposition.settled, disposition.delay_ms)
            if not fits:
                self._refuse_annotations(endpoint)

    def _refuse_annotations(self, egress: Egress) -> None:
        """E-4b: what it added before stays, its outcomes hold, and the link ends; it may attach again."""
        self.turn.note(
            Decision.ANNOTATIONS_REFUSED,
            subscription=egress.name,
            key=egress.key,
            link=egress.link,
            peer=egress.request.peer,
            limit=ANNOTATIONS_BYTES,
        )
        text = f"modified may add annotations of {ANNOTATIONS_BYTES} bytes to a delivery in all; add less, or none"
        self.turn.out.append(effects.DetachLink(egress.link, False, "amqp:resource-limit-exceeded", text))
        self.endpoints.lose(egress.link, egress, LossCause.DETACH)

    def _on_flow(self, flow: inputs.ClientFlow) -> None:
        endpoint = self.links.get(flow.link)
        if isinstance(endpoint, (Ingress, Egress)):
            endpoint.on_flow(flow)

    def _on_session_room(self, room: inputs.SessionRoom) -> None:
        endpoint = self.links.get(room.link)
        if isinstance(endpoint, Ingress):
            endpoint.resends.on_session_window(room.is_narrow, self.turn.now)

    def _on_detach(self, detach: inputs.LinkDetach) -> None:
        endpoint = self.links.get(detach.link)
        if endpoint is None:
            return
        if isinstance(endpoint, Ingress):
            self._departing.on_detach(endpoint, detach)
        elif not detach.closed:
            self.turn.out.append(effects.DetachLink(detach.link, False))
            self.endpoints.lose(detach.link, endpoint, detach.cause)
        elif isinstance(endpoint, Attempt):
            # E-8, I-8: nothing was deleted, so it must not look closed
            self.turn.out.append(effects.DetachLink(detach.link, True, "amqp:link:stolen", _CLOSED_EARLY))
            self.endpoints.lose(detach.link, endpoint, LossCause.DETACH)
        else:
            endpoint.outgoing.is_closing = True  # E-8
            self._closing.close(endpoint)

    def _on_lost(self, lost: inputs.LinkLost) -> None:
        endpoint = self.links.get(lost.link)
        if endpoint is not None:
            self.endpoints.lose(lost.link, endpoint, lost.cause)

    def _on_endpoint_ended(self, ended: inputs.EndpointEnded) -> None:
        self.expiry.on_endpoint_ended(ended)
        self.attaching.order.on_session_ended(ended.number)

    # ------------------------------------------------------------------ inputs of other routers and etcd

    def _on_datagram(self, datagram: inputs.RouterDatagram) -> None:
        if datagram.origin in self.view.dead:
            return
        if isinstance(datagram.message, Hello):
            self.barrier.on_hello(datagram.origin, datagram.message)
            self.channels.channel(datagram.origin).on_hello(datagram.message)
        else:
            self.barrier.on_datagram(datagram.origin, datagram.message)

    def _on_store_health(self, health: inputs.StoreHealth) -> None:
        self.turn.store_available = health.available

    def _on_policies(self, changed: inputs.PoliciesChanged) -> None:
        """I-3d: they hold for what is decided from now on."""
        self.turn.policy_of = changed.policy_of
        for ingress in self.ingresses.values():
            ingress.use_policy()
        for egress in self.egresses.values():
            settle_former_letters(self.turn, egress)
        refused = list(self._to_egresses.refused_letters)
        self._to_egresses.refused_letters.clear()
        for rid in refused:
            channel = self.channels.find(rid)
            if rid == self.rid:
                self._sync_router(rid)
            elif channel is not None:
                channel.restart("the rules for dead letters have changed")

    # ------------------------------------------------------------------ timers

    def _handler_of_each_timer(self) -> dict[Timer, Callable[[Any], None]]:
        """By what a deadline is for; a publisher's and a subscription's get their end here, others the owner's name."""
        return {
            Timer.PROOF: lambda ingress: ingress.on_proof_timeout(),
            Timer.RESEND: lambda ingress: ingress.on_resend_timeout(),
            Timer.SETTLE: lambda ingress: ingress.on_settle_timeout(),
            Timer.RETRY: lambda ingress: ingress.retries.on_timer(),
            Timer.SHARE_EXPIRY: lambda ingress: ingress.on_share_expiry(),
            Timer.ENDING: self._departing.on_timer,
            Timer.STREAM: lambda ingress: ingress.large.look(),
            Timer.LETTERS: lambda ingress: ingress.on_letters_timer(),
            Timer.STOCK_REPLY: lambda egress: egress.reply(),
            Timer.PROVISIONAL: lambda egress: egress.proof.on_sign_of_life(egress),
            Timer.LIFE: lambda egress: egress.on_silence(),
            Timer.REDUCTION: lambda egress: egress.on_reduction_timer(),
            Timer.PATIENCE: lambda egress: egress.on_patience_timer(),
            Timer.HELD_EXPIRY: lambda egress: egress.expiry.on_timer(),
            Timer.PARTS: large_parts.look,
            Timer.CREDIT: lambda egress: egress.look_at_credit(),
            Timer.ATTACH_RETRY: self.attaching.on_retry_timer,
            Timer.MAP_REST: self.attaching.on_rest_timer,
            Timer.UNKNOWN_PUT: self._closing.on_unknown_timer,
            Timer.EXPIRY: self.expiry.on_timer,
            Timer.CHANNEL: self.channels.on_timer,
            Timer.BARRIER: lambda _rid: self.barrier.on_timer(),
            Timer.GRACE: self.barrier.on_grace_over,
            Timer.PARKED: self._routing.on_parked_timer,
            Timer.PIECES: lambda _rid: self._to_egresses.pieces.on_timer(),
            Timer.DRAIN: lambda _rid: self._draining.look(),
            Timer.ROOM: lambda _rid: self._room.on_timer(),
        }

    def _on_timer(self, timer: Timer, owner: Owner) -> None:
        found: Owner | Endpoint | None = owner
        if timer in OF_AN_EGRESS:
            found = self.egresses.get(str(owner))
        elif timer in OF_AN_INGRESS:
            found = self.ingresses.get(str(owner))
        if found is not None:
            self._timer_handlers[timer](found)

    def describe(self) -> dict[str, object]:
        """Tables for people."""
        return describe(self.node_id, self.turn, self.endpoints, self.channels, self.barrier)


_CLOSED_EARLY = "the link was closed before its attach was complete; attach and close again"
