"""Maps that do not fit a frame: reduced by rounds, refused when rounds bring nothing (rule C-4)."""

from __future__ import annotations

from delivery_records.model import effects
from delivery_records.model.limits import REDUCTION_QUIET_S
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

TAGS = [b"1", b"2", b"3", b"4"]


def _amassed(net: Net) -> tuple[dict[bytes, bytes], PublisherLink]:
    """Network tags of four deliveries that a subscriber accepted and nobody settled; the subscriber is away."""
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for tag in TAGS:
        publisher.send(tag)
    first.accept(*TAGS)
    tags = {tag: first.network_tag(tag) for tag in TAGS}
    first.drop()
    return tags, publisher


def _part(
    net: Net, tags: dict[bytes, bytes], *names: bytes, outcome: DeliveryOutcome | None = DeliveryOutcome.ACCEPTED
) -> SubscriberLink:
    """Attach with a part of the map."""
    return net.subscriber(net.nodes[0], unsettled={tags[name]: outcome for name in names}, incomplete=True)


def test_a_part_of_a_map_is_answered_with_what_is_unsettled_of_it_and_nothing_new() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = _part(net, tags, b"1", b"2")
    reply = part.last(effects.SubscriberReply)
    assert reply.incomplete
    assert reply.kept == [tags[b"1"], tags[b"2"]]
    publisher.send(b"5")
    assert part.deliveries == []


def test_presettled_deliveries_do_not_reach_an_incomplete_map_either() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = _part(net, tags, b"1")
    publisher.send(b"5", settled=True)
    assert part.deliveries == []


def test_what_is_not_in_the_presented_part_is_not_taken_for_older_than_the_subscription() -> None:
    net = Net(2)
    first = net.subscriber(net.nodes[0])
    publisher = net.publisher(net.nodes[1])
    for tag in TAGS:
        publisher.send(tag)
    tags = {tag: first.network_tag(tag) for tag in TAGS}
    first.drop()
    part = _part(net, tags, b"3", outcome=None)
    assert publisher.accepted == []
    part.drop()
    whole = net.subscriber(net.nodes[0], unsettled=dict.fromkeys(tags.values()))
    assert whole.deliveries == TAGS
    whole.accept(*TAGS)
    assert len(publisher.accepted) == 4


def _arrived(net: Net) -> tuple[dict[bytes, bytes], PublisherLink]:
    """Network tags of four deliveries that a subscriber has and said nothing of; it is away."""
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    for tag in TAGS:
        publisher.send(tag)
    tags = {tag: first.network_tag(tag) for tag in TAGS}
    first.drop()
    return tags, publisher


def test_a_map_without_outcomes_is_resumed_part_by_part_until_it_fits() -> None:
    net = Net()
    tags, publisher = _arrived(net)
    for reported, one, other in ((2, b"1", b"2"), (4, b"3", b"4")):
        part = _part(net, tags, one, other, outcome=None)
        assert [(d.tag, d.resume, d.settled) for d in part.all(effects.Deliver)] == [
            (tags[one], True, False),
            (tags[other], True, False),
        ]
        part.accept(one, other)
        assert len(publisher.accepted) == reported
        publisher.settle(one, other)
        assert part.settled == [one, other]
        net.advance(0)
        assert (part.end().closed, part.end().condition) == (False, "")
    publisher.send(b"5")
    whole = net.subscriber(net.nodes[0], unsettled={})
    assert whole.deliveries == [b"5"]


def test_a_part_is_not_taken_back_while_the_subscriber_works_on_it() -> None:
    net = Net()
    tags, publisher = _arrived(net)
    part = _part(net, tags, b"1", outcome=None)
    net.advance(20 * REDUCTION_QUIET_S)
    assert part.detached() is None
    part.accept(b"1")
    net.advance(0.9 * REDUCTION_QUIET_S)
    assert part.detached() is None
    net.advance(0.2 * REDUCTION_QUIET_S)
    assert part.detached() is not None
    assert len(publisher.accepted) == 1


def test_rounds_in_which_the_subscriber_answers_are_not_refused() -> None:
    net = Net()
    tags, _ = _arrived(net)
    for tag in TAGS:
        part = _part(net, tags, tag, outcome=None)
        part.accept(tag)
        net.advance(2 * REDUCTION_QUIET_S)
        assert not part.end().closed


def test_what_is_wanted_again_is_not_sent_as_new_on_the_same_link() -> None:
    net = Net()
    tags, _ = _arrived(net)
    part = _part(net, tags, b"1", b"2", outcome=None)
    part.answer(DeliveryOutcome.RELEASED, b"1")
    net.advance(0)
    assert [delivery.tag for delivery in part.all(effects.Deliver)] == [tags[b"1"], tags[b"2"]]


