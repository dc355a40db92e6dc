"""What follows the watch, and what new ingresses and egresses are made of."""

from __future__ import annotations

from dataclasses import dataclass

from delivery_records.attachments.attaching import Attaching
from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.ending import OrderedEnds
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.expiry import Expiry
from delivery_records.attachments.steals import StealGuard
from delivery_records.channels.routing import FrameRouting
from delivery_records.model.proposals import Proposals
from delivery_records.model.turn import Turn
from delivery_records.publisher.ingress import IngressParts
from delivery_records.publisher.to_ingresses import ToIngresses
from delivery_records.subscriber.egress import EgressParts


@dataclass(frozen=True, slots=True)
class WatchParts:
    """The parts of one router's records that a change of a key reaches."""

    turn: Turn
    endpoints: Endpoints
    ingress: IngressParts
    egress: EgressParts
    attaching: Attaching
    barrier: AttachBarrier
    expiry: Expiry
    orders: OrderedEnds
    steals: StealGuard
    routing: FrameRouting
    to_ingresses: ToIngresses

    @property
    def proposals(self) -> Proposals:
        """What is written to etcd."""
        return self.ingress.proposals
