"""A publisher that ends: what was read goes on, and is answered with its outcomes (A-9a)."""

from __future__ import annotations

from typing import Any

import pytest

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LossCause
from delivery_records.model.limits import END_WAIT_S, SUBSCRIPTION_TIMEOUT_S, Limits
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

MESSAGES = 8
CREDIT = 3
ACCEPTED, IN_DOUBT = DeliveryOutcome.ACCEPTED, DeliveryOutcome.MODIFIED_FAILED


@pytest.fixture(params=[1, 2], ids=["one router", "two routers"])
def net(request: pytest.FixtureRequest) -> Net:
    return Net(request.param)


def sent(net: Net, *, limit: int = CREDIT, **terms: Any) -> tuple[PublisherLink, SubscriberLink]:
    """A publisher that has sent eight messages, and a subscriber with credit for three."""
    s = net.subscriber(net.nodes[-1], limit=limit)
    p = PublisherLink(net, net.nodes[0])
    p.attach(exactly_once=False, **terms)
    for number in range(MESSAGES):
        p.send(b"%d" % number)
    return p, s


def got(s: SubscriberLink) -> list[bytes]:
    """Bodies that it was sent."""
    return [delivery.message for delivery in s.all(effects.Deliver)]


def take_all(s: SubscriberLink) -> None:
    """It accepts what it was sent, and takes more."""
    done = 0
    while len(s.all(effects.Deliver)) > done:
        for delivery in s.all(effects.Deliver)[done:]:
            done += 1
            s.feed(inputs.SubscriberDisposition(s.number, [delivery.tag], ACCEPTED, False))
            s.flow(CREDIT + done)


@pytest.mark.parametrize("closed", [False, True])
def test_a_detach_is_answered_behind_the_outcomes(net: Net, closed: bool) -> None:
    p, s = sent(net)
    p.detach(closed=closed)
    assert p.detached() is None
    take_all(s)
    assert got(s) == [b"%d" % number for number in range(MESSAGES)]
    assert p.outcomes == [(number + 1, ACCEPTED) for number in range(MESSAGES)]
    assert all(reported.settled for reported in p.all(effects.Dispose))
    assert p.got[-1] == effects.DetachLink(p.number, closed)
    net.advance(1.0)
    assert not net.nodes[0].core.view.publishers


@pytest.mark.parametrize("cause", [LossCause.SESSION_END, LossCause.CONNECTION_LOSS])
def test_so_is_the_end_of_its_session_or_connection(net: Net, cause: LossCause) -> None:
    p, s = sent(net)
    p.feed(inputs.LinkDetach(p.number, False, cause))
    assert p.detached() is None
    take_all(s)
    assert len(p.outcomes) == MESSAGES
    assert p.end() == effects.DetachLink(p.number, False)


@pytest.mark.parametrize("closed", [False, True])
def test_what_has_no_outcome_in_time_is_in_doubt_and_counted(net: Net, closed: bool) -> None:
    p, s = sent(net)
    first = s.all(effects.Deliver)[0]
    s.feed(inputs.SubscriberDisposition(s.number, [first.tag], ACCEPTED, False))
    p.detach(closed=closed)
    net.advance(END_WAIT_S - 0.1)
    assert p.detached() is None
    net.advance(0.2)
    assert p.outcomes == [(1, ACCEPTED)] + [(number, IN_DOUBT) for number in range(2, MESSAGES + 1)]
    assert p.got[-1] == effects.DetachLink(p.number, closed)
    node = net.nodes[0]
    assert node.count(Decision.DELIVERY_UNFINISHED) == MESSAGES - 1
    notes = [note for note in node.all(effects.Note) if note.decision is Decision.PUBLISHER_UNFINISHED]
    assert [note.fields["deliveries"] for note in notes] == [MESSAGES - 1]
    s.flow(100)
    assert len(got(s)) == CREDIT  # what was reported to the publisher as in doubt is not sent any more


def test_nothing_is_read_behind_a_detach(net: Net) -> None:
    p, s = sent(net)
    p.detach(closed=False)
    p.send(b"late")
    take_all(s)
    assert got(s) == [b"%d" % number for number in range(MESSAGES)]
    assert len(p.outcomes) == MESSAGES
    assert p.end() == effects.DetachLink(p.number, False)


def test_what_is_done_behind_it_is_accepted_then(net: Net) -> None:
    p, s = sent(net)
    last = s.all(effects.Deliver)[CREDIT - 1]
    s.feed(inputs.SubscriberDisposition(s.number, [last.tag], ACCEPTED, False))
    p.detach(closed=True)
    net.advance(END_WAIT_S)
    assert dict(p.outcomes)[CREDIT] is ACCEPTED
    assert len(p.outcomes) == MESSAGES


def test_a_lost_link_ends_nothing_that_was_read(net: Net) -> None:
    p, s = sent(net)
    p.drop()
    net.advance(END_WAIT_S)
    take_all(s)
    assert got(s) == [b"%d" % number for number in range(MESSAGES)]
    net.advance(0.1)
    assert not net.nodes[0].core.view.publishers
    assert not net.nodes[0].count(Decision.DELIVERY_UNFINISHED)


def test_it_ends_after_t_sub_in_the_log_and_in_a_counter(net: Net) -> None:
    p, s = sent(net)
    p.drop()
    net.advance(SUBSCRIPTION_TIMEOUT_S + 0.1)
    assert not net.nodes[0].core.view.publishers
    assert net.nodes[0].count(Decision.DELIVERY_UNFINISHED) == MESSAGES
    s.flow(100)
    assert len(got(s)) == CREDIT