def test_settled_entries_are_resumed_and_the_link_is_suspended_when_no_more_are_settled() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = _part(net, tags, b"1", b"2", b"3")
    publisher.settle(b"1")
    assert part.settled == [b"1"]
    net.advance(0.9 * REDUCTION_QUIET_S)
    publisher.settle(b"2")
    assert part.settled == [b"1", b"2"]
    net.advance(0.9 * REDUCTION_QUIET_S)
    assert part.detached() is None
    net.advance(0.2 * REDUCTION_QUIET_S)
    assert (part.end().closed, part.end().condition) == (False, "")
    assert net.has_subscription()


def test_a_part_of_which_nothing_is_left_makes_way_for_the_next_at_once() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = _part(net, tags, b"1", b"2")
    publisher.settle(b"1", b"2")
    net.advance(0)
    assert part.settled == [b"1", b"2"]
    assert (part.end().closed, part.end().condition) == (False, "")


def test_what_is_settled_without_credit_is_resumed_when_there_is_some() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = net.subscriber(net.nodes[0], unsettled={tags[b"1"]: DeliveryOutcome.ACCEPTED}, incomplete=True, limit=0)
    publisher.settle(b"1")
    net.advance(0.5 * REDUCTION_QUIET_S)
    assert (part.settled, part.detached()) == ([], None)
    part.flow(1)
    net.advance(0)
    assert part.settled == [b"1"]
    assert not part.end().closed


def test_the_subscription_stays_owed_between_the_rounds() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    _part(net, tags, b"1")
    net.advance(2 * REDUCTION_QUIET_S)
    had = len(publisher.accepted)
    publisher.send(b"5")
    assert len(publisher.accepted) == had


def test_two_rounds_without_progress_are_refused() -> None:
    net = Net()
    tags, _ = _amassed(net)
    for _ in range(2):
        part = _part(net, tags, b"1")
        net.advance(2 * REDUCTION_QUIET_S)
        assert not part.end().closed
    refused = _part(net, tags, b"1")
    assert (refused.end().condition, refused.end().closed) == ("amqp:resource-limit-exceeded", True)
    assert net.has_subscription()


def test_a_round_with_progress_is_not_counted() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    for tag in TAGS:
        part = _part(net, tags, tag)
        publisher.settle(tag)
        net.advance(2 * REDUCTION_QUIET_S)
        assert part.settled == [tag]
        idle = _part(net, tags, TAGS[-1])
        net.advance(2 * REDUCTION_QUIET_S)
        assert idle.end().condition == ""


def test_entries_left_out_of_the_reply_are_progress_too() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    publisher.settle(*TAGS)
    for tag in TAGS:
        part = _part(net, tags, tag)
        assert part.last(effects.SubscriberReply).kept == [tags[tag]]
        net.advance(2 * REDUCTION_QUIET_S)
        assert part.end().condition == ""


def test_entries_of_a_session_that_has_ended_are_left_out_and_count_as_progress() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    publisher.detach(closed=True)
    for tag in TAGS:
        part = _part(net, tags, tag)
        assert part.last(effects.SubscriberReply).kept == []
        net.advance(2 * REDUCTION_QUIET_S)
        assert part.end().condition == ""


def test_a_client_that_was_refused_may_try_again_when_its_publishers_are_back() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    for _ in range(2):
        _part(net, tags, b"1")
        net.advance(2 * REDUCTION_QUIET_S)
    assert _part(net, tags, b"1").end().condition == "amqp:resource-limit-exceeded"
    part = _part(net, tags, b"1")
    publisher.settle(b"1")
    assert part.settled == [b"1"]


def test_an_incomplete_map_of_a_publisher_is_refused_before_anything_is_written() -> None:
    net = Net()
    publisher = PublisherLink(net, net.nodes[0])
    revision = net.etcd.revision
    publisher.attach(unsettled={b"1": None}, incomplete=True)
    assert (publisher.end().condition, publisher.end().closed) == ("amqp:resource-limit-exceeded", True)
    assert net.etcd.revision == revision


def test_a_part_without_capability_is_reduced_the_same_way() -> None:
    net = Net()
    tags, publisher = _amassed(net)
    part = net.subscriber(
        net.nodes[0],
        unsettled={tags[b"1"]: DeliveryOutcome.ACCEPTED},
        incomplete=True,
        mode=SubscriptionMode.AT_LEAST_ONCE,
    )
    publisher.settle(b"1")
    assert part.settled == [b"1"]
