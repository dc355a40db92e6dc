"""Which kind of client each publisher and subscriber of a world is."""

from __future__ import annotations

from typing import TypeAlias

from chaos.simulator.at_most_once import PresettledPublisher, SettledSubscriber
from chaos.simulator.publishers import Publisher
from chaos.simulator.shipped_publisher import ShippedPublisher
from chaos.simulator.shipped_subscriber import ShippedSubscriber
from chaos.simulator.stock_clients import ResumingPublisher, StockPublisher, StockSubscriber
from chaos.simulator.subscribers import Subscriber
from chaos.simulator.traits import Traits

AnyPublisher: TypeAlias = Publisher | ShippedPublisher
AnySubscriber: TypeAlias = Subscriber | ShippedSubscriber


def publisher_kind(traits: Traits, is_last: bool) -> type[Publisher] | type[ShippedPublisher]:
    """The last one may be of a weaker kind."""
    if traits.presettled_publisher and is_last:
        return PresettledPublisher
    if traits.resuming_publisher and is_last:
        return ResumingPublisher
    if traits.stock_publisher and is_last:
        return StockPublisher
    return ShippedPublisher if traits.shipped else Publisher


def subscriber_kind(traits: Traits, is_last: bool) -> type[Subscriber] | type[ShippedSubscriber]:
    """The last one may be of a weaker kind."""
    if traits.settled_subscriber and is_last:
        return SettledSubscriber
    if traits.stock_subscriber and is_last:
        return StockSubscriber
    return ShippedSubscriber if traits.shipped else Subscriber
