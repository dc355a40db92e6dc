"""The cores a world is built from: the shipped ones, or ones with a rule edited out (`chaos.mutants`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery_records.records import Records
from oncewire.client.deduplicating_core import DeduplicatingCore
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.subscriber_core import SubscriberCore
from topology.keys.epochs import epoch_of
from topology.members.history_core import SeenHistory
from topology.members.lease_clock import LeaseClock


@dataclass(frozen=True, slots=True)
class Cores:
    """What makes each pure core."""

    records: Callable[..., Records] = Records
    publisher: Callable[..., PublisherCore] = PublisherCore
    subscriber: Callable[..., SubscriberCore] = SubscriberCore
    deduplicating: Callable[..., DeduplicatingCore] = DeduplicatingCore
    lease_clock: Callable[..., LeaseClock] = LeaseClock
    history: Callable[..., SeenHistory] = SeenHistory
    epoch_of: Callable[[int, int], int] = epoch_of


SHIPPED = Cores()
