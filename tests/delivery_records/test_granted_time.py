"""A policy keeps a terminus for less time than its client asks for, and the replies state it (K-5c)."""

from __future__ import annotations

import pytest

from delivery_records.model import effects
from delivery_records.model.inputs import NOBODY, Owner
from tests.delivery_records.harness import Net

BRIEF = Owner(longest_s=20.0)


@pytest.mark.parametrize("policy", ["never", "link-detach"])
def test_a_subscription_ends_after_the_time_that_its_policy_grants(policy: str) -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], policy=policy, timeout_s=3600.0, owner=BRIEF)
    assert subscriber.last(effects.SubscriberReply).timeout_s == 20.0
    subscriber.drop()
    net.advance(19.9)
    assert net.has_subscription()
    net.advance(0.2)
    assert not net.has_subscription()


@pytest.mark.parametrize(("policy", "asked"), [("never", None), ("link-detach", None), ("link-detach", 3600.0)])
def test_a_session_ends_after_the_time_that_its_policy_grants(policy: str, asked: float | None) -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    publisher.drop()
    publisher.attach(unsettled={}, exactly_once=True, timeout_s=asked, expiry_policy=policy, owner=BRIEF)
    assert publisher.last(effects.PublisherReply).timeout_s == 20.0
    publisher.echo()
    publisher.drop()
    net.advance(19.9)
    assert net.has_publisher()
    net.advance(0.2)
    assert not net.has_publisher()


def test_less_than_the_policy_grants_is_given_as_asked() -> None:
    net = Net()
    subscriber = net.subscriber(net.nodes[0], timeout_s=5.0, owner=BRIEF)
    assert subscriber.last(effects.SubscriberReply).timeout_s == 5.0


def test_a_tightened_policy_holds_from_the_proof_of_life_of_the_next_attach_on() -> None:
    net = Net()
    net.subscriber(net.nodes[0], timeout_s=50.0, owner=NOBODY).drop()
    net.advance(30.0)
    assert net.has_subscription(), "what was stated holds"
    again = net.subscriber(net.nodes[0], timeout_s=50.0, owner=BRIEF)
    assert again.last(effects.SubscriberReply).timeout_s == 50.0
    assert again.last(effects.Confirm).timeout_s == 20.0
    again.drop()
    net.advance(20.1)
    assert not net.has_subscription()
