"""An operator ends a subscription (rule K-5a): the compare-and-delete of expiry, asked for by a person.

Nothing is decided here and nothing is forgotten here: what a deletion means is carried out by whoever sees it in the
watch (K-2), as with one that expired.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from delivery_records.model import effects
from delivery_records.model.effects import OrderEnding
from delivery_records.model.inputs import EndSubscription, StoreFailure
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, subscription_path

ORDERS = 1_000
"""Orders whose fate is awaited; a person gives one, a script some."""


@dataclass(frozen=True, slots=True)
class _Order:
    number: int
    key: str
    epoch: int


class OrderedEnds:
    """The orders of operators that etcd has not decided yet, as far as this router knows."""

    __slots__ = ("_attached", "_by_nonce", "_proposals", "_turn")

    def __init__(self, turn: Turn, proposals: Proposals, attached: Container[str]) -> None:
        """Nothing is ordered. `attached`: keys of the subscriptions that have a link here."""
        self._turn = turn
        self._proposals = proposals
        self._attached = attached
        self._by_nonce: dict[str, _Order] = {}

    def start(self, order: EndSubscription) -> None:
        """Propose the deletion at the epoch the operator was shown, or say why it cannot be."""
        turn = self._turn
        subscription = turn.view.subscriptions.get(order.key)
        epoch = order.epoch  # K-5a: what he was shown, and not what stands now
        is_behind = turn.view.applied < epoch  # he was shown it by another router, and the compare decides
        found = 0 if subscription is None else subscription.epoch
        if subscription is None and not is_behind:
            self._notify(order.order, OrderEnding.NOT_FOUND)
        elif found != epoch and not is_behind:
            self._notify(order.order, OrderEnding.CHANGED, found)
        elif order.only_if_away and (subscription is None or found != epoch or not self._is_away(subscription)):
            self._notify(order.order, OrderEnding.ATTACHED, found)
        elif not turn.store_available or len(self._by_nonce) >= ORDERS:
            self._notify(order.order, OrderEnding.FAILED, found)
        else:
            name = order.key if subscription is None else subscription.name
            turn.note(Decision.DELETION_ORDERED, subscription=name, epoch=epoch)
            nonce = self._proposals.new_nonce()
            self._by_nonce[nonce] = _Order(order.order, order.key, epoch)
            turn.out.append(effects.Propose(nonce, subscription_path(order.key), epoch, None))

    def _is_away(self, subscription: Subscription) -> bool:
        """No link holds it, as far as this router can know: of another router's links it knows nothing."""
        owner = subscription.record.rid
        if owner == self._turn.rid:
            return subscription.key not in self._attached
        return owner not in self._turn.view.routers

    def on_subscription(self, key: str, subscription: Subscription | None, revision: int) -> None:
        """The watch shows a deletion or a newer epoch: then the compare has failed or will fail (K-2)."""
        for nonce, order in list(self._by_nonce.items()):
            if order.key == key and order.epoch < revision:  # else it is about what was before he was shown it
                self._compare(nonce, order, subscription)

    def on_snapshot(self) -> None:
        """K-4: a snapshot may have passed over what an order waits for, even over all of the subscription's life."""
        view = self._turn.view
        for nonce, order in list(self._by_nonce.items()):
            if order.epoch <= view.applied:
                self._compare(nonce, order, view.subscriptions.get(order.key))

    def _compare(self, nonce: str, order: _Order, subscription: Subscription | None) -> None:
        """Answer, unless what he was shown still stands."""
        if subscription is None:
            self._decide(nonce, OrderEnding.DELETED)
        elif subscription.epoch != order.epoch:
            self._decide(nonce, OrderEnding.CHANGED, subscription.epoch)

    def on_failed(self, nonce: str, failure: StoreFailure) -> bool:
        """The proposal was not carried out, or nobody knows; True when the nonce is one of these."""
        order = self._by_nonce.get(nonce)
        if order is None:
            return False
        if failure is StoreFailure.UNKNOWN:
            self._proposals.watch_unknown(nonce)  # K-2a
        else:
            self._decide(nonce, OrderEnding.CHANGED if failure is StoreFailure.CONFLICT else OrderEnding.FAILED)
        return True

    def on_unknown_timer(self, nonce: str) -> None:
        """The watch has shown nothing for long enough (K-2a)."""
        if nonce in self._by_nonce:
            self._decide(nonce, OrderEnding.UNKNOWN)

    def _decide(self, nonce: str, ending: OrderEnding, epoch: int = 0) -> None:
        order = self._by_nonce.pop(nonce)
        self._turn.timers.cancel(Timer.UNKNOWN_PUT, nonce)
        self._notify(order.number, ending, epoch)

    def _notify(self, number: int, ending: OrderEnding, epoch: int = 0) -> None:
        self._turn.out.append(effects.OrderAnswered(number, ending, epoch))