def test_a_client_that_hangs_up_while_it_waits_loses_nothing_of_that(net: Net) -> None:
    p, s = sent(net)
    p.detach(closed=True)
    p.drop()
    net.advance(END_WAIT_S + 1.0)
    take_all(s)
    assert len(got(s)) == MESSAGES


@pytest.mark.parametrize("at_once", [False, True])
def test_an_attach_of_the_same_name_waits_for_what_was_read_before(net: Net, at_once: bool) -> None:
    p, s = sent(net)
    if at_once:
        net.turn(p.node, inputs.LinkLost(p.number, LossCause.CONNECTION_LOSS))
    else:
        p.drop()
    again = PublisherLink(net, net.nodes[0])
    again.attach(exactly_once=False)
    assert not again.answered()
    take_all(s)
    assert len(got(s)) == MESSAGES
    assert again.answered()


@pytest.mark.parametrize("terms", [{"place": inputs.LinkPlace(7, 8)}, {"timeout_s": 30.0}], ids=["session", "timeout"])
def test_an_attach_without_a_map_waits_for_what_its_kept_terminus_is_owed(terms: dict[str, Any]) -> None:
    net = Net(1)
    p, s = sent(net, **terms)
    p.detach(closed=False)
    net.advance(END_WAIT_S + 0.1)
    assert p.end() == effects.DetachLink(p.number, False)
    again = PublisherLink(net, net.nodes[0])
    again.attach(exactly_once=False, **terms)
    assert not again.answered()
    take_all(s)
    assert len(got(s)) == MESSAGES
    assert again.answered()


def test_it_waits_no_longer_than_t_end(net: Net) -> None:
    p, _ = sent(net)
    p.drop()
    again = PublisherLink(net, net.nodes[0])
    again.attach(exactly_once=False)
    net.advance(END_WAIT_S + 0.1)
    assert again.answered()


def test_a_terminus_that_its_session_keeps_is_answered_in_time_and_stays() -> None:
    net = Net(1)
    p, s = sent(net, place=inputs.LinkPlace(7, 8))
    s.feed(inputs.SubscriberDisposition(s.number, [s.all(effects.Deliver)[0].tag], ACCEPTED, False))
    p.detach(closed=False)
    net.advance(END_WAIT_S + 0.1)
    assert p.end() == effects.DetachLink(p.number, False)
    assert [(reported.delivery_ids, reported.settled) for reported in p.all(effects.Dispose)] == [([1], False)]
    take_all(s)
    assert len(got(s)) == MESSAGES
    assert net.nodes[0].core.view.publishers
    net.feed(net.nodes[0], inputs.EndpointEnded(7))
    net.advance(0.1)
    assert not net.nodes[0].core.view.publishers


def test_its_session_that_ends_while_it_waits_ends_it_for_good() -> None:
    net = Net(1)
    p, _ = sent(net, place=inputs.LinkPlace(7, 8))
    p.detach(closed=False)
    p.feed(inputs.LinkDetach(p.number, False, LossCause.SESSION_END), inputs.EndpointEnded(7))
    net.advance(END_WAIT_S + 0.1)
    assert p.outcomes == [(number, IN_DOUBT) for number in range(1, MESSAGES + 1)]
    assert p.end() == effects.DetachLink(p.number, False)
    assert not net.nodes[0].core.view.publishers


@pytest.mark.parametrize("closed", [False, True])
def test_a_publisher_that_resumes_is_suspended_as_it_is(net: Net, closed: bool) -> None:
    s = net.subscriber(net.nodes[-1], limit=CREDIT)
    p = net.publisher(net.nodes[0])
    for number in range(MESSAGES):
        p.send(b"%d" % number)
    p.detach(closed=closed)
    assert p.end() == effects.DetachLink(p.number, closed)
    assert not p.outcomes
    assert len(got(s)) == CREDIT


def test_so_is_one_that_has_presented_a_map_or_asked_for_time() -> None:
    ways: list[dict[str, Any]] = [{"unsettled": {}}, {"timeout_s": 30.0}]
    for terms in ways:
        net = Net(1)
        p, s = sent(net, **terms)
        p.detach(closed=False)
        assert p.end() == effects.DetachLink(p.number, False)
        assert net.nodes[0].core.view.publishers
        take_all(s)
        assert len(got(s)) == MESSAGES


def test_what_it_was_reported_before_is_not_waited_for() -> None:
    net = Net(1)
    p, s = sent(net, limit=100)
    take_all(s)
    assert len(p.outcomes) == MESSAGES
    p.detach(closed=False)  # unsettled, for its client does not settle any more
    assert p.end() == effects.DetachLink(p.number, False)


def test_a_subscription_that_ends_is_waited_for_no_longer(net: Net) -> None:
    p, s = sent(net)
    p.detach(closed=False)
    s.detach(closed=True)
    net.run()
    assert [outcome for _, outcome in p.outcomes] == [DeliveryOutcome.RELEASED] * MESSAGES
    assert p.end() == effects.DetachLink(p.number, False)


def test_the_time_is_a_setting() -> None:
    net = Net(1, limits=Limits(end_wait_s=1.0))
    p, _ = sent(net)
    p.detach(closed=False)
    net.advance(1.1)
    assert p.end() == effects.DetachLink(p.number, False)


def test_presettled_messages_are_waited_for_by_nobody() -> None:
    net = Net(1)
    s = SubscriberLink(net, net.nodes[0])
    s.attach(mode=SubscriptionMode.AT_MOST_ONCE)
    net.advance(0.05)
    s.flow(100)
    p = net.stock_publisher(net.nodes[0])
    p.send(b"1", settled=True)
    p.detach(closed=False)
    assert p.end() == effects.DetachLink(p.number, False)
    assert got(s) == [b"1"]
