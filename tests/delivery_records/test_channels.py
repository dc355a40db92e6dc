"""Channels between routers: FIFO or restarted, byte credit, pieces, probes (rules T-1, T-2, T-4 to T-9)."""

from __future__ import annotations

import random

import pytest

from delivery_records.channels.channel import ChannelState
from delivery_records.model import effects, inputs
from delivery_records.model.limits import CHANNEL_CREDIT_BYTES, HELLO_RETRY_CAP_S, MESSAGE_CHUNK_BYTES, Limits
from delivery_records.model.messages import Credit, Hello, Msg, MsgPart, Settle, Sync
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink, SubscriberLink
from tests.delivery_records.nodes import Node

MIB = 1024 * 1024


def _pair(**changes: object) -> tuple[Net, SubscriberLink, PublisherLink]:
    """A publisher at router 0, a subscriber at router 1."""
    net = Net(2, **changes)  # type: ignore[arg-type]
    return net, net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])


def _sent(node: Node, kind: type) -> list[effects.SendToRouters]:
    return [sent for sent in node.all(effects.SendToRouters) if isinstance(sent.message, kind)]


def _drop_nth(net: Net, numbers: set[int]) -> None:
    """Lose the n-th sequenced frames from now on."""
    count = 0

    def is_lost(frame: inputs.RouterFrame | inputs.RouterDatagram) -> bool:
        nonlocal count
        if isinstance(frame, inputs.RouterFrame):
            count += 1
            return count in numbers
        return False

    net.lost = is_lost


def _generation(net: Net) -> set[int]:
    return {channel.generation for node in net.nodes for channel in node.core.channels.existing()}


def test_a_frame_that_comes_twice_is_taken_once() -> None:
    net, subscriber, publisher = _pair()
    publisher.send(b"1")
    sent = _sent(net.nodes[0], Msg)[-1]
    ((_, generation, sequence),) = sent.targets
    net.feed(net.nodes[1], inputs.RouterFrame(net.nodes[0].rid, generation, sequence, sent.message))
    publisher.send(b"2")
    assert subscriber.deliveries == [b"1", b"2"]


def test_frames_of_an_older_generation_are_dropped() -> None:
    net, subscriber, publisher = _pair()
    net.held = {(0, 1)}
    publisher.send(b"1")
    old = list(net.frames[(net.nodes[0].rid, net.nodes[1].rid)])
    net.frames[(net.nodes[0].rid, net.nodes[1].rid)].clear()
    net.held = set()
    net.advance(1.0)
    assert subscriber.deliveries == [b"1"]
    net.feed(net.nodes[1], *old)
    assert subscriber.deliveries == [b"1"]
    publisher.send(b"2")
    assert subscriber.deliveries == [b"1", b"2"]


def test_restarts_that_cross_end_in_one_generation() -> None:
    net = Net(2)
    near, far = net.subscriber(net.nodes[0], "near"), net.subscriber(net.nodes[1], "far")
    here, there = net.publisher(net.nodes[0], "here"), net.publisher(net.nodes[1], "there")
    net.held = {(0, 1), (1, 0)}
    here.send(b"1")
    there.send(b"2")
    for node in net.nodes:
        for channel in node.core.channels.existing():
            channel.restart("test")
        net.feed(node)
    net.held = set()
    net.advance(1.0)
    assert len(_generation(net)) == 1
    for subscriber in (near, far):
        assert sorted(subscriber.deliveries) == [b"1", b"2"]
    here.send(b"3")
    there.send(b"4")
    for subscriber in (near, far):
        assert sorted(subscriber.deliveries) == [b"1", b"2", b"3", b"4"]
        subscriber.accept(b"1", b"2", b"3", b"4")
    assert len(here.accepted) == len(there.accepted) == 2


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_everything_arrives_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    net, subscriber, publisher = _pair(limits=Limits(window=8))
    other = net.subscriber(net.nodes[0], "near")
    net.lost = lambda frame: rng.random() < 0.2
    tags = [number.to_bytes(2, "big") for number in range(40)]
    waiting = list(tags)
    for _ in range(4000):
        if not waiting:
            break
        if publisher.credit:
            publisher.send(waiting.pop(0))
        fresh = [tag for tag in subscriber.deliveries if rng.random() < 0.5]
        subscriber.accept(*fresh)
        other.accept(*other.deliveries)
        reported = [tags[number - 1] for number in publisher.accepted]
        publisher.settle(*reported)
        net.advance(rng.choice([0.0, 0.01, 0.6]))
    net.lost = lambda frame: False
    net.advance(10.0)
    assert subscriber.deliveries == tags
    subscriber.accept(*tags)
    assert len(publisher.accepted) == len(tags)


