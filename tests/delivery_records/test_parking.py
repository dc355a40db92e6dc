"""A message waits for the largest epoch it names, and others pass it (rules T-3, T-7, T-8, E-1, I-2)."""

from __future__ import annotations

from delivery_records.model import effects, inputs
from delivery_records.model.limits import PARKED_FRAMES, PARKED_S, Limits
from delivery_records.model.messages import Ack, Msg
from delivery_records.model.outcomes import Decision, DeliveryOutcome
from tests.delivery_records.harness import Net


def _restarts(net: Net) -> int:
    return sum(node.count(Decision.CHANNEL_RESTARTED) for node in net.nodes)


def test_a_stream_whose_publisher_is_not_in_view_yet_waits_and_others_pass() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    known = net.publisher(net.nodes[0], "known")
    net.nodes[1].is_watch_held = True
    unknown = net.publisher(net.nodes[0], "unknown")
    unknown.send(b"1")
    known.send(b"2")
    unknown.send(b"3")
    assert subscriber.deliveries == [b"2"]
    net.nodes[1].is_watch_held = False
    net.run()
    assert subscriber.deliveries == [b"2", b"1", b"3"]
    assert net.nodes[1].count(Decision.FRAME_PARKED) == 3
    assert _restarts(net) == 0


def test_an_answer_of_a_subscription_that_is_not_in_view_yet_waits() -> None:
    net = Net(2)
    publisher = net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0], "here").drop()
    first = publisher.send(b"1")
    second = net.subscriber(net.nodes[1], "here")
    net.nodes[0].is_watch_held = True
    second.drop()
    third = net.subscriber(net.nodes[1], "here", unsettled={second.network_tag(b"1"): DeliveryOutcome.ACCEPTED})
    assert third.last(effects.SubscriberReply).kept == [second.network_tag(b"1")]
    assert publisher.accepted == []
    net.nodes[0].is_watch_held = False
    net.run()
    assert publisher.accepted == [first]


def test_a_parked_stream_that_gets_too_old_restarts_the_channel_and_nothing_is_missing() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    net.nodes[1].is_watch_held = True
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    net.advance(PARKED_S - 0.1)
    assert _restarts(net) == 0
    net.advance(0.2)
    assert _restarts(net) == 1
    net.nodes[1].is_watch_held = False
    net.advance(1.0)
    assert subscriber.deliveries == [b"1"]


def test_a_parked_stream_that_gets_too_long_restarts_the_channel_and_nothing_is_missing() -> None:
    net = Net(2, limits=Limits(window=2 * PARKED_FRAMES))
    subscriber = net.subscriber(net.nodes[1], limit=2 * PARKED_FRAMES)
    net.nodes[1].is_watch_held = True
    publisher = net.publisher(net.nodes[0])
    tags = [number.to_bytes(2, "big") for number in range(PARKED_FRAMES + 10)]
    publisher.feed(*(inputs.PublisherTransfer(publisher.number, number, tag, b"") for number, tag in enumerate(tags)))
    assert _restarts(net) == 0  # what is repeated would only be too long again
    net.nodes[1].is_watch_held = False
    net.advance(1.0)
    assert _restarts(net) == 1
    assert subscriber.deliveries == tags


def test_streams_that_are_parked_for_short_times_again_and_again_do_not_restart_the_channel() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    for number in range(40):
        net.nodes[1].is_watch_held = True
        publisher = net.publisher(net.nodes[0], f"p{number}")
        publisher.send(b"%d" % number)
        net.advance(0.3)
        net.nodes[1].is_watch_held = False
        net.run()
    assert len(subscriber.deliveries) == 40
    assert _restarts(net) == 0


def test_a_stream_that_waits_is_not_blamed_for_the_age_of_another() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    node = net.nodes[1]
    node.is_watch_held = True
    net.publisher(net.nodes[0], "p0").send(b"0")
    for number in range(1, 30):
        net.advance(0.3)
        caught_up = net.etcd.revision
        net.publisher(net.nodes[0], f"p{number}").send(b"%d" % number)  # parked before the others are released
        while node.seen < caught_up:
            change = net.etcd.log[node.seen]
            node.seen += 1
            net.feed(node, inputs.ViewChanges(change.mod_revision, [change]))
    assert len(subscriber.deliveries) == 29
    assert _restarts(net) == 0


