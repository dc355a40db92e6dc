"""Messages expire where their topic's policy says so: before they are sent to a subscription, never after (E-10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delivery_records.channels import codec, frame_header
from delivery_records.diagnostics.lookup import find
from delivery_records.model import effects, inputs
from delivery_records.model.limits import Limits, TopicPolicy
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import Ack, ExpiringMsg, Msg, MsgPart
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from delivery_records.model.tags import link_key
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Choice
from delivery_records.model.view import SubscriptionMode
from delivery_records.subscriber.filters import CompiledFilter
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink

TEN = Limits(policy=TopicPolicy(ttl_s=10.0))
REPORTED = Limits(policy=TopicPolicy(ttl_s=10.0, report_rejections=True))
SHARE = inputs.Share("work", is_global=True)
ACCEPTED = DeliveryOutcome.ACCEPTED


def own_ttl(message: bytes, message_format: int) -> int | None:
    """Of a message that says so in its body: `ttl=3000`."""
    return int(message[4:]) if message.startswith(b"ttl=") else None


def expired(net: Net) -> int:
    return sum(node.count(Decision.EXPIRED) for node in net.nodes)


def states(subscriber: SubscriberLink) -> list[str]:
    egress = next(each for each in subscriber.node.core.egresses.values() if each.link == subscriber.number)
    return [entry.state.shown for entries in egress.sessions.values() for entry in entries.values()]


@pytest.mark.parametrize("routers", [1, 2])
def test_what_waits_for_credit_expires_when_its_time_is_over_and_not_before(routers: int) -> None:
    net = Net(routers, limits=TEN)
    subscriber, publisher = net.subscriber(net.nodes[-1], limit=1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    net.advance(9.9)
    assert (expired(net), states(subscriber)) == (0, ["sent", "held"])
    net.advance(0.2)
    assert (expired(net), states(subscriber)) == (1, ["sent", "expired"])
    subscriber.flow(1000)
    assert subscriber.deliveries == [b"1"]  # which it was sent in time, and may take as long as it wants
    subscriber.accept(b"1")
    assert publisher.outcomes == [(1, ACCEPTED), (2, ACCEPTED)]
    publisher.settle(b"1", b"2")
    assert subscriber.settled == [b"1"]
    assert states(subscriber) == []


def test_without_a_policy_nothing_expires_whatever_a_message_says() -> None:
    net = Net(message_format=MessageFormat(read_ttl=own_ttl))
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    publisher.send(b"1", b"ttl=1000")
    net.advance(86_000.0)
    subscriber.flow(1)
    assert subscriber.deliveries == [b"1"]
    assert not net.nodes[0].core.timers.is_set(Timer.HELD_EXPIRY, subscriber_key(net))


def subscriber_key(net: Net) -> str:
    return next(iter(net.nodes[0].core.egresses))


def test_the_own_time_of_a_message_counts_where_it_is_shorter() -> None:
    net = Net(limits=TEN, message_format=MessageFormat(read_ttl=own_ttl))
    net.subscriber(net.nodes[0], limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"longer", b"ttl=60000")
    publisher.send(b"shorter", b"ttl=3000")
    publisher.send(b"none", b"ttl=0")
    net.advance(3.1)
    assert expired(net) == 1
    net.advance(6.8)
    assert expired(net) == 1
    net.advance(0.2)
    assert expired(net) == 3


def test_what_expires_behind_a_held_delivery_does_not_make_the_next_sync_skip_that() -> None:
    net = Net(3, limits=TEN, message_format=MessageFormat(read_ttl=own_ttl))
    subscriber = net.subscriber(net.nodes[0], limit=0)
    first = net.publisher(net.nodes[1])
    first.send(b"1")
    first.send(b"2", b"ttl=1000")
    net.advance(2.0)
    assert states(subscriber) == ["held", "expired"]
    net.kill(net.nodes[1])
    moved = net.publisher(net.nodes[2], unsettled={b"1": None, b"2": None})
    moved.send(b"1")
    moved.send(b"2")
    assert moved.outcomes == []
    subscriber.flow(10)
    assert subscriber.deliveries == [b"1"]  # 2 stays expired: S's router knows that it was acknowledged so
    subscriber.accept(b"1")
    assert len(moved.accepted) == 2


def test_what_the_subscriber_has_never_expires_however_late_it_is_repeated() -> None:
    net = Net(2, limits=TEN)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[1])
    publisher.send(b"1")
    publisher.send(b"2")
    tag = first.network_tag(b"1")
    first.drop()
    net.advance(20.0)
    assert expired(net) == 0  # while it is away
    second = net.subscriber(net.nodes[0], unsettled={tag: None})
    assert [(d.tag[11:], d.resume) for d in second.all(effects.Deliver)] == [(b"1", True)]
    assert expired(net) == 1  # 2, which its map does not have
    assert publisher.outcomes == []
    second.accept(b"1")
    assert len(publisher.accepted) == 2


def test_what_the_subscriber_wants_again_does_not_expire_meanwhile() -> None:
    net = Net(limits=TEN)
    subscriber, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.answer(DeliveryOutcome.MODIFIED_FAILED, b"1", delay_ms=30_000)
    net.advance(31.0)
    assert (subscriber.deliveries, expired(net)) == ([b"1", b"1"], 0)


def test_an_incomplete_map_lets_nothing_expire() -> None:
    net = Net(limits=TEN)
    first, publisher = net.subscriber(net.nodes[0]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    tag = first.network_tag(b"1")
    first.drop()
    net.advance(20.0)
    net.subscriber(net.nodes[0], unsettled={tag: None}, incomplete=True)
    assert expired(net) == 0  # 2 may be in the other part


def test_a_filter_comes_before_the_end_of_a_message() -> None:
    net = Net(limits=TEN, filters=_Nothing())
    net.subscriber(net.nodes[0], filter_text="none", limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    assert (len(publisher.accepted), expired(net)) == (1, 0)
    assert net.nodes[0].count(Decision.FILTERED) == 1


class _Nothing:
    """A filter that excludes everything."""

    def compile(self, text: str) -> CompiledFilter:
        return CompiledFilter(False, lambda opened: False)

    def open(self, message: bytes, message_format: int) -> object:
        return message


def test_a_publisher_that_wants_to_know_is_reported_for_whom_its_message_expired() -> None:
    net = Net(limits=REPORTED)
    net.subscriber(net.nodes[0], "slow", limit=0)
    fast = net.subscriber(net.nodes[0], "fast")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    fast.answer(DeliveryOutcome.REJECTED, b"1")
    net.advance(10.1)
    reported = publisher.last(effects.Dispose)
    assert reported.outcome is DeliveryOutcome.REJECTED
    assert reported.description == "rejected by 1 and expired for 1 of its subscriptions"
    assert reported.info == {"subscriptions": ["fast/link"], "count": 1, "expired": ["slow/link"], "expired-count": 1}


def test_who_processed_a_message_does_not_name_those_for_whom_it_expired() -> None:
    net = Net(limits=TEN)
    net.subscriber(net.nodes[0], "slow", limit=0)
    fast = net.subscriber(net.nodes[0], "fast")
    link = PublisherLink(net, net.nodes[0])
    link.attach(unsettled={}, require=1)
    link.echo()
    link.send(b"1")
    fast.accept(b"1")
    net.advance(10.1)
    reported = link.last(effects.NotifyAcceptedBy)
    assert (reported.names, reported.count) == (("fast/link",), 1)
    assert len(link.accepted) == 1


def test_where_it_expired_for_all_its_outcome_is_not_that_of_a_topic_without_subscriptions() -> None:
    net = Net(limits=TEN)
    net.subscriber(net.nodes[0], limit=0)
    publisher = net.stock_publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(10.1)
    assert publisher.outcomes == [(1, ACCEPTED)]


@pytest.mark.parametrize("routers", [1, 2])
def test_what_came_settled_is_dropped_when_its_time_is_over(routers: int) -> None:
    net = Net(routers, limits=TEN)
    subscriber, publisher = net.subscriber(net.nodes[-1], limit=1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    blocked = net.subscriber(net.nodes[-1], "drained", limit=2, map_bound=1)
    publisher.send(b"2")
    publisher.send(b"3", settled=True)
    net.advance(10.1)
    subscriber.flow(10)
    blocked.flow(10)
    assert b"3" not in subscriber.deliveries
    assert states(subscriber) == ["sent", "expired"]


def test_an_at_most_once_subscriber_is_not_sent_what_is_too_old() -> None:
    net = Net(limits=TEN)
    subscriber = net.subscriber(net.nodes[0], mode=SubscriptionMode.AT_MOST_ONCE, limit=0)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(10.1)
    subscriber.flow(10)
    assert (subscriber.deliveries, expired(net)) == ([], 1)


def test_a_drain_is_answered_when_what_it_waited_for_has_expired() -> None:
    net = Net(limits=TEN)
    subscriber, publisher = net.subscriber(net.nodes[0], limit=1, map_bound=1), net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.send(b"2")
    assert states(subscriber) == ["sent", "held"]  # the map has no room
    subscriber.flow(1, drain=True)
    net.advance(10.1)
    assert (expired(net), states(subscriber)) == (1, ["sent", "expired"])
    assert len(subscriber.all(effects.CompleteDrain)) == 1


# ---------------------------------------------------------------------- shared subscriptions


def test_what_no_member_takes_in_time_expires_at_the_ingress() -> None:
    net = Net(2, limits=TEN)
    one = net.subscriber(net.nodes[0], "m1", share=SHARE, limit=1)
    publisher = net.publisher(net.nodes[1])
    publisher.send(b"1")
    publisher.send(b"2")
    net.advance(10.1)
    assert expired(net) == 1
    one.flow(10)
    assert one.deliveries == [b"1"]
    one.accept(b"1")
    assert len(publisher.accepted) == 2


def test_what_waits_for_its_publisher_alone_is_not_looked_at_again_and_again() -> None:
    net = Net(limits=TEN)
    member, publisher = net.subscriber(net.nodes[0], "m1", share=SHARE), net.publisher(net.nodes[0])
    publisher.send(b"1")
    member.accept(b"1")
    publisher.drop()
    net.advance(15.0)
    assert not net.nodes[0].core.timers.is_set(Timer.SHARE_EXPIRY, link_key("p", "link"))


def test_what_a_member_returned_expires_too_and_what_it_has_had_does_not() -> None:
    net = Net(2, limits=TEN)
    one = net.subscriber(net.nodes[0], "m1", share=SHARE, limit=1)
    publishers = [net.publisher(net.nodes[1], name) for name in ("p", "q")]
    for publisher in publishers:  # both know of the same credit: the second one's delivery comes back
        publisher.send(b"1")
    net.advance(11.2)
    assert expired(net) == 1
    one.drop()
    net.delete_subscription("m1")
    two = net.subscriber(net.nodes[0], "m2", share=SHARE)
    assert two.deliveries == [b"1"]  # what m1 may have processed is not left out
    assert expired(net) == 1


def test_deliveries_of_a_group_do_not_expire() -> None:
    net = Net(limits=TEN, message_format=MessageFormat(read_group=lambda message, _format: message[:1]))
    grouped = replace(SHARE, by_group=True)
    member = net.subscriber(net.nodes[0], "m1", share=grouped, limit=1)
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1", b"a1")
    publisher.send(b"2", b"a2")
    net.advance(30.0)
    member.flow(10)
    assert (member.deliveries, expired(net)) == ([b"1", b"2"], 0)


# ---------------------------------------------------------------------- between routers


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_waits_for_credit_of_the_channel_loses_that_time(size: int) -> None:
    net = Net(2, limits=TEN)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    net.held.add((1, 0))  # no credit comes back
    lefts: list[int] = []

    def seen(frame: inputs.RouterFrame | inputs.RouterDatagram) -> bool:
        message = frame.message.head if isinstance(frame.message, MsgPart) else frame.message
        lefts.extend([message.ttl_ms] if isinstance(message, ExpiringMsg) else [])
        return False

    net.lost = seen
    for number in range(45):
        publisher.send(b"%d" % number, bytes(100_000))
    publisher.send(b"last", bytes(size))
    before = len(lefts)
    net.advance(0.3)
    net.held.clear()
    net.run()
    assert set(lefts[:before]) == {10_000}
    assert max(lefts[before:]) <= 9_701


def test_the_codec_carries_what_is_left_and_the_outcome() -> None:
    for to in (None, (7, 9)):
        message = ExpiringMsg(Msg(5, 3, b"tag", b"body", to, True, attempt=2, after=4), 1234)
        frame = codec.encode_frame(1, ((2, 1, 1),), message)
        read = codec.decode_message(frame, frame_header.read_header(frame))
        assert isinstance(read, ExpiringMsg)
        assert (read.ttl_ms, read.message, read.tag, read.to, read.attempt) == (1234, b"body", b"tag", to, 2)
    ack = Ack(5, 7, DeliveryOutcome.EXPIRED, ((0, 3),))
    frame = codec.encode_frame(1, ((2, 1, 1),), ack)
    assert codec.decode_message(frame, frame_header.read_header(frame)) == ack


def test_an_operator_sees_what_expired_in_the_log_and_in_the_trace() -> None:
    net = Net(limits=TEN)
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    core = net.nodes[0].core
    core.trace.start(Choice(), net.now)
    for number in range(40):
        publisher.send(b"%d" % number)
    net.advance(10.1)
    notes = [note for note in net.nodes[0].all(effects.Note) if note.decision is Decision.EXPIRED]
    assert [(note.fields["deliveries"], note.fields["subscription"]) for note in notes] == [(40, "s/link")]
    assert len(notes[0].fields["tags"]) == 32  # type: ignore[arg-type]  # a list
    assert any(step.rule == "E-10" for step in core.trace.steps_of(b"0"))
    found = find(core.turn, core.endpoints, b"0")
    assert [(at.name, at.state, at.detail) for each in found for at in each.local] == [("s/link", "expired", "expired")]
    assert subscriber.deliveries == []


def test_deadlines_of_what_was_sent_in_time_do_not_pile_up() -> None:
    net = Net(limits=Limits(policy=TopicPolicy(ttl_s=86_400.0)))
    subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
    for number in range(2000):
        tag = b"%d" % number
        publisher.send(tag)
        subscriber.flow(number + 1)
        subscriber.accept(tag)
        publisher.settle(tag)
    egress = next(iter(net.nodes[0].core.egresses.values()))
    assert len(egress.expiry._heap) < 200
    assert not next(iter(net.nodes[0].core.ingresses.values())).fanout.expiries


def test_whom_it_expired_for_is_forgotten_with_the_delivery_also_where_the_policy_is_gone() -> None:
    net = Net(2, limits=TEN)
    net.subscriber(net.nodes[1], limit=0)
    waiting, first = net.subscriber(net.nodes[1], "waits"), net.publisher(net.nodes[0])
    first.send(b"1")
    net.advance(10.1)
    assert expired(net) == 1
    first.drop()
    net.feed(net.nodes[0], inputs.PoliciesChanged(lambda _topic: TopicPolicy()))
    again = net.publisher(net.nodes[0], unsettled={b"1": None})
    again.send(b"1")
    waiting.accept(b"1")
    (ingress,) = net.nodes[0].core.ingresses.values()
    assert ingress.outcomes.expired_by
    again.settle(b"1")
    assert not ingress.outcomes.expired_by
