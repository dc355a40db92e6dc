"""E-8, I-8: a link that is closed while a put of its own is under way is closed, not stolen by itself."""

from __future__ import annotations

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import StoreFailure
from delivery_records.model.limits import UNKNOWN_PUT_S
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import Link, PublisherLink, SubscriberLink
from tests.delivery_records.nodes import StoreFault

ROLES = ["subscriber", "publisher"]


def attached(net: Net, role: str, at: int = 0) -> PublisherLink | SubscriberLink:
    """It is asked for a sign of life."""
    if role == "publisher":
        publisher = PublisherLink(net, net.nodes[at])
        publisher.attach(unsettled={})
        return publisher
    subscriber = SubscriberLink(net, net.nodes[at])
    subscriber.attach(unsettled={}, exactly_once=True, mode=SubscriptionMode.EXACTLY_ONCE, timeout_s=3600.0)
    return subscriber


def close_behind_the_answer(link: Link) -> None:
    """The answer to the echo makes the router write (A-10, A-4); the close comes in the same read."""
    answer = inputs.ClientFlow(link.number, echoed_epoch=link.last(effects.AskEcho).epoch)
    link.feed(answer, inputs.LinkDetach(link.number, True))


@pytest.mark.parametrize("role", ROLES)
def test_a_close_behind_the_answer_to_the_echo_is_carried_out(role: str) -> None:
    net = Net()
    link = attached(net, role)
    close_behind_the_answer(link)
    assert link.end() == effects.DetachLink(link.number, True)
    assert not net.has_subscription()
    assert not net.has_publisher()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "fault",
    [
        StoreFault(StoreFailure.UNAVAILABLE),
        StoreFault(StoreFailure.UNKNOWN),
        StoreFault(StoreFailure.UNKNOWN, is_applied=True),
    ],
)
def test_a_close_behind_a_put_that_fails_is_answered(role: str, fault: StoreFault) -> None:
    """K-2a: with the end of the connection, if it is not known that the link is closed."""
    net = Net()
    link = attached(net, role)
    net.nodes[0].faults.append(fault)
    close_behind_the_answer(link)
    net.advance(UNKNOWN_PUT_S)
    assert link.is_refused_by_store() or link.end() == effects.DetachLink(link.number, True)
    assert link.number not in net.nodes[0].core.links


@pytest.mark.parametrize("role", ROLES)
def test_a_close_behind_a_put_that_another_attach_has_overtaken_is_answered_as_stolen(role: str) -> None:
    net = Net(2)
    link = attached(net, role)
    net.nodes[0].is_watch_held = True
    attached(net, role, at=1)
    close_behind_the_answer(link)
    net.nodes[0].is_watch_held = False
    net.run()
    assert (link.end().closed, link.end().condition) == (True, "amqp:link:stolen")
    assert net.has_subscription() or net.has_publisher()
