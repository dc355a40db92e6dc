"""ACK and NACK for the publishers at this router, from any egress, this router's own too (rules I-2, E-4a, T-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.limits import PAST_EPOCHS
from delivery_records.model.messages import Ack, Annotations, Claim, Nack, Need, Reason, Return, Room, Taken, ToIngress
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.ingress import Ingress


class ToIngresses:
    """The ingresses of this router by the epoch of their publisher."""

    __slots__ = ("_on_fault", "_past_epochs", "_turn", "by_epoch")

    def __init__(self, turn: Turn, on_fault: Callable[[Endpoint, Exception], None]) -> None:
        """No publisher is attached here. `on_fault` confines what one of them raised (K-3b)."""
        self._turn = turn
        self._on_fault = on_fault
        self.by_epoch: dict[int, Ingress] = {}
        self._past_epochs: dict[int, str] = {}

    def deliver(self, message: ToIngress) -> None:
        """Hand a message of an egress over."""
        if isinstance(message, Ack):
            self._on_ack(message)
        elif isinstance(message, Nack):
            self.on_nack(message)
        elif isinstance(message, Reason):
            self._on_reason(message)
        elif isinstance(message, Annotations):
            self._on_annotations(message)
        elif isinstance(message, (Taken, Need)):
            self._on_large(message)
        else:
            self._on_member(message)

    def _on_member(self, message: Claim | Return | Room) -> None:
        """SH-2, SH-4: of a member's latest epoch; of a former one a RETURN alone says more than the CLAIM (SH-5)."""
        member = self._subscription(message.subscription_epoch)
        ingress = self.by_epoch.get(message.publisher_epoch)
        if member is None or ingress is None:
            self._turn.counts[Decision.ACK_STALE] += 1
            return
        try:
            ingress.answers.on_member_says(member, message)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._on_fault(ingress, error)

    def _on_large(self, message: Taken | Need) -> None:
        """L-4, L-7: of a subscription's or a member's latest epoch."""
        view = self._turn.view
        subscription = view.subscriptions.get(view.subscription_epochs.get(message.subscription_epoch, ""))
        ingress = self.by_epoch.get(message.publisher_epoch)
        if subscription is None or ingress is None:
            self._turn.counts[Decision.ACK_STALE] += 1
            return
        try:
            if isinstance(message, Taken):
                ingress.large.on_taken(subscription, message)
            elif ingress.sends_as_new:
                ingress.answers.on_needed_in_vain(subscription, message.number)
            else:
                ingress.large.on_need(subscription, message)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._on_fault(ingress, error)

    def remember_epoch(self, epoch: int, key: str) -> None:
        """A subscription's former epoch: its late ACKs are still true (I-2)."""
        self._past_epochs[epoch] = key
        if len(self._past_epochs) > PAST_EPOCHS:
            self._past_epochs.pop(next(iter(self._past_epochs)))

    def _on_ack(self, ack: Ack) -> None:
        subscription = self._subscription(ack.subscription_epoch)
        ingress = self.by_epoch.get(ack.publisher_epoch)  # T-7: numbers of this epoch only
        if subscription is None or ingress is None:
            self._turn.counts[Decision.ACK_STALE] += 1
            return
        self.acknowledge(ingress, subscription, ack.runs, ack.outcome)

    def acknowledge(
        self, ingress: Ingress, subscription: Subscription, runs: Iterable[Sequence[int]], outcome: DeliveryOutcome
    ) -> None:
        """I-2, for one ingress here."""
        try:
            for first, count in runs:
                ingress.answers.on_acknowledged(subscription, first, count, outcome)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._on_fault(ingress, error)

    def on_nack(self, nack: Nack) -> None:
        """E-4a: the subscriber wants another attempt."""
        subscription = self._subscription(nack.subscription_epoch)
        ingress = self.by_epoch.get(nack.publisher_epoch)
        if subscription is not None and ingress is not None:
            try:
                ingress.answers.on_again(subscription, nack)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._on_fault(ingress, error)

    def _on_annotations(self, message: Annotations) -> None:
        """E-4b: what it has added to what it is about to want again."""
        subscription = self._subscription(message.subscription_epoch)
        ingress = self.by_epoch.get(message.publisher_epoch)
        if subscription is not None and ingress is not None:
            try:
                ingress.answers.on_annotated(subscription, message.number, message.added)
            except Exception as error:  # noqa: BLE001  (K-3b)
                self._on_fault(ingress, error)

    def _on_reason(self, reason: Reason) -> None:
        """I-3e: why it rejects what it is about to acknowledge."""
        subscription = self._subscription(reason.subscription_epoch)
        ingress = self.by_epoch.get(reason.publisher_epoch)
        if subscription is None or ingress is None or ingress.fanout.letters is None:
            return
        try:
            ingress.fanout.letters.on_reason(subscription, reason)
        except Exception as error:  # noqa: BLE001  (K-3b)
            self._on_fault(ingress, error)

    def _subscription(self, epoch: int) -> Subscription | None:
        """I-2: any epoch of its present life; a former life says nothing of what this one owes, as letters (I-3e)."""
        view = self._turn.view
        key = view.subscription_epochs.get(epoch) or self._past_epochs.get(epoch)
        found = None if key is None else view.subscriptions.get(key)
        if found is None or found.record.member_of:
            return found  # SH-5: what a member is done with counts, in whichever life
        return None if epoch < found.created else found
