"""What every egress of a router works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.failures import PastFailures
from delivery_records.model.groups import ReadGroup
from delivery_records.model.inputs import LossCause, SubscriberAttach
from delivery_records.model.messages import ToIngress
from delivery_records.model.proposals import Proposals
from delivery_records.subscriber.entries import SyncState
from delivery_records.subscriber.filters import MessageFilters
from delivery_records.subscriber.outgoing import Outgoing

E = TypeVar("E", bound=Endpoint)
"""The egress, which is made of these."""


@dataclass(slots=True)
class EgressParts(Generic[E]):
    """What every egress of a router works with."""

    proposals: Proposals
    failures: PastFailures
    synced: dict[int, dict[str, E]]
    synced_members: dict[int, dict[str, E]]
    """Members of shared subscriptions apart: they get only what names them (SH-2)."""
    synced_letters: dict[int, dict[str, E]]
    """Dead-letter subscriptions apart (I-3e)."""
    former_epochs: dict[int, str]
    """Epochs that links here had before their keys were put again, by which ingresses may still name them (A-10)."""
    dirty: list[Outgoing]
    """Those with settlements to send at the end of this turn."""
    dirty_syncs: list[SyncState]
    """Streams with acknowledgements to send at the end of this turn."""
    answer: Callable[[SyncState, ToIngress], None]
    """Notify the ingress of this stream."""
    suspend: Callable[[Endpoint, LossCause], None]
    filters: MessageFilters
    read_group: ReadGroup
    on_answered: Callable[[SubscriberAttach], None]
