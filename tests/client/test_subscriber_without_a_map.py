"""Rule S-a for a subscriber that presents null: at-least-once (c.3)."""

from __future__ import annotations

import pytest

from oncewire.client.core_effects import DeliverMessage, DisposeDeliveries
from oncewire.client.outcomes import ACCEPTED
from oncewire.client.subscriber_core import SubscriberCore
from tests.client.core_driver import only


@pytest.mark.parametrize("recording", [False, True])
def test_without_a_map_a_delivery_in_the_applications_hands_that_comes_again_is_answered_on_the_new_link(
    recording: bool,
) -> None:
    """c.3: null was presented, so that the reply leaves it out says nothing."""
    core = SubscriberCore(exactly_once=False, prefetch=2)
    core.begin_attach(10)
    core.attached([], capable=False, incarnation=5)
    (delivery,) = only(DeliverMessage, core.transfer(3, b"t", b""))
    if recording:
        core.complete(delivery.serial, ACCEPTED)
        core.next_commit()
    for _ in range(2):
        assert core.begin_attach(10) is None
        core.attached([], capable=False, incarnation=5)
    assert only(DeliverMessage, core.transfer(7, b"t", b"")) == []
    if not recording:
        core.complete(delivery.serial, ACCEPTED)
        core.next_commit()
    assert only(DisposeDeliveries, core.committed()) == [DisposeDeliveries([7], ACCEPTED)]
    core.settled([(7, b"t")])
    assert core.unfinished == 0


@pytest.mark.parametrize("recording", [False, True])
def test_tags_of_other_routers_name_nothing_on_the_next_link(recording: bool) -> None:
    core = SubscriberCore(exactly_once=False, prefetch=2)
    core.begin_attach(10)
    core.attached([], capable=False)
    (delivery,) = only(DeliverMessage, core.transfer(3, b"t", b"one"))
    if recording:
        core.complete(delivery.serial, ACCEPTED)
        core.next_commit()
    core.begin_attach(10)
    core.attached([], capable=False)
    assert [other.payload for other in only(DeliverMessage, core.transfer(7, b"t", b"two"))] == [b"two"]
    if not recording:
        core.complete(delivery.serial, ACCEPTED)
        core.next_commit()
    assert only(DisposeDeliveries, core.committed()) == []
    assert core.unfinished == 1


def test_without_a_map_a_delivery_that_does_not_come_again_is_processed_and_forgotten() -> None:
    core = SubscriberCore(exactly_once=False, prefetch=2)
    core.begin_attach(10)
    core.attached([], capable=False)
    (delivery,) = only(DeliverMessage, core.transfer(3, b"t", b""))
    core.begin_attach(10)
    core.attached([], capable=False)
    core.complete(delivery.serial, ACCEPTED)
    core.next_commit()
    assert only(DisposeDeliveries, core.committed()) == []
    assert core.unfinished == 0
