"""The egress of a subscription with a filter: what the filter excludes is acknowledged and leaves no trace (E-9)."""

from __future__ import annotations

from delivery_records.model.inputs import SubscriberAttach
from delivery_records.model.messages import Sync
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription, SubscriptionMode
from delivery_records.subscriber.egress import Egress, EgressParts
from delivery_records.subscriber.entries import LargeBody, SyncState
from delivery_records.subscriber.filters import SharedFilter


class FilteredEgress(Egress):
    """As `Egress`. Only subscriptions with a filter have one, so that the others pay nothing for it."""

    __slots__ = ("_filter", "_filters", "_local", "_record")

    def __init__(self, turn: Turn, subscription: Subscription, request: SubscriberAttach, parts: EgressParts) -> None:
        """As `Egress`; the attach procedure has checked that the filter can be read."""
        super().__init__(turn, subscription, request, parts)
        self._record = subscription.record
        self._filters = parts.filters
        text = subscription.record.filter
        self._filter = parts.filters.of(text) if text else None
        """None: a member of a shared subscription without a filter (SH-1)."""
        self._local: dict[int, None] = {}
        """Epochs of publishers of the subscriber's own container, where its filter excludes them."""

    def on_sync(self, publisher_key: str, ingress_rid: int, session: int, sync: Sync) -> None:
        """E-2, and whether the publisher is one that no-local excludes: its key says so, whatever its messages say."""
        super().on_sync(publisher_key, ingress_rid, session, sync)
        if self._filter is not None and self._filter.compiled.no_local:
            publisher = self._turn.view.publishers[publisher_key].record
            mine = self._record
            if (publisher.vhost, publisher.user, publisher.container_id) == (mine.vhost, mine.user, mine.container_id):
                self._local[sync.publisher_epoch] = None

    def on_msg(
        self,
        publisher_epoch: int,
        number: int,
        tag: bytes,
        message: bytes,
        redelivered: bool = False,
        attempt: int = 0,
        message_format: int = 0,
        large: LargeBody | None = None,
    ) -> None:
        """E-9, then E-3. What has an entry is not filtered: the subscriber has it, or is to have it."""
        sync = self.syncs.get(publisher_epoch)
        if sync is not None and number not in sync.numbers and self._excludes(publisher_epoch, message, message_format):
            self._leave_out(sync, number, tag)
            return
        super().on_msg(publisher_epoch, number, tag, message, redelivered, attempt, message_format, large)

    def on_presettled(
        self, publisher_epoch: int, tag: bytes, message: bytes, message_format: int = 0, ttl_ms: int = 0
    ) -> None:
        """E-9, then I-1c."""
        if publisher_epoch in self.syncs and self._excludes(publisher_epoch, message, message_format):
            self._count(publisher_epoch, tag)
            return
        super().on_presettled(publisher_epoch, tag, message, message_format, ttl_ms)

    def weight(self) -> int:
        """See Egress."""
        return 1 if self._filter is None else self._filter.compiled.weight

    @property
    def shared_filter(self) -> SharedFilter | None:
        """See Egress."""
        return self._filter

    def _excludes(self, publisher_epoch: int, message: bytes, message_format: int) -> bool:
        if self._filter is None:
            return False
        if publisher_epoch in self._local:
            return True
        matches = self._filters.matches(self._filter, message, message_format)
        if matches is None:
            self._turn.note(Decision.FILTER_TOO_COSTLY, subscription=self.name, topic=self._record.topic, key=self.key)
        return not matches

    def _leave_out(self, sync: SyncState, number: int, tag: bytes) -> None:
        """E-9: no entry. As one it would stand behind held deliveries, and E-2 would take those for skipped."""
        self._count(sync.epoch, tag)
        if self.mode is not SubscriptionMode.AT_MOST_ONCE:  # c.3: no ACK, for nothing is owed
            sync.acknowledge(number, DeliveryOutcome.ACCEPTED)

    def _count(self, publisher_epoch: int, tag: bytes) -> None:
        self._turn.counts[Decision.FILTERED] += 1
        if self._turn.tracing is not None:
            self._turn.tracing.of_epoch(publisher_epoch, tag, Rule.FILTERED, self.name)

    def _forget_sync(self, epoch: int) -> None:
        super()._forget_sync(epoch)
        self._local.pop(epoch, None)
