"""The attach procedure: compare-and-put the key, act when the watch delivers that put (A-2, A-2a to A-2d).

A put's response is used for failures only. Its nonce in the value distinguishes our put from everybody else's.

Each attach is an `Attempt`. Those of one identity stand in a queue, and only the head of it is at work (A-2a). It is
READING (a shared subscription's key as well, SH-1), then PUTTING; of many at once it is PUTTING over what the view
shows, and READING only where that cannot be, or its compare has failed. Then `take` is called: the watch has delivered
the put, and the caller makes the ingress or the egress (A-3). DELETING ends an older subscription with another topic or
filter first. PAUSING waits for the next try, or for a former publisher of that name to come to its end (A-9a).
COLLECTING waits for the rest of a map and is in no queue, because an older link of the identity still goes on (C-4).

Answers of etcd come as inputs, in any order with events of the watch and with what the client does; the nonce of each
read and put says whose they are. A failed compare means that somebody else has written the key: read again, a few
times. A put of unknown fate may still be carried out. The attach is refused after a while, and its nonce is remembered:
if the event comes all the same, the link counts as attached and lost at once (K-2a). So does one whose client has
disconnected while the put was under way. A snapshot may pass over our put: either it shows a newer one, and the link is
stolen, or the fate is unknown (K-4).

Refusals that need no read come first and write nothing. An expired session is refused after the read, and writes
nothing either (A-5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from delivery_records.attachments.attempt import AttachStep, Attempt
from delivery_records.attachments.refusals import (
    EXPIRED,
    NO_PART,
    NO_STORE,
    NOT_HELD,
    Refusal,
    others,
    refusal_of_terms,
    refused_by_store,
    shared_key_of,
)
from delivery_records.attachments.session_order import SessionOrder
from delivery_records.attachments.steals import StealGuard
from delivery_records.attachments.wanted import (
    NoPut,
    new_shared,
    publisher_record,
    shared_with,
    subscription_record,
    why_no_member,
    why_unknown,
)
from delivery_records.model import effects
from delivery_records.model.failures import PastFailures
from delivery_records.model.inputs import MapPart, PublisherAttach, ReadDone, Share, StoreFailure, SubscriberAttach
from delivery_records.model.limits import (
    ORPHAN_NONCES,
    PROVISIONAL_TIMEOUT_S,
    PUT_RETRIES,
    PUT_RETRY_BASE_S,
    UNKNOWN_PUT_S,
)
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.tags import link_key
from delivery_records.model.terms import held_terms, member_terms, subscription_terms
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import (
    SESSION_IS_THIS_PUT,
    SESSION_NONE,
    PublisherRecord,
    SubscriptionRecord,
    publisher_path,
    session_of_record,
    split_path,
    subscription_path,
)
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.resumption import Held
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.filters import MessageFilters


class Attaching:
    """All attaches in progress at this router, at most one per link identity at a time (A-2a)."""

    __slots__ = (
        "_by_nonce",
        "_by_path",
        "_failures",
        "_filters",
        "_nonce_revision",
        "_proposals",
        "_steals",
        "_turn",
        "ingresses",
        "is_busy",
        "links",
        "order",
    )

    def __init__(
        self,
        turn: Turn,
        proposals: Proposals,
        failures: PastFailures,
        steals: StealGuard,
        nonce_revision: int,
        filters: MessageFilters,
    ) -> None:
        """No attach is in progress.

        Args:
            turn: of this router.
            proposals: names what is asked of etcd.
            failures: what earlier links of an identity failed to do.
            steals: refuses two clients that steal each other's link.
            nonce_revision: when the cluster nonce was written; publisher sessions of before are over (K-9).
            filters: reads those of subscriptions (E-9).
        """
        self._turn = turn
        self._proposals = proposals
        self._failures = failures
        self._steals = steals
        self._nonce_revision = nonce_revision
        self._filters = filters
        self.links: dict[int, Attempt | Ingress | Egress] = {}
        """Every client link by its number: an attach in progress, or what serves it."""
        self.ingresses: dict[str, Ingress] = {}
        """Publishers by key, also those whose link is gone."""
        self._by_path: dict[str, deque[Attempt]] = {}
        self._by_nonce: dict[str, Attempt] = {}
        self.order: SessionOrder[Attempt] = SessionOrder(self._is_open)
        self.is_busy: Callable[[str], bool] = lambda _path: False
        """Whether a publisher before it ends, and what was read of it is owed (A-9a)."""

    def start(self, request: PublisherAttach | SubscriberAttach) -> None:
        """A client attaches: refuse at once what can never work, else queue behind the same identity."""
        turn = self._turn
        if not turn.store_available:
            turn.out.append(refused_by_store(request.link, NO_STORE))
            return
        path_of = publisher_path if isinstance(request, PublisherAttach) else subscription_path
        owner = request.owner
        user = "" if owner.adopts else owner.user
        path = path_of(link_key(request.container_id, request.link_name, owner.vhost, user))
        refusal = self._refusal(request, path)
        if refusal is not None:
            self._refuse(request, *refusal)
            return
        attempt = Attempt(request, path, self.order.next_place())
        attempt.since = turn.now
        self.links[request.link] = attempt
        if isinstance(request, SubscriberAttach):
            self.order.add_subscriber(request.place.amqp_session, request.link, attempt.place)
        turn.budget.hold_map(attempt.presented)
        if isinstance(request, SubscriberAttach) and request.entries > len(request.unsettled or ()):
            attempt.step = AttachStep.COLLECTING  # C-4: not queued, for an older link of that identity goes on
            self._await_rest(attempt)
            return
        queue = self._by_path.setdefault(path, deque())
        queue.append(attempt)
        if len(queue) == 1:
            self._begin(attempt)

    # ------------------------------------------------------------------ the rest of a map (C-4)

    def _await_rest(self, attempt: Attempt) -> None:
        deadline = self._turn.now + self._turn.limits.proof_timeout_s
        self._turn.timers.set(Timer.MAP_REST, str(attempt.link), deadline)

    def on_map_part(self, part: MapPart) -> None:
        """More of the map that a subscriber presents; with the last part of it the attach begins."""
        attempt = self.links.get(part.link)
        if not isinstance(attempt, Attempt) or attempt.step is not AttachStep.COLLECTING:
            return
        request, more = attempt.request, part.unsettled
        assert isinstance(request, SubscriberAttach)
        first, rest = request.unsettled or {}, attempt.rest
        is_again = more is not None and not (rest.keys().isdisjoint(more) and first.keys().isdisjoint(more))
        if more is None or is_again or len(first) + len(rest) + len(more) > request.entries:
            self._give_up(attempt, "amqp:invalid-field", NO_PART)
            return
        rest.update(more)
        if len(first) + len(rest) < request.entries:
            self._await_rest(attempt)
            return
        self._finish(attempt)
        del self.links[attempt.link]
        self.start(replace(request, unsettled={**first, **rest}, entries=0))

    def on_rest_timer(self, link: str) -> None:
        """Nothing more of a map has come for T_life."""
        attempt = self.links.pop(int(link), None)
        if isinstance(attempt, Attempt):
            text = "the rest of the unsettled map has not come"
            self._turn.out.append(effects.DetachLink(attempt.link, False, "amqp:link:detach-forced", text))
            self._finish(attempt)

    def _refusal(self, request: PublisherAttach | SubscriberAttach, path: str) -> Refusal | None:
        if refusal := refusal_of_terms(self._turn, request):
            return refusal
        _, key = split_path(path)
        if isinstance(request, SubscriberAttach) and request.incomplete and self._failures.refuses_reduction(key):
            return "amqp:resource-limit-exceeded", "the unsettled map cannot be reduced: raise max-frame-size"
        stolen = self._steals.refusal(path, self._turn.now, request.peer)
        if stolen is not None:
            self._turn.note(Decision.STEAL_REFUSED, key=path, why=stolen, peer=request.peer)
            return "amqp:resource-locked", stolen
        return None

    def _refuse(self, request: PublisherAttach | SubscriberAttach, condition: str, description: str) -> None:
        self._turn.note(
            Decision.ATTACH_REFUSED,
            link_name=request.link_name,
            container_id=request.container_id,
            condition=condition,
            why=description,
            peer=request.peer,
        )
        self.links.pop(request.link, None)
        self._turn.out.append(effects.DetachLink(request.link, True, condition, description))

    # ------------------------------------------------------------------ steps

    def _is_open(self, link: int) -> bool:
        """Whether a subscriber's attach is not answered yet."""
        found = self.links.get(link)
        return isinstance(found, Attempt) or (isinstance(found, Egress) and not found.outgoing.is_replied)

    def _begin(self, attempt: Attempt) -> None:
        """A-2d: a publisher that came behind subscribers of its session attaches when those are answered."""
        request = attempt.request
        if isinstance(request, PublisherAttach) and self.order.holds(
            request.place.amqp_session, attempt, attempt.place
        ):
            return
        self._wait_or_go_on(attempt)

    def _wait_or_go_on(self, attempt: Attempt) -> None:
        """A-9a: a new session would end what is owed of the one before it, so it waits, for T_end at most."""
        request = attempt.request
        if isinstance(request, PublisherAttach) and request.unsettled is None and self.is_busy(attempt.path):
            attempt.step = AttachStep.PAUSING
            self._turn.timers.set(Timer.ATTACH_RETRY, attempt.path, self._turn.now + self._turn.limits.end_wait_s)
            return
        if not self._put_over_view(attempt):
            self._read(attempt)

    def _put_over_view(self, attempt: Attempt) -> bool:
        """A-2b: of many at once, what is put over what the view shows: where the view is late the compare fails."""
        if len(self._by_nonce) < self._turn.limits.read_attaches:
            return False
        found, request = self._turn.view.attachment(attempt.path), attempt.request
        record, epoch = (None, 0) if found is None else (found.record, found.epoch)
        wanted: PublisherRecord | SubscriptionRecord | Refusal | NoPut | None = None
        if isinstance(request, PublisherAttach):
            assert record is None or isinstance(record, PublisherRecord)
            wanted = self._wanted_publisher(attempt.path, request, record, epoch)
        elif request.share is None:  # SH-1: what is put over a shared subscription was read
            assert record is None or isinstance(record, SubscriptionRecord)
            wanted = self._wanted_subscription(request, record)
        if not isinstance(wanted, (PublisherRecord, SubscriptionRecord)):
            return False
        attempt.is_over_view = True
        self._put(attempt, epoch, wanted)
        return True

    def on_free(self, path: str) -> None:
        """A-9a: the publisher before it is gone."""
        queue = self._by_path.get(path)
        if queue and queue[0].step is AttachStep.PAUSING:
            self._turn.timers.cancel(Timer.ATTACH_RETRY, path)
            self.on_retry_timer(path)

    def on_answered(self, request: SubscriberAttach) -> None:
        """A-2d: publishers of its session wait for it no longer."""
        self.order.on_answered(request.place.amqp_session, request.link)

    def go_on(self) -> None:
        """A-2d: attaches of publishers whose turn it is."""
        for attempt in self.order.take_ready():
            self._wait_or_go_on(attempt)

    def _read(self, attempt: Attempt) -> None:
        """A-2b: the read is linearizable, so that a late watch cannot make a live session look expired."""
        attempt.step = AttachStep.READING
        self._name(attempt)
        self._turn.out.append(effects.Read(attempt.nonce, attempt.path))

    def _name(self, attempt: Attempt) -> None:
        self._by_nonce.pop(attempt.nonce, None)
        attempt.nonce = self._proposals.new_nonce()
        self._by_nonce[attempt.nonce] = attempt

    def on_read(self, done: ReadDone) -> None:
        """The key's value is known: put the new one over it."""
        attempt = self._by_nonce.pop(done.nonce, None)
        if attempt is None or attempt.step not in (AttachStep.READING, AttachStep.READING_SHARED):
            return
        if attempt.is_lost:
            self._finish(attempt)
        elif isinstance(attempt.request, PublisherAttach):
            self._put_publisher(attempt, attempt.request, done)
        elif attempt.request.share is None:
            self._put_subscription(attempt, attempt.request, done)
        elif attempt.step is AttachStep.READING:
            self._read_shared(attempt, attempt.request, done)
        else:
            self._put_member(attempt, attempt.request, done)

    def _read_shared(self, attempt: Attempt, request: SubscriberAttach, own: ReadDone) -> None:
        """SH-1: its own key is known; now the other one."""
        attempt.step, attempt.found = AttachStep.READING_SHARED, own
        self._name(attempt)
        self._turn.out.append(effects.Read(attempt.nonce, subscription_path(shared_key_of(request))))

    def _put_publisher(self, attempt: Attempt, request: PublisherAttach, done: ReadDone) -> None:
        record = done.record
        assert record is None or isinstance(record, PublisherRecord), "what stands there was decoded as one"
        wanted = self._wanted_publisher(attempt.path, request, record, done.mod_revision)
        if isinstance(wanted, PublisherRecord):
            self._put(attempt, done.mod_revision, wanted)
        elif isinstance(wanted, tuple):
            if wanted is NOT_HELD:  # A-3c: nothing is written
                self._turn.note(Decision.PUBLISHER_UNKNOWN, publisher=f"{request.container_id}/{request.link_name}")
            self._give_up(attempt, *wanted)
        else:
            # write nothing; the client learns that the outcome of these deliveries is unknown.
            self._turn.note(Decision.PUBLISHER_EXPIRED, publisher=f"{request.container_id}/{request.link_name}")
            self.links.pop(request.link, None)
            info = {"x-opt-topic-resume": "expired"}
            self._turn.out.append(effects.DetachLink(request.link, True, "oncewire:session-expired", EXPIRED, info))
            self._finish(attempt)

    def _wanted_publisher(
        self, path: str, request: PublisherAttach, record: PublisherRecord | None, revision: int
    ) -> PublisherRecord | Refusal | NoPut:
        """What is put over this record, of this revision."""
        old_session, moved_topic = SESSION_NONE, False
        if record is not None:
            if refusal := others(record, request):
                return refusal
            old_session = session_of_record(record, revision)
            if old_session < self._nonce_revision:
                old_session = SESSION_NONE  # K-9: it began before the data came back from a backup
            moved_topic = record.topic != request.topic
        unsettled = bool(request.unfinished)
        if unsettled and (not old_session or moved_topic):
            return NoPut.EXPIRED
        if request.resumes and self.held(path, old_session, request) is None:
            return NOT_HELD
        session = old_session
        if not unsettled and not request.exactly_once:
            session = SESSION_IS_THIS_PUT  # c.5: a stock publisher's session starts with its attach
        elif moved_topic:
            session = SESSION_NONE
        held_s = record.timeout_s if record is not None and session == old_session else 0.0
        return publisher_record(request, self._turn, session, held_s)

    def held(self, path: str, session: int, request: PublisherAttach) -> Held | None:
        """A-3b: what this router holds of a publisher; None: not all that it presents is known (A-3c)."""
        ingress = self.ingresses.get(split_path(path)[1])
        held = ingress.resumption.held() if ingress is not None and ingress.session == session else None
        return None if held is None or held.among(request.unfinished) is None else held

    def _put_subscription(self, attempt: Attempt, request: SubscriberAttach, done: ReadDone) -> None:
        record = done.record
        assert record is None or isinstance(record, SubscriptionRecord), "what stands there was decoded as one"
        wanted = self._wanted_subscription(request, record)
        if isinstance(wanted, SubscriptionRecord):
            self._put(attempt, done.mod_revision, wanted)
        elif isinstance(wanted, tuple):
            self._give_up(attempt, *wanted)
        elif wanted is NoPut.LOOK_UP:  # SH-1: whoever looks one up does not know of which kind it is
            attempt.request = replace(request, share=Share(request.link_name))
            self._read_shared(attempt, attempt.request, done)
        else:
            self._delete_first(attempt, done)

    def _wanted_subscription(
        self, request: SubscriberAttach, record: SubscriptionRecord | None
    ) -> SubscriptionRecord | Refusal | NoPut:
        """What is put over this record."""
        if record is not None and (refusal := others(record, request)):
            return refusal
        topic, filter_text = request.topic, request.filter
        if topic is None:
            if record is None:
                return NoPut.LOOK_UP
            topic, filter_text = record.topic, record.filter
        if filter_text and (unknown := why_unknown(self._filters, filter_text)):
            return "amqp:not-implemented", unknown
        if record is not None and (record.topic != topic or record.filter != filter_text or record.member_of):
            return NoPut.DELETE_FIRST
        terms = subscription_terms(request, self._turn.limits)
        provisional = record is None and terms.timeout_s > PROVISIONAL_TIMEOUT_S
        if record is not None:
            terms, provisional = held_terms(record), record.provisional  # no life, no change
        wanted = subscription_record(request, self._turn, (topic, filter_text), terms, provisional)
        if record is not None and record.stores:  # I-3g: what it has had before is stored, whatever it is now
            wanted = replace(wanted, stores=True)
        return wanted

    def _delete_first(self, attempt: Attempt, done: ReadDone) -> None:
        """End what is there; the attach goes on when the watch shows that."""
        attempt.step = AttachStep.DELETING
        attempt.expect = done.mod_revision
        self._name(attempt)
        self._turn.out.append(effects.Propose(attempt.nonce, attempt.path, done.mod_revision, None))

    def _put_member(self, attempt: Attempt, request: SubscriberAttach, done: ReadDone) -> None:
        """SH-1: the member and its shared subscription, in one transaction."""
        own, shared = attempt.found, done.record
        assert own is not None
        assert own.record is None or isinstance(own.record, SubscriptionRecord)
        assert shared is None or isinstance(shared, SubscriptionRecord)
        refusal = why_no_member(self._filters, request, own.record, shared)
        if refusal is not None:
            self._give_up(attempt, *refusal)
            return
        key = shared_key_of(request)
        if own.record is not None and own.record.member_of != key:
            self._delete_first(attempt, own)
            return
        if shared is None:
            shared = new_shared(request, self._turn.limits)
        terms = member_terms(request, self._turn.limits)
        provisional = own.record is None and terms.timeout_s > PROVISIONAL_TIMEOUT_S
        if own.record is not None:
            terms, provisional = held_terms(own.record), own.record.provisional
        member = subscription_record(request, self._turn, (shared.topic, shared.filter), terms, provisional, key)
        put = effects.SharedPut(subscription_path(key), done.create_revision, shared_with(shared, request))
        self._put(attempt, own.mod_revision, member, put)

    def _put(
        self,
        attempt: Attempt,
        expect: int,
        record: PublisherRecord | SubscriptionRecord,
        shared: effects.SharedPut | None = None,
    ) -> None:
        attempt.step = AttachStep.PUTTING
        attempt.expect = expect
        self._name(attempt)
        self._proposals.put(attempt.nonce, attempt.path, expect, record, shared)

    # ------------------------------------------------------------------ answers

    def take(self, nonce: str) -> Attempt | None:
        """The watch delivered a put with this nonce: the attempt that made it, now complete (A-3)."""
        attempt = self._by_nonce.pop(nonce, None)
        if attempt is not None:
            self._turn.timers.cancel(Timer.UNKNOWN_PUT, nonce)
            self._finish(attempt)
        return attempt

    def on_snapshot(self) -> None:
        """K-4: a snapshot may have passed over our writes: one that it does not show is of unknown fate (K-2a)."""
        turn = self._turn
        for nonce, attempt in list(self._by_nonce.items()):
            if attempt.step not in (AttachStep.PUTTING, AttachStep.DELETING):
                continue
            found = turn.view.attachment(attempt.path)
            may_be_stolen = attempt.step is AttachStep.PUTTING and not attempt.is_over_view  # A-2b
            if may_be_stolen and found is not None and found.epoch > attempt.expect:
                del self._by_nonce[nonce]
                if not attempt.is_lost:
                    self._refuse(attempt.request, "amqp:link:stolen", f"attached again by {found.record.peer}")
                self._finish(attempt)
            else:
                turn.timers.set(Timer.UNKNOWN_PUT, nonce, turn.now + UNKNOWN_PUT_S)

    def on_deleted(self, path: str) -> None:
        """The old subscription of an attach with another topic is gone: start again."""
        queue = self._by_path.get(path)
        if queue and queue[0].step is AttachStep.DELETING:
            self._read(queue[0])

    def on_failed(self, nonce: str, failure: StoreFailure) -> bool:
        """A read or put of ours failed; True when the nonce was ours (K-2a)."""
        attempt = self._by_nonce.get(nonce)
        if attempt is None:
            return False
        if failure is StoreFailure.CONFLICT:
            self._retry(attempt)
        elif failure is StoreFailure.UNKNOWN and attempt.step not in (AttachStep.READING, AttachStep.READING_SHARED):
            self._turn.note(Decision.ATTACH_UNKNOWN, key=attempt.path)
            self._turn.timers.set(Timer.UNKNOWN_PUT, nonce, self._turn.now + UNKNOWN_PUT_S)
        else:
            del self._by_nonce[nonce]
            self._end(attempt)
        return True

    def _retry(self, attempt: Attempt) -> None:
        del self._by_nonce[attempt.nonce]
        if attempt.is_lost:
            self._finish(attempt)
            return
        if attempt.is_over_view:  # A-2b: the watch is late
            attempt.is_over_view = False
            self._read(attempt)
            return
        attempt.tries += 1
        if attempt.tries > PUT_RETRIES:
            self._give_up(attempt, "amqp:resource-locked", "the attachment keeps changing; attach again later")
        else:
            self._turn.note(Decision.ATTACH_RETRIED, key=attempt.path, tries=attempt.tries)
            attempt.step = AttachStep.PAUSING
            delay = PUT_RETRY_BASE_S * 2.0 ** (attempt.tries - 1)
            self._turn.timers.set(Timer.ATTACH_RETRY, attempt.path, self._turn.now + delay)

    def on_retry_timer(self, path: str) -> None:
        """The pause after a conflict is over."""
        queue = self._by_path.get(path)
        if queue and queue[0].step is AttachStep.PAUSING:
            if queue[0].is_lost:
                self._finish(queue[0])
            else:
                self._read(queue[0])

    def on_unknown_timer(self, nonce: str) -> bool:
        """The fate of a put stayed unknown: refuse the attach, keep the nonce (K-2a)."""
        attempt = self._by_nonce.get(nonce)
        if attempt is None:
            return False
        self._end(attempt)
        attempt.is_lost = True
        self._drop_map(attempt)
        while len(self._by_nonce) > ORPHAN_NONCES:
            self._by_nonce.pop(next(iter(self._by_nonce)))
        return True

    def on_link_gone(self, attempt: Attempt) -> None:
        """The client has gone before its attach was in the view."""
        attempt.is_lost = True
        self._drop_map(attempt)
        if attempt.step in (AttachStep.COLLECTING, AttachStep.QUEUED, AttachStep.PAUSING):
            self._finish(attempt)

    def _end(self, attempt: Attempt) -> None:
        """A-1: etcd has refused the attach, or does not answer."""
        if not attempt.is_lost:
            self.links.pop(attempt.link, None)
            self._turn.out.append(refused_by_store(attempt.link, NO_STORE))
        self._finish(attempt)

    def _give_up(self, attempt: Attempt, condition: str, description: str) -> None:
        self._refuse(attempt.request, condition, description)
        self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        """Let the next attach of the same identity go on (A-2a)."""
        self._drop_map(attempt)
        if attempt.step is AttachStep.COLLECTING:
            self._turn.timers.cancel(Timer.MAP_REST, str(attempt.link))
        queue = self._by_path.get(attempt.path)
        if queue is None or attempt not in queue:
            return
        was_first = queue[0] is attempt
        queue.remove(attempt)
        self.order.forget(attempt.request.place.amqp_session, attempt)
        if not queue:
            del self._by_path[attempt.path]
        elif was_first:
            self._begin(queue[0])

    def _drop_map(self, attempt: Attempt) -> None:
        """C-6: it is counted no longer; once. One that is lost may be remembered for long (K-2a), its map is not."""
        self._turn.budget.release_map(attempt.presented)
        attempt.presented = 0
        if attempt.is_lost:
            attempt.request = replace(attempt.request, unsettled=None)