def test_a_peer_that_does_not_answer_is_greeted_ever_more_rarely() -> None:
    net = Net(2)
    net.held = {(0, 1)}
    net.publisher(net.nodes[0])
    net.subscriber(net.nodes[1])
    net.advance(60.0)
    said = [sent.message for sent in net.nodes[0].all(effects.SendDatagram)]
    hellos = [message for message in said if isinstance(message, Hello) and not message.is_reply]
    assert 10 <= len(hellos) <= 60.0 / HELLO_RETRY_CAP_S + 12
    net.held = set()
    net.advance(HELLO_RETRY_CAP_S)
    assert len(_generation(net)) == 1


def test_a_path_that_moved_is_asked_about_at_once() -> None:
    net, subscriber, publisher = _pair()
    _drop_nth(net, {1})
    publisher.send(b"1")
    rid = net.nodes[1].rid
    net.feed(net.nodes[0], inputs.PathsChanged(frozenset({rid}), frozenset({rid})))
    assert subscriber.deliveries == [b"1"]


def test_a_quiet_channel_is_not_probed() -> None:
    net, subscriber, publisher = _pair()
    publisher.send(b"1")
    subscriber.accept(b"1")
    publisher.settle(b"1")
    net.advance(5.0)
    before = [len(node.all(effects.SendDatagram)) for node in net.nodes]
    net.advance(600.0)
    assert [len(node.all(effects.SendDatagram)) for node in net.nodes] == before


def test_a_stray_frame_of_an_unknown_router_is_not_greeted_for_ever() -> None:
    net = Net()
    net.feed(net.nodes[0], inputs.RouterFrame(4242, 3, 7, Settle(1, ((0, 1),))))
    net.advance(60.0)
    before = len(net.nodes[0].all(effects.SendDatagram))
    net.advance(600.0)
    assert len(net.nodes[0].all(effects.SendDatagram)) == before
    assert list(net.nodes[0].core.channels.existing()) == []


def test_frames_of_a_dead_router_are_not_taken() -> None:
    net, subscriber, publisher = _pair()
    publisher.send(b"1")
    net.kill(net.nodes[0])
    late = Msg(publisher.last(effects.AskEcho).epoch + 1, 1, b"2", b"2")
    net.feed(net.nodes[1], inputs.RouterFrame(net.nodes[0].rid, 1, 99, late))
    assert subscriber.deliveries == [b"1"]
    assert list(net.nodes[1].core.channels.existing()) == []


# ---------------------------------------------------------------------- one copy (T-2)


def test_two_routers_on_the_way_are_one_send() -> None:
    net = Net(3)
    for index in (1, 2):
        net.subscriber(net.nodes[index], f"s{index}")
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    (sent,) = _sent(net.nodes[0], Msg)
    assert {target[0] for target in sent.targets} == {net.nodes[1].rid, net.nodes[2].rid}
    publisher.settle(b"1")
    (sent,) = _sent(net.nodes[0], Settle)
    assert len(sent.targets) == 2


def test_two_subscribers_at_one_router_cost_one_message() -> None:
    net = Net(2)
    subscribers = [net.subscriber(net.nodes[1], f"s{index}") for index in range(5)]
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    (sent,) = _sent(net.nodes[0], Msg)
    assert len(sent.targets) == 1
    assert all(subscriber.deliveries == [b"1"] for subscriber in subscribers)


def test_one_sync_serves_the_subscriptions_of_one_router() -> None:
    net = Net(2)
    for index in range(5):
        net.subscriber(net.nodes[1], f"s{index}")
    net.publisher(net.nodes[0])
    (sync,) = _sent(net.nodes[0], Sync)
    assert isinstance(sync.message, Sync)
    assert len(sync.message.subscription_epochs) == 5


# ---------------------------------------------------------------------- bodies (T-5, T-6, I-1a)


def test_a_large_message_travels_in_pieces_and_arrives_whole() -> None:
    net, subscriber, publisher = _pair()
    body = random.Random(1).randbytes(MIB + 1)
    publisher.send(b"1", body)
    parts = [sent.message for sent in _sent(net.nodes[0], MsgPart)]
    assert len(parts) == 33
    assert all(isinstance(part, MsgPart) and len(part.data) <= MESSAGE_CHUNK_BYTES for part in parts)
    assert subscriber.all(effects.Deliver)[0].message == body


