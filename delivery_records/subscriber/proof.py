"""Proof of life of a subscriber, and the confirmation that waits for it (rules A-6b, A-10)."""

from __future__ import annotations

from dataclasses import replace

from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import PROOF_RETRY_S, PROVISIONAL_TIMEOUT_S
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.terms import Terms, held_terms, timeout_of
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, subscription_path


class ProofOfLife:
    """Of one subscriber: asked for, waited for, written; then it is confirmed."""

    __slots__ = (
        "_created",
        "_exactly_once",
        "_link",
        "_proposals",
        "_shared_key",
        "_shared_terms",
        "_terms",
        "_turn",
        "awaits_proof",
        "confirmed",
        "is_known",
        "is_proven",
        "is_writing",
    )

    def __init__(
        self,
        turn: Turn,
        proposals: Proposals,
        link: int,
        subscription: Subscription,
        exactly_once: bool,
        terms: Terms,
        shared: Subscription | None = None,
        shared_terms: Terms | None = None,
    ) -> None:
        """The attach of `subscription` is in the view; `terms` are what its client gets when it has shown life.

        Of a member, `shared` is its shared subscription, which gets `shared_terms` then (SH-1).
        """
        self._turn = turn
        self._proposals = proposals
        self._link = link
        self._created = subscription.created if shared is None else shared.created
        self._exactly_once = exactly_once
        self._terms = terms
        self._shared_key = "" if shared is None else shared.key
        self._shared_terms = shared_terms
        self.is_proven = _has(subscription, terms) and (shared is None or _has(shared, shared_terms))
        """Its key says what it was granted, or is going to (A-10)."""
        self.awaits_proof = exactly_once and not self.is_proven
        """Before it is confirmed (A-10)."""
        self.is_known = False
        """To every live router (A-6)."""
        self.confirmed = False
        self.is_writing = False
        """A put is under way that will be its new epoch, so that a deletion at this one may lose (E-8)."""

    def ask(self, endpoint: Endpoint) -> None:
        """Its terms are not written, or only provisionally: let the client show life."""
        turn = self._turn
        if self._exactly_once:
            turn.out.append(effects.AskEcho(self._link, endpoint.epoch))
            turn.timers.set(Timer.LIFE, endpoint.key, turn.now + turn.limits.proof_timeout_s)
        turn.timers.set(Timer.PROVISIONAL, endpoint.key, turn.now + PROVISIONAL_TIMEOUT_S)

    def on_written(self, endpoint: Endpoint) -> None:
        """The watch shows that its key says what it was granted."""
        self.is_writing = False
        self.is_proven = True
        self.awaits_proof = False
        self.confirm(endpoint)

    def on_silence(self, endpoint: Endpoint) -> None:
        """No answer to the echo within T_life, perhaps of a client that knows none: confirmed with what it has."""
        self.awaits_proof = False
        self.confirm(endpoint)

    def confirm(self, endpoint: Endpoint) -> None:
        """A-6b: when every router knows it, and its key says what it was granted; again when that changes."""
        if not self.is_known or self.awaits_proof:
            return
        turn = self._turn
        incarnation = turn.reported_incarnation(self._created)
        if not self.confirmed:
            self.confirmed = True
            turn.note(Decision.SUBSCRIBER_CONFIRMED, subscription=endpoint.name, incarnation=incarnation)
        if self._exactly_once:
            subscription = turn.view.subscriptions[endpoint.key]
            policy = held_terms(subscription.record).expiry_policy
            turn.out.append(effects.Confirm(self._link, incarnation, timeout_of(subscription), policy))

    def on_sign_of_life(self, endpoint: Endpoint) -> None:
        """The client lives: write what its attach was granted; that put's revision is the new epoch."""
        if self.is_proven:
            return
        turn = self._turn
        self.is_proven = True
        turn.timers.cancel(Timer.LIFE, endpoint.key)  # from now on the confirmation waits for the put
        turn.timers.cancel(Timer.PROVISIONAL, endpoint.key)
        subscription = turn.view.subscriptions.get(endpoint.key)
        if subscription is not None and subscription.epoch == endpoint.epoch:
            terms = self._terms
            self._proposals.put_again(
                subscription_path(endpoint.key),
                endpoint,
                subscription.record,
                self._shared_put(),
                provisional=False,
                timeout_s=terms.timeout_s,
                expiry_policy=terms.expiry_policy,
            )
            self.is_writing = True
            turn.note(Decision.SUBSCRIBER_PROVEN, subscription=endpoint.name)

    def _shared_put(self) -> effects.SharedPut | None:
        """SH-1: the shared subscription has shown life with its member."""
        shared, terms = self._turn.view.subscriptions.get(self._shared_key), self._shared_terms
        if shared is None or terms is None:
            return None
        record = replace(shared.record, provisional=False, timeout_s=terms.timeout_s, expiry_policy=terms.expiry_policy)
        return effects.SharedPut(subscription_path(shared.key), shared.created, record)

    def on_put_failed(self, key: str, failure: StoreFailure) -> None:
        """It is tried again, at the next sign of life or soon; after a lost compare the link is another's."""
        self.is_writing = False
        if failure is not StoreFailure.CONFLICT:
            self.is_proven = False
            self._turn.timers.set(Timer.PROVISIONAL, key, self._turn.now + PROOF_RETRY_S)


def _has(subscription: Subscription, terms: Terms | None) -> bool:
    return held_terms(subscription.record) == terms and not subscription.record.provisional
