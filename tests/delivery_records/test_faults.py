"""K-3b: a fault of our own ends the link or channel it concerns, and what is shared goes on."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.mutants.edits import run_from_sources
from delivery_records.model import effects, inputs
from delivery_records.model.message_format import MessageFormat
from delivery_records.model.messages import Msg, Sync
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.timers import OF_AN_EGRESS, OF_AN_INGRESS, Timer
from tests.delivery_records.harness import Net
from tests.delivery_records.links import TOPIC, PublisherLink

LONG_TAG = b"t" * 300


class OurFault(Exception):
    """Something nobody thought of."""


def failing(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    """An `annotate` with a fault in it."""
    if message == b"fault":
        raise OurFault
    if message == b"broken promise":
        raise AssertionError
    return message


def test_a_fault_with_one_transfer_ends_its_link_and_nothing_is_lost_or_doubled() -> None:
    net = Net(2, message_format=MessageFormat(failing))
    net.expects_faults = True
    subscriber = net.subscriber(net.nodes[1])
    other, publisher = net.publisher(net.nodes[0], "other"), net.publisher(net.nodes[0])
    before = publisher.send(b"1")
    publisher.send(b"2", b"fault")
    assert publisher.end().condition == "amqp:internal-error"
    assert not publisher.end().closed  # its terminus stays
    assert [type(found.error) for found in net.nodes[0].all(effects.Faulted)] == [OurFault]
    # The same router serves everybody else, and the publisher when it attaches again with its map.
    accepted = other.send(b"x")
    subscriber.accept(b"1", b"x")
    assert other.accepted == [accepted]
    again = net.publisher(net.nodes[0], unsettled={b"1": None, b"2": None})
    repeated = [again.send(b"1"), again.send(b"2", b"body")]
    subscriber.accept(b"2")
    assert again.accepted == repeated
    assert publisher.accepted == []
    assert before == 1
    assert sorted(subscriber.deliveries) == [b"1", b"2", b"x"]


def test_a_fault_at_one_subscription_ends_its_link_and_the_others_get_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = run_from_sources()  # compiled methods cannot be replaced
    egress_class = core["egress"].Egress
    net = Net(2, records=core["records"].Records)
    net.expects_faults = True
    here, there = net.subscriber(net.nodes[0], "here"), net.subscriber(net.nodes[1], "there")
    publisher = net.publisher(net.nodes[0])
    whole = egress_class.on_msg

    def fails_at_here(egress: Any, *args: object) -> None:
        if egress.link == here.number:
            raise OurFault
        whole(egress, *args)

    with monkeypatch.context() as patch:
        patch.setattr(egress_class, "on_msg", fails_at_here)
        delivery = publisher.send(b"1")
    assert here.end().condition == "amqp:internal-error"
    assert publisher.detached() is None
    there.accept(b"1")
    assert publisher.accepted == []  # I-3: it is owed to the subscription, which is only suspended
    back = net.subscriber(net.nodes[0], "here", unsettled={})
    assert back.deliveries == [b"1"]
    back.accept(b"1")
    assert publisher.accepted == [delivery]


def test_an_assertion_of_the_core_is_not_confined() -> None:
    net = Net(message_format=MessageFormat(failing))
    publisher = net.publisher(net.nodes[0])
    with pytest.raises(AssertionError):
        publisher.send(b"1", b"broken promise")


def test_a_fault_with_what_the_watch_shows_is_not_confined() -> None:
    net = Net()
    with pytest.raises(TypeError):
        net.feed(net.nodes[0], inputs.ViewChanges(5, None))  # type: ignore[arg-type]  # a fault of ours


def test_a_frame_that_cannot_be_encoded_ends_the_publisher_it_speaks_for_and_its_channel_starts_over() -> None:
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher, other = net.publisher(net.nodes[0]), net.publisher(net.nodes[0], "other")
    epoch = net.nodes[0].core.links[publisher.number].epoch  # type: ignore[union-attr]  # an ingress
    net.feed(net.nodes[0], inputs.SendFailed(Sync(epoch, (1,), (0,), (LONG_TAG,)), (net.nodes[1].rid,)))
    assert publisher.end().condition == "amqp:internal-error"
    delivery = other.send(b"1")
    assert other.detached() is None
    net.advance(1.0)
    subscriber = next(e for e in net.nodes[1].core.egresses.values())
    tags = [tag for entries in subscriber.sessions.values() for tag in entries]
    net.feed(net.nodes[1], inputs.SubscriberDisposition(subscriber.link, tags, DeliveryOutcome.ACCEPTED, False))
    assert other.accepted == [delivery]


def test_a_frame_of_another_router_that_cannot_be_handled_restarts_its_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(2)
    net.expects_faults = True
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    core = net.nodes[1].core
    channel = core.channels.channel(net.nodes[0].rid)
    generation = channel.generation
    broken = Msg(0, 0, b"1", b"", to=("no number",))  # type: ignore[arg-type]  # a fault of ours
    net.feed(net.nodes[1], inputs.RouterFrame(net.nodes[0].rid, generation, channel.received + 1, broken))
    assert core.channels.channel(net.nodes[0].rid).generation > generation
    delivery = publisher.send(b"1")
    subscriber.accept(b"1")
    assert publisher.accepted == [delivery]


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_map_with_a_tag_over_32_bytes_is_refused_and_nothing_is_written(role: str) -> None:
    net = Net(2)
    node = net.nodes[0]
    link = net.new_link()
    if role == "publisher":
        net.feed(node, inputs.PublisherAttach(link, "x", "link", TOPIC, {b"ok": None, LONG_TAG: None}))
    else:
        net.feed(node, inputs.SubscriberAttach(link, "x", "link", TOPIC, {b"ok": None, LONG_TAG: None}))
    (refusal,) = node.all(effects.DetachLink)
    assert (refusal.closed, refusal.condition) == (True, "amqp:invalid-field")
    assert "32 bytes" in refusal.description
    assert not node.all(effects.Read)


def test_a_question_for_a_tag_over_32_bytes_is_refused() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    publisher.feed(inputs.ClientFlow(publisher.number, asked_tag=LONG_TAG))
    assert publisher.end().condition == "amqp:invalid-field"
    assert not publisher.all(effects.NotifyOwing)


def test_a_tag_that_is_used_again_before_its_settle_is_on_its_way_is_no_fault() -> None:
    """Found by the fuzz as a KeyError at the egress; E-3 settles the former delivery first."""
    net = Net(2)
    net.subscriber(net.nodes[1])
    publisher = net.publisher(net.nodes[0])
    publisher.send(b"1")
    publisher.feed(
        inputs.PublisherSettle(publisher.number, [b"1"]), inputs.PublisherTransfer(publisher.number, 2, b"1", b"again")
    )
    publisher.settle(b"1")
    (egress,) = net.nodes[1].core.egresses.values()
    assert (egress.unsettled, egress.outgoing.mapped) == (0, 0)


NOT_OF_A_LINK = {
    Timer.ATTACH_RETRY,
    Timer.UNKNOWN_PUT,
    Timer.EXPIRY,
    Timer.BARRIER,
    Timer.GRACE,
    Timer.CHANNEL,
    Timer.PARKED,
    Timer.DRAIN,
    Timer.ROOM,
    Timer.MAP_REST,
    Timer.PIECES,
}
"""Their owner is an etcd path, a nonce, a router, a link that has no records yet, or the incarnation itself."""


def test_every_timer_says_whose_records_a_fault_with_it_ends() -> None:
    owned = [*OF_AN_INGRESS, *OF_AN_EGRESS, *NOT_OF_A_LINK]
    assert sorted(owned) == sorted(Timer)


def test_a_fault_when_a_subscriber_stays_silent_ends_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    core = run_from_sources()
    net = Net(records=core["records"].Records)
    net.expects_faults = True
    subscriber = net.subscriber(net.nodes[0], timeout_s=3600.0, answers=False)

    def fails(_proof: object) -> None:
        raise OurFault

    with monkeypatch.context() as patch:
        patch.setattr(core["proof"].ProofOfLife, "confirm", fails)
        net.advance(net.limits.proof_timeout_s + 1.0)
    assert subscriber.end().condition == "amqp:internal-error"
    assert net.publisher(net.nodes[0]).credit > 0


def fault_of_a_session_end_publisher(*, detached_before: bool) -> Net:
    """A fault ends the records of a publisher whose time starts with the end of its AMQP session."""
    net = Net(2)
    net.subscriber(net.nodes[1])
    node, publisher = net.nodes[0], PublisherLink(net, net.nodes[0])
    publisher.attach(exactly_once=False, expiry_policy="session-end", place=inputs.LinkPlace(5, 6))
    (epoch,) = node.core.endpoints.ingress_by_epoch
    if detached_before:
        publisher.detach(closed=False)
    net.feed(node, inputs.SendFailed(Sync(epoch, (1,), (0,), (LONG_TAG,)), (net.nodes[1].rid,)))
    assert not node.core.ingresses
    return net


@pytest.mark.parametrize("detached_before", [False, True])
def test_a_fault_suspends_a_publisher_as_its_expiry_policy_says(detached_before: bool) -> None:
    """Its time started at once, whatever it waited for."""
    net = fault_of_a_session_end_publisher(detached_before=detached_before)
    net.advance(1_000.0)
    assert net.has_publisher()
    net.feed(net.nodes[0], inputs.EndpointEnded(5))
    net.advance(0.1)
    assert not net.has_publisher()


def test_a_fault_with_a_disconnected_publisher_does_not_start_its_time_anew() -> None:
    net = Net(2)
    publisher = net.publisher(net.nodes[0])
    (epoch,) = net.nodes[0].core.endpoints.ingress_by_epoch
    publisher.drop()
    end = net.nodes[0].core.timers.deadline(Timer.EXPIRY, net.publisher_path())
    net.advance(10.0)
    net.feed(net.nodes[0], inputs.SendFailed(Sync(epoch, (1,), (0,), (LONG_TAG,)), (net.nodes[1].rid,)))
    assert not net.nodes[0].core.ingresses
    assert net.nodes[0].core.timers.deadline(Timer.EXPIRY, net.publisher_path()) == end


@pytest.mark.parametrize("message", [Msg(1, 0, b"1", b"body", to=()), Sync(1, (), (), ())])
def test_a_frame_that_names_no_subscription_is_no_fault(message: Msg | Sync) -> None:
    """No router sends one; whoever does restarts nothing, and nobody is given it."""
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    channel = net.nodes[1].core.channels.channel(net.nodes[0].rid)
    generation = channel.generation
    net.feed(net.nodes[1], inputs.RouterFrame(net.nodes[0].rid, generation, channel.received + 1, message))
    assert (channel.generation, subscriber.deliveries) == (generation, [])
    assert publisher.detached() is None