def test_a_body_of_exactly_one_piece_travels_whole() -> None:
    net, subscriber, publisher = _pair()
    publisher.send(b"1", bytes(MESSAGE_CHUNK_BYTES))
    publisher.send(b"2", bytes(MESSAGE_CHUNK_BYTES + 1))
    assert len(_sent(net.nodes[0], Msg)) == 1
    assert len(_sent(net.nodes[0], MsgPart)) == 2
    assert [len(d.message) for d in subscriber.all(effects.Deliver)] == [MESSAGE_CHUNK_BYTES, MESSAGE_CHUNK_BYTES + 1]


def test_a_message_larger_than_all_credit_passes() -> None:
    _, subscriber, publisher = _pair()
    body = bytes(3 * CHANNEL_CREDIT_BYTES)
    publisher.send(b"1", body)
    assert len(subscriber.all(effects.Deliver)[0].message) == len(body)


def test_a_large_presettled_message_passes_in_its_place() -> None:
    _, subscriber, publisher = _pair()
    publisher.send(b"1")
    publisher.send(b"2", bytes(MIB), settled=True)
    publisher.send(b"3")
    assert subscriber.deliveries == [b"1", b"2", b"3"]
    assert len(subscriber.all(effects.Deliver)[1].message) == MIB


def _body_bytes(frames: list[inputs.RouterFrame]) -> int:
    total = 0
    for frame in frames:
        if isinstance(frame.message, Msg):
            total += len(frame.message.message)
        elif isinstance(frame.message, MsgPart):
            total += len(frame.message.data)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_bodies_under_way_never_exceed_the_credit_and_all_of_it_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    publishers = [net.publisher(net.nodes[0], f"p{index}") for index in range(3)]
    pair = (net.nodes[0].rid, net.nodes[1].rid)
    net.held = {(0, 1)}
    bodies: list[bytes] = []
    for number in range(40):
        body = rng.randbytes(rng.choice([10, 1000, 20_000, 300_000, 1_000_000]))
        bodies.append(body)
        rng.choice(publishers).send(b"%d" % number, body)
        under_way = [frame for frame in net.frames.get(pair, ()) if isinstance(frame, inputs.RouterFrame)]
        assert _body_bytes(under_way) <= CHANNEL_CREDIT_BYTES
        if rng.random() < 0.3:
            for _ in range(min(rng.randrange(20), len(under_way))):
                net._carry_out(net.nodes[1], net.nodes[1].core.handle([net.frames[pair].popleft()], net.now))
            net.run()
    net.held = set()
    net.run()
    assert sorted(d.message for d in subscriber.all(effects.Deliver)) == sorted(bodies)
    (channel,) = net.nodes[0].core.channels.existing()
    assert channel.waiting == 0
    assert _sent(net.nodes[1], Credit)
    for number in range(100, 300):
        publishers[0].send(b"%d" % number, bytes(30_000))  # 6 MB more: the credit was not used up for good
    assert len(subscriber.deliveries) == 240


def test_control_passes_while_bodies_wait_for_credit() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    large, small = net.publisher(net.nodes[0], "large"), net.publisher(net.nodes[0], "small")
    returning = net.publisher(net.nodes[1], "returning")
    near = net.subscriber(net.nodes[0], "near")
    returning.send(b"r")
    net.held = {(0, 1)}
    large.send(b"l", bytes(2 * CHANNEL_CREDIT_BYTES))
    before = len(net.nodes[0].all(effects.SendToRouters))
    near.accept(b"r")  # an ACK to router 1, behind no body
    small.settle()
    assert len(net.nodes[0].all(effects.SendToRouters)) == before + 1
    net.held = set()
    net.run()
    subscriber.accept(b"r")
    assert len(returning.accepted) == 1


def test_a_settlement_waits_behind_the_bodies_of_its_own_publisher() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    net.held = {(0, 1)}
    publisher.send(b"1", bytes(2 * CHANNEL_CREDIT_BYTES))
    publisher.settle(b"1")
    assert _sent(net.nodes[0], Settle) == []
    net.held = set()
    net.run()
    assert subscriber.deliveries == [b"1"]
    assert subscriber.settled == [b"1"]


