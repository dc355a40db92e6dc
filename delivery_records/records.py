"""Records: the whole record core of one router incarnation.

`handle(inputs, now)` takes everything the router saw in one turn and returns the effects, merged over the turn: one
disposition per link, one ACK and one SETTLE per stream. A router that loses its lease throws its
Records away and starts with new ones (K-3): nothing in here outlives the incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from delivery_records import effects, inputs
from delivery_records.attaching import Attaching, Attempt
from delivery_records.barrier import AttachBarrier
from delivery_records.channel import Peers
from delivery_records.draining import Draining
from delivery_records.egress import Egress
from delivery_records.ending import OrderedEnds
from delivery_records.entries import SyncState
from delivery_records.expiry import Expiry
from delivery_records.faults import Faults
from delivery_records.ingress import Ingress, Phase
from delivery_records.inputs import Failure, Input, LossCause
from delivery_records.limits import (
    REDUCTION_ROUNDS,
    RESEND_FAILURES,
    ROOM_CHECK_S,
    UNKNOWN_PUT_S,
    Limits,
)
from delivery_records.outcomes import Decision
from delivery_records.peer_messages import Ack, Hello, Nack, PeerMessage
from delivery_records.peering import Peering
from delivery_records.reactions import Reactions
from delivery_records.steals import StealGuard
from delivery_records.tables import describe
from delivery_records.tags import session_of
from delivery_records.terms import SubscriberProofs, held_terms
from delivery_records.timers import OF_AN_EGRESS, Timer
from delivery_records.topics import matches
from delivery_records.trace import Rule
from delivery_records.turn import Turn
from delivery_records.view import Kind, Publisher, PublisherRecord, Subscription, SubscriptionRecord
from delivery_records.window import frozen_runs

Annotate = Callable[[bytes, str, bytes, int], bytes]
"""(message, publisher, tag, session) -> the message with our annotations spliced in (I-1b); ValueError if malformed."""

_COUNTED_KEYS = 10_000
"""Keys whose failures are counted; the oldest is forgotten first."""


def keep_message(message: bytes, publisher: str, tag: bytes, session: int) -> bytes:
    """An `annotate` that adds nothing, for runs without a wire format."""
    return message


class Records:
    """State machines of all links of one router incarnation, over one view of the cluster."""

    def __init__(
        self, *, rid: int, node_id: str, nonce: bytes, limits: Limits | None = None, annotate: Annotate = keep_message,
        era: int = 0, nonce_revision: int = 0,
    ) -> None:  # fmt: skip
        """Start empty.

        Args:
            rid: this incarnation, the id of its etcd lease (K-1a).
            node_id: the router's name, for people.
            nonce: the cluster nonce, 4 bytes, in every network tag.
            limits: what the operator set.
            annotate: splices the message annotations in; raises ValueError on a malformed message.
            era: drawn together with the nonce, part of the incarnations subscribers are told (K-9).
            nonce_revision: when the nonce was written; publisher sessions of before are over (K-9).
        """
        self.turn = turn = Turn(rid, nonce, limits or Limits(), era)
        self.rid = rid
        self.node_id = node_id
        self.nonce = nonce
        self.nonce_revision = nonce_revision
        self.annotate = annotate
        self.limits, self.view, self.timers, self.budget = turn.limits, turn.view, turn.timers, turn.budget
        self.counts, self.durations, self.trace = turn.counts, turn.durations, turn.trace
        self.links: dict[int, Attempt | Ingress | Egress] = {}
        self.ingresses: dict[str, Ingress] = {}
        self.ingress_by_epoch: dict[int, Ingress] = {}
        self.disconnected: dict[str, Ingress] = {}
        """Those whose link is gone, longest first: their windows are forgotten for room (C-6)."""
        self.egresses: dict[str, Egress] = {}
        self.synced: dict[int, dict[str, Egress]] = {}
        """Subscriptions here that are synced to a publisher epoch."""
        self.reputs: dict[str, Ingress | Egress] = {}
        """Puts of attached links (session start A-4, proof of life A-10) whose event is awaited."""
        self.deletions: dict[str, str] = {}
        """Proposed deletions: nonce -> path."""
        self.dirty_ingresses: list[Ingress] = []
        self.dirty_egresses: list[Egress] = []
        self.dirty_syncs: list[SyncState] = []
        self.steals = StealGuard()
        self.attaching = Attaching(self)
        self.barrier = AttachBarrier(self)
        self.expiry = Expiry(self)
        self.proofs = SubscriberProofs(self)
        self.ordered_ends = OrderedEnds(self)
        self.draining = Draining(self)
        self.peers = Peers(self)
        self.peering = Peering(self)
        self.reactions = Reactions(self)
        self.faults = Faults(self)
        self._nonces = 0
        self._resend_failures: dict[str, list[float]] = {}
        self._reductions: dict[str, int] = {}
        self._handlers = self._handler_of_each_input()

    def _handler_of_each_input(self) -> dict[type, Callable[[Any], None]]:
        return {
            inputs.SubscriberDisposition: self._on_disposition,
            inputs.PublisherSettle: self._on_settle,
            inputs.PeerFrame: self.peering.on_frame,
            inputs.PeerDatagram: self._on_datagram,
            inputs.LinkFlow: self._on_flow,
            inputs.PublisherAttach: self.attaching.start,
            inputs.SubscriberAttach: self.attaching.start,
            inputs.LinkDetach: self._on_detach,
            inputs.LinkLost: self._on_lost,
            inputs.EndpointEnded: self.expiry.on_endpoint_ended,
            inputs.ReadDone: self.attaching.on_read,
            inputs.StoreFailed: self._on_store_failed,
            inputs.ViewChanges: self.reactions.on_changes,
            inputs.ViewSnapshot: self.reactions.on_snapshot,
            inputs.StoreHealth: self._on_store_health,
            inputs.PathsChanged: self._on_paths,
            inputs.Drain: self.draining.start,
            inputs.EndSubscription: self.ordered_ends.start,
            inputs.SendFailed: self.faults.on_send_failed,
        }

    # ------------------------------------------------------------------ driving

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
                if type(item) is inputs.Transfer:  # most inputs are
                    endpoint = self.links.get(item.link)
                    if isinstance(endpoint, Ingress):
                        endpoint.on_transfer(item)
                else:
                    handlers[type(item)](item)
            except Exception as error:  # noqa: BLE001  (K-3b: whatever it is, it ends what it concerns)
                self.faults.of_input(item, error)
        return self._finish_turn()

    def handle_timer(self, now: float) -> list[effects.Effect]:
        """Carry out every deadline that has come. Call it at `next_deadline()`."""
        self.turn.begin(now)
        for timer, owner in self.timers.due(now):
            try:
                self._on_timer(timer, owner)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self.faults.of_timer(timer, owner, error)
        return self._finish_turn()

    @property
    def now(self) -> float:
        """Seconds on the caller's clock, as it was told last."""
        return self.turn.now

    def next_deadline(self) -> float | None:
        """When `handle_timer` wants to be called; None: not before the next input."""
        return self.timers.next_deadline()

    def _finish_turn(self) -> list[effects.Effect]:
        if self.budget.was_full:
            self.reactions.on_budget()
        while self.dirty_syncs or self.dirty_ingresses:
            syncs, self.dirty_syncs = self.dirty_syncs, []
            for sync in syncs:
                self._send_acks(sync)
            ingresses, self.dirty_ingresses = self.dirty_ingresses, []
            for ingress in ingresses:
                try:
                    ingress.flush()
                except Exception as error:  # noqa: BLE001  (K-3b)
                    self.faults.of_endpoint(ingress, error)
        if self.budget.was_full and not self.timers.is_set(Timer.ROOM, 0):
            self.timers.set(Timer.ROOM, 0, self.turn.now + ROOM_CHECK_S)
        egresses, self.dirty_egresses = self.dirty_egresses, []
        for egress in egresses:
            egress.flush()
        return self.turn.end()

    def _send_acks(self, sync: SyncState) -> None:
        egress = sync.egress
        for outcome, runs in sync.take_runs().items():
            if sync.ingress_rid == self.rid:
                ingress = self.ingress_by_epoch.get(sync.epoch)
                subscription = self.view.subscriptions.get(egress.key)
                if ingress is not None and subscription is not None:
                    self.peering.acknowledge(ingress, subscription, runs, outcome)
            else:
                ack = Ack(sync.epoch, egress.epoch, outcome, frozen_runs(runs))
                self.send_control(sync.ingress_rid, ack)

    # ------------------------------------------------------------------ inputs of client links

    def _on_settle(self, settle: inputs.PublisherSettle) -> None:
        endpoint = self.links.get(settle.link)
        if isinstance(endpoint, Ingress):
            endpoint.on_settled(list(settle.tags))

    def _on_disposition(self, disposition: inputs.SubscriberDisposition) -> None:
        endpoint = self.links.get(disposition.link)
        if isinstance(endpoint, Egress):
            endpoint.on_disposition(
                disposition.tags, disposition.outcome, disposition.settled, disposition.annotations
            )

    def _on_flow(self, flow: inputs.LinkFlow) -> None:
        endpoint = self.links.get(flow.link)
        if isinstance(endpoint, (Ingress, Egress)):
            endpoint.on_flow(flow)

    def _on_detach(self, detach: inputs.LinkDetach) -> None:
        endpoint = self.links.get(detach.link)
        if endpoint is None:
            return
        if not detach.closed:
            self.turn.out.append(effects.Detach(detach.link, False))
            self.lose(detach.link, endpoint, LossCause.DETACH)
        elif isinstance(endpoint, Attempt):
            # E-8, I-8: nothing was deleted, so it must not look closed
            self.turn.out.append(effects.Detach(detach.link, True, "amqp:link:stolen", _CLOSED_EARLY))
            self.lose(detach.link, endpoint, LossCause.DETACH)
        elif isinstance(endpoint, Ingress):
            endpoint.phase = Phase.CLOSING  # I-8
            self.propose_deletion(f"pubs/{endpoint.key}", endpoint.epoch)
        else:
            endpoint.is_closing = True  # E-8
            self.propose_deletion(f"subs/{endpoint.key}", endpoint.epoch)

    def _on_lost(self, lost: inputs.LinkLost) -> None:
        endpoint = self.links.get(lost.link)
        if endpoint is not None:
            self.lose(lost.link, endpoint, lost.cause)

    def lose(self, link: int, endpoint: Attempt | Ingress | Egress, cause: LossCause) -> None:
        """A-9: the link is suspended; its terminus stays until its timer or a newer attach."""
        self.links.pop(link, None)
        if isinstance(endpoint, Attempt):
            self.attaching.on_link_gone(endpoint)
        elif isinstance(endpoint, Ingress):
            self.suspend_publisher(endpoint, cause)
        else:
            self.suspend_subscriber(endpoint, cause)

    def suspend_publisher(self, ingress: Ingress, cause: LossCause) -> None:
        """The publisher's link is gone; T_pub starts as its policy says (A-9, K-5)."""
        if ingress.link is not None:
            self.links.pop(ingress.link, None)
        ingress.on_link_lost()
        if self.ingresses.get(ingress.key) is ingress:
            self.disconnected[ingress.key] = ingress
        publisher = self.view.publishers.get(ingress.key)
        if publisher is not None:
            policy = ingress.expiry_policy
            self.expiry.on_link_lost(f"pubs/{ingress.key}", publisher, policy, cause, ingress.place)

    def suspend_subscriber(self, egress: Egress, cause: LossCause) -> None:
        """The subscriber's link is gone: forget all but the K-5 timer (E-7, A-9)."""
        self.turn.note(Decision.SUBSCRIBER_LOST, subscription=egress.name, cause=cause.value)
        tracing = self.turn.tracing  # it may end with any step, when its time is over
        if tracing is not None:
            for tag in [tag for entries in egress.sessions.values() for tag in entries]:
                tracing.seen(tag, Rule.LINK_LOST, egress.name)
        self.forget_egress(egress)
        subscription = self.view.subscriptions.get(egress.key)
        if subscription is not None:
            policy = held_terms(subscription.record).expiry_policy
            self.expiry.on_link_lost(f"subs/{egress.key}", subscription, policy, cause, egress.request.place)

    def forget_egress(self, egress: Egress) -> None:
        """Drop everything this router remembers of the subscription's link."""
        self.links.pop(egress.link, None)
        egress.flush()
        egress.forget()
        if self.egresses.get(egress.key) is egress:
            del self.egresses[egress.key]
            self.budget.release_map(len(egress.request.unsettled or ()))
        self.turn.plan_version += 1
        self.barrier.forget(egress.key)
        self.proofs.forget(egress)
        for timer in OF_AN_EGRESS:
            self.timers.cancel(timer, egress.key)

    def remember_reput(self, nonce: str, endpoint: Ingress | Egress) -> None:
        """Know the put of an attached link by its nonce when the watch shows it (K-2a)."""
        self.reputs[nonce] = endpoint
        _bound(self.reputs)

    # ------------------------------------------------------------------ inputs of peers and etcd

    def _on_datagram(self, datagram: inputs.PeerDatagram) -> None:
        if datagram.origin in self.view.dead:
            return
        if isinstance(datagram.message, Hello):
            self.barrier.on_hello(datagram.origin, datagram.message)
        self.peers.on_datagram(datagram.origin, datagram.message)

    def _on_paths(self, paths: inputs.PathsChanged) -> None:
        for channel in self.peers.existing():
            if channel.rid in paths.moved and channel.rid in paths.reachable:
                channel.on_path_moved()

    def _on_store_health(self, health: inputs.StoreHealth) -> None:
        self.turn.store_available = health.available

    def _on_store_failed(self, failed: inputs.StoreFailed) -> None:
        if self.attaching.on_failed(failed.nonce, failed.failure):
            return
        if self.ordered_ends.on_failed(failed.nonce, failed.failure):
            return
        endpoint = self.reputs.get(failed.nonce)
        if endpoint is not None:
            self._on_reput_failed(failed.nonce, endpoint, failed.failure)
        path = self.deletions.get(failed.nonce)
        if path is None:
            return
        if failed.failure is Failure.UNKNOWN:
            self.watch_unknown(failed.nonce)
            return
        del self.deletions[failed.nonce]
        if failed.failure is Failure.CONFLICT:
            self.reactions.on_deletion_lost(path)
        else:
            self.reactions.on_deletion_failed(path)

    def _on_reput_failed(self, nonce: str, endpoint: Ingress | Egress, failure: Failure) -> None:
        if isinstance(endpoint, Egress):
            if failure is not Failure.UNKNOWN:
                del self.reputs[nonce]  # one of unknown fate is still ours if the watch shows it (K-2a)
            self.proofs.on_put_failed(endpoint, failure)
            if failure is not Failure.CONFLICT and self.egresses.get(endpoint.key) is endpoint:
                self.reactions.on_deletion_failed(f"subs/{endpoint.key}")  # E-8: if a close waits for this put
        elif failure is not Failure.UNKNOWN:
            del self.reputs[nonce]
            self.timers.cancel(Timer.UNKNOWN_PUT, nonce)
            self._close_unstarted(endpoint, failure)

    def _close_unstarted(self, ingress: Ingress, failure: Failure) -> None:
        """A-4: the put that starts the session failed or its fate is unknown."""
        if self.ingresses.get(ingress.key) is not ingress:
            return  # K-2a: a newer attach has taken the link over, and its timers are not ours
        if ingress.link is not None and ingress.phase is Phase.STARTING:
            text = "the session could not be started in etcd; connect again"
            self.turn.out.append(effects.CloseConnection(ingress.link, "amqp:connection:forced", text))
            self.suspend_publisher(ingress, LossCause.CONNECTION_LOSS)
        elif failure is Failure.CONFLICT:
            self.reactions.on_deletion_lost(f"pubs/{ingress.key}")  # I-8: if a close waits for this put
        else:
            self.reactions.on_deletion_failed(f"pubs/{ingress.key}")

    # ------------------------------------------------------------------ timers

    def _on_timer(self, timer: Timer, owner: str | int) -> None:
        if isinstance(owner, int):
            self._on_router_timer(timer, owner)
            return
        ingress, egress = self.ingresses.get(owner), self.egresses.get(owner)
        if timer is Timer.PROOF and ingress is not None:
            ingress.on_proof_timeout()
        elif timer is Timer.RESEND and ingress is not None:
            ingress.on_resend_timeout()
        elif timer is Timer.SETTLE and ingress is not None:
            ingress.on_settle_timeout()
        elif timer is Timer.RETRY and ingress is not None:
            ingress.retries.on_timer()
        elif timer is Timer.ATTACH_RETRY:
            self.attaching.on_retry_timer(owner)
        elif timer is Timer.UNKNOWN_PUT:
            self._on_unknown_put(owner)
        elif timer is Timer.EXPIRY:
            self.expiry.on_timer(owner)
        elif timer is Timer.STOCK_REPLY and egress is not None:
            egress.reply()
        elif timer is Timer.PROVISIONAL and egress is not None:
            self.proofs.on_sign_of_life(egress)
        elif timer is Timer.LIFE and egress is not None:
            self.proofs.on_silence(egress)
        elif timer is Timer.REDUCTION and egress is not None and egress.reduction is not None:
            egress.reduction.on_timer()

    def _on_router_timer(self, timer: Timer, rid: int) -> None:
        if timer is Timer.CHANNEL:
            channel = self.peers.find(rid)
            if channel is not None:
                channel.on_timer()
        elif timer is Timer.BARRIER:
            self.barrier.on_timer()
        elif timer is Timer.GRACE:
            self.barrier.on_grace_over(rid)
        elif timer is Timer.PARKED:
            self.peering.on_parked_timer(rid)
        elif timer is Timer.DRAIN:
            self.draining.look()
        elif timer is Timer.ROOM:
            self.reactions.on_room_timer()

    def _on_unknown_put(self, nonce: str) -> None:
        if self.attaching.on_unknown_timer(nonce):
            return
        self.ordered_ends.on_unknown_timer(nonce)
        endpoint = self.reputs.get(nonce)
        if isinstance(endpoint, Ingress):
            self._close_unstarted(endpoint, Failure.UNKNOWN)
        path = self.deletions.pop(nonce, None)
        if path is not None:
            self.reactions.on_deletion_failed(path)

    def end_round(self, key: str, has_progressed: bool) -> None:
        """C-4: a link with a part of a map is detached."""
        if has_progressed:
            self.forget_reductions(key)
        else:
            self._reductions[key] = self._reductions.get(key, 0) + 1
            _bound(self._reductions)

    def forget_reductions(self, key: str) -> None:
        """The map fits, or became smaller: rounds without progress are counted anew (C-4)."""
        self._reductions.pop(key, None)

    def refuses_reduction(self, path: str) -> bool:
        """True after REDUCTION_ROUNDS rounds without progress (C-4). Told once: publishers may be back next time."""
        key = path.partition("/")[2]
        if self._reductions.get(key, 0) < REDUCTION_ROUNDS:
            return False
        self.forget_reductions(key)
        return True

    # ------------------------------------------------------------------ etcd proposals

    def new_nonce(self) -> str:
        """A name for one read or put of this incarnation (K-2a)."""
        self._nonces += 1
        return f"{self.rid:x}.{self._nonces}"

    def put(self, nonce: str, path: str, expect: int, record: PublisherRecord | SubscriptionRecord) -> None:
        """Propose a compare-and-put of `record`, marked with the nonce."""
        self.turn.out.append(effects.Propose(nonce, path, expect, replace(record, nonce=nonce)))

    def propose_record(
        self, path: str, expect: int, record: PublisherRecord | SubscriptionRecord, **changed: object
    ) -> str:
        """Put an attachment of ours again with some fields changed; returns the nonce."""
        nonce = self.new_nonce()
        changes: dict[str, Any] = dict(changed)
        self.put(nonce, path, expect, replace(record, **changes))
        return nonce

    def propose_deletion(self, path: str, epoch: int) -> None:
        """Compare-and-delete an attachment (K-5, I-8, E-8)."""
        nonce = self.new_nonce()
        self.deletions[nonce] = path
        _bound(self.deletions)
        self.turn.out.append(effects.Propose(nonce, path, epoch, None))

    def attachment(self, path: str) -> Subscription | Publisher | None:
        """What the view has at `subs/<h>` or `pubs/<h>`."""
        kind, _, key = path.partition("/")
        return (self.view.subscriptions if kind == Kind.SUBSCRIPTION.value else self.view.publishers).get(key)

    # ------------------------------------------------------------------ services of the parts

    def mark_egress(self, egress: Egress) -> None:
        """Have the egress' settlements sent at the end of this turn."""
        self.dirty_egresses.append(egress)

    def is_live_tag(self, tag: bytes, pattern: str) -> bool:
        """E-6: False when the tag counts as settled: nobody will send a subscription to `pattern` its SYNC.

        That is so when its session is not in view, or is one of a publisher of another topic. Tags of another cluster
        nonce are not ours to settle: they are kept until the application decides.
        """
        session = session_of(tag, self.nonce)
        if session == 0:
            return True
        publisher = self.view.publisher_of(session)
        return publisher is not None and matches(pattern, publisher.topic)

    def topic_window(self, topic: str) -> int:
        """C-4: the sum of the publishers' windows must fit the smallest map of the topic's subscriptions."""
        share = self.view.map_share(topic)
        if not share:
            return self.limits.window
        return min(self.limits.window, share)

    def count_resend_failure(self, key: str, within_s: float) -> int:
        """How often this publisher missed T_resend at this router in the last `within_s` seconds (I-9)."""
        times = [time for time in self._resend_failures.pop(key, []) if self.turn.now - time < within_s]
        self._resend_failures[key] = [*times, self.turn.now][-RESEND_FAILURES:]
        _bound(self._resend_failures)
        return len(self._resend_failures[key])

    def forget_resend_failures(self, key: str) -> None:
        """The publisher's key is gone; a later one starts anew (I-9)."""
        self._resend_failures.pop(key, None)

    def send_to_router(self, rid: int, message: PeerMessage) -> None:
        """Send SYNC or MSG to the egress at `rid`, which may be this router."""
        if rid == self.rid:
            self.peering.deliver(self.rid, message)
        elif rid in self.view.routers:
            self.peers.channel(rid).send_stream(_epoch_of(message), message)

    def send_control(self, rid: int, message: PeerMessage) -> None:
        """Send ACK or NACK to the ingress at `rid`."""
        if rid in self.view.routers:
            self.peers.channel(rid).send_control(message)

    def send_nack(self, sync: SyncState, egress: Egress, number: int, failed: bool) -> None:
        """E-4a: ask the ingress for another attempt."""
        nack = Nack(sync.epoch, egress.epoch, number, failed)
        if sync.ingress_rid == self.rid:
            self.peering.deliver(self.rid, nack)
        else:
            self.send_control(sync.ingress_rid, nack)

    def sync_router(self, rid: int) -> None:
        """T-4: a channel came up; repeat I-5 for all publishers here."""
        for ingress in self.ingresses.values():
            ingress.fanout.sync_router(rid)

    def drop_parked(self, rid: int) -> None:
        """T-4: what the old generation left parked is repeated."""
        self.peering.drop(rid)

    def watch_unknown(self, nonce: str) -> None:
        """Wait for a put whose fate is unknown (K-2a)."""
        self.timers.set(Timer.UNKNOWN_PUT, nonce, self.turn.now + UNKNOWN_PUT_S)

    def describe(self) -> dict[str, object]:
        """Tables for people."""
        return describe(self)


_CLOSED_EARLY = "the link was closed before its attach was complete; attach and close again"


def _epoch_of(message: PeerMessage) -> int:
    epoch = getattr(message, "publisher_epoch", None)
    assert isinstance(epoch, int)
    return epoch


def _bound(remembered: dict[str, Any]) -> None:
    while len(remembered) > _COUNTED_KEYS:
        remembered.pop(next(iter(remembered)))