def test_what_was_parked_of_a_router_that_dies_is_forgotten() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[1])
    net.nodes[1].is_watch_held = True
    net.publisher(net.nodes[0]).send(b"1")
    net.kill(net.nodes[0])
    net.nodes[1].is_watch_held = False
    net.run()
    assert subscriber.deliveries in ([], [b"1"])
    again = net.publisher(net.nodes[2], unsettled={b"1": None})
    again.send(b"1")
    assert subscriber.deliveries == [b"1"]


def test_frames_of_a_former_publisher_epoch_are_dropped() -> None:
    net = Net(3)
    subscriber = net.subscriber(net.nodes[1])
    first = net.publisher(net.nodes[0])
    net.held = {(0, 1)}
    first.send(b"1")
    first.settle(b"1")
    second = net.publisher(net.nodes[2])
    second.send(b"2")
    net.held = set()
    net.run()
    assert subscriber.deliveries == [b"2"]
    assert net.nodes[1].count(Decision.FRAME_NOT_SYNCED) >= 1


def test_an_answer_in_a_former_epoch_of_the_same_life_still_counts() -> None:
    net = Net(3)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    delivery = publisher.send(b"1")
    net.held = {(1, 0)}
    subscriber.accept(b"1")
    subscriber.drop()
    net.subscriber(net.nodes[2], unsettled={subscriber.network_tag(b"1"): None})
    assert publisher.accepted == []
    net.held = set()
    net.run()
    assert publisher.accepted == [delivery]


def test_an_outcome_of_a_former_incarnation_is_ignored() -> None:
    net = Net(3)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    net.subscriber(net.nodes[0], "other")
    publisher.send(b"1")
    net.held = {(1, 0)}
    subscriber.accept(b"1")
    net.delete_subscription()
    again = net.subscriber(net.nodes[2])
    second = publisher.send(b"2")
    net.held = set()
    net.run()
    other_owes = publisher.ask(b"1")
    assert list(other_owes.names) == ["other/link"]
    assert set(publisher.ask(b"2").names) == {"other/link", "s/link"}
    assert again.deliveries == [b"2"]
    assert second not in publisher.accepted


def test_an_answer_about_another_window_counts_for_nothing() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    node = net.nodes[0]
    subscription = next(iter(node.core.view.subscriptions.values()))
    channel = node.core.channels.find(net.nodes[1].rid)
    assert channel is not None
    stray = Ack(999, subscription.epoch, DeliveryOutcome.ACCEPTED, ((0, 100),))
    net.feed(node, inputs.RouterFrame(net.nodes[1].rid, channel.generation, channel.received + 1, stray))
    assert publisher.accepted == []
    assert node.count(Decision.ACK_STALE) == 1


def test_an_answer_beyond_the_window_is_cut_to_it() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    first = publisher.send(b"1")
    node = net.nodes[0]
    subscription = next(iter(node.core.view.subscriptions.values()))
    channel = node.core.channels.find(net.nodes[1].rid)
    assert channel is not None
    epoch = next(iter(node.core.endpoints.ingress_by_epoch))
    wild = Ack(epoch, subscription.epoch, DeliveryOutcome.ACCEPTED, ((0, 2**62),))
    net.feed(node, inputs.RouterFrame(net.nodes[1].rid, channel.generation, channel.received + 1, wild))
    second = publisher.send(b"2")
    assert publisher.accepted == [first]
    assert second not in publisher.accepted


def test_a_message_of_a_publisher_that_did_not_sync_is_dropped() -> None:
    net = Net(2)
    subscriber = net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0], topic="elsewhere")
    epoch = next(iter(net.nodes[0].core.endpoints.ingress_by_epoch))
    channel = net.nodes[1].core.channels.channel(net.nodes[0].rid)
    net.advance(0.5)
    stray = Msg(epoch, 0, b"1", b"1")
    net.feed(net.nodes[1], inputs.RouterFrame(net.nodes[0].rid, channel.generation, channel.received + 1, stray))
    assert subscriber.deliveries == []
    assert net.nodes[1].count(Decision.FRAME_NOT_SYNCED) == 1
    assert publisher.detached() is None