def test_pieces_of_several_publishers_alternate() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    one, other = net.publisher(net.nodes[0], "one"), net.publisher(net.nodes[0], "other")
    net.held = {(0, 1)}
    one.send(b"1", bytes(CHANNEL_CREDIT_BYTES))  # uses all credit up
    one.send(b"2", bytes(MIB))
    other.send(b"3", bytes(MIB))
    before = len(_sent(net.nodes[0], MsgPart))
    net.held = set()
    net.run()
    order = [
        sent.message.head.tag for sent in _sent(net.nodes[0], MsgPart)[before:] if isinstance(sent.message, MsgPart)
    ]
    assert order[:6] == [b"2", b"3"] * 3


def test_a_channel_that_restarts_in_the_middle_of_a_large_message_repeats_it_whole() -> None:
    net, subscriber, publisher = _pair()
    body = random.Random(2).randbytes(MIB)
    _drop_nth(net, {7})
    publisher.send(b"1", body)
    net.advance(1.0)
    assert [d.message for d in subscriber.all(effects.Deliver)] == [body]


def test_what_waits_for_a_router_that_dies_is_dropped_with_it() -> None:
    net, _, publisher = _pair()
    net.held = {(0, 1)}
    publisher.send(b"1", bytes(2 * CHANNEL_CREDIT_BYTES))
    net.kill(net.nodes[1])
    assert list(net.nodes[0].core.channels.existing()) == []
    net.advance(100.0)
    assert net.nodes[0].core.channels.find(net.nodes[1].rid) is None


# ---------------------------------------------------------------------- opening (T-4, I-1c, C-1)


def _opening(**changes: object) -> tuple[Net, SubscriberLink, PublisherLink]:
    """As `_pair`, while nothing that the publisher's router sends arrives: its channel never opened."""
    net = Net(2, **changes)  # type: ignore[arg-type]
    subscriber = net.subscriber(net.nodes[1])
    for node in net.nodes:
        for channel in node.core.channels.existing():
            node.core.channels.drop(channel.rid)
    net.held = {(0, 1)}
    return net, subscriber, net.publisher(net.nodes[0])


def _credit(publisher: PublisherLink) -> int:
    """Asked anew each time."""
    return publisher.credit


def test_a_channel_is_open_when_the_first_subscription_is_confirmed() -> None:
    net = Net(3)
    net.subscriber(net.nodes[1])
    for one, other in ((0, 1), (1, 0), (1, 2), (2, 1)):
        channel = net.nodes[one].core.channels.find(net.nodes[other].rid)
        assert channel is not None
        assert channel.state is ChannelState.UP


def test_what_is_sent_before_a_channel_is_open_waits_in_order_and_is_no_repeat() -> None:
    net, subscriber, publisher = _opening()
    for number in range(8):
        publisher.send(b"%d" % number, settled=number % 2 == 0)
    net.held = set()
    net.advance(1.0)
    assert [(d.tag[11:], d.settled, d.redelivered) for d in subscriber.all(effects.Deliver)] == [
        (b"%d" % number, number % 2 == 0, False) for number in range(8)
    ]
    assert _generation(net) == {1}


@pytest.mark.parametrize("body", [b"", bytes(MESSAGE_CHUNK_BYTES + 1)])
def test_what_waits_for_a_channel_takes_up_the_publishers_window(body: bytes) -> None:
    net, subscriber, publisher = _opening(limits=Limits(window=8))
    sent = 0
    while _credit(publisher):
        publisher.send(b"%d" % sent, body, settled=True)
        sent += 1
    assert sent == 8
    assert net.nodes[0].core.budget.held == 8 * len(body)
    net.held = set()
    net.advance(1.0)
    assert len(subscriber.deliveries) == 8
    assert _credit(publisher) == 8
    assert net.nodes[0].core.budget.held == 0


@pytest.mark.parametrize("gone", ["restart", "router", "subscription"])
def test_a_publisher_goes_on_when_nothing_waits_for_a_channel_any_more(gone: str) -> None:
    net, _, publisher = _opening(limits=Limits(window=8))
    for number in range(8):
        publisher.send(b"%d" % number, settled=True)
    assert _credit(publisher) == 0
    if gone == "restart":
        net.nodes[0].core.channels.channel(net.nodes[1].rid).restart("test")
        net.feed(net.nodes[0])
    elif gone == "router":
        net.kill(net.nodes[1])
    else:
        net.delete_subscription()
    assert _credit(publisher) == 8
    assert net.nodes[0].core.budget.held == 0
