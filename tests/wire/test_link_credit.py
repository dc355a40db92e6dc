"""Link credit, drain and echo (AMQP 1.0 section 2.6.7)."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    Attach,
    CreditError,
    DeliveryReceived,
    Detach,
    Flow,
    LimitError,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    SenderLink,
    SessionEnded,
    Source,
    StateError,
    Symbol,
    Target,
)
from tests.support.engines import Pipe, RawPeer, condition_of, one, only

ECHO = Symbol("x-opt-topic-echo")


def test_without_credit_nothing_is_sent() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=2)
    sender.send(b"a", b"")
    sender.send(b"b", b"")
    with pytest.raises(CreditError):
        sender.send(b"c", b"")
    pipe.forget()
    receiver.grant(1)
    event = one(pipe.hear_client(), LinkFlow)
    assert (event.credit_limit, event.link, event.delivery_count) == (3, sender, 2)
    sender.send(b"c", b"")
    assert (sender.credit, sender.delivery_count) == (0, 3)


def test_the_credit_limit_counts_from_zero_whatever_the_initial_delivery_count() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=3, initial_delivery_count=0xFFFFFFFE)
    for number in range(3):
        sender.send(b"%d" % number, b"")
    assert sender.delivery_count == 1
    pipe.forget()
    assert receiver.delivery_count == 1
    receiver.grant(5)
    assert one(pipe.hear_client(), LinkFlow).credit_limit == 8
    assert sender.credit == 5


def test_credit_granted_while_deliveries_are_in_flight_counts_them() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=10)
    for number in range(4):
        sender.send(b"%d" % number, b"")
    receiver.grant(10)  # it has seen none of them
    pipe.run()
    assert sender.credit == 6


def test_lowered_credit_does_not_make_deliveries_in_flight_a_fault() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=10)
    for number in range(4):
        sender.send(b"%d" % number, b"")
    receiver.grant(0)
    pipe.run()
    assert len(only(pipe.at_server, DeliveryReceived)) == 4
    assert sender.credit == 0
    assert receiver.is_attached


def test_a_transfer_beyond_credit_detaches_the_link() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(2)
    peer.transfer(0)
    peer.transfer(1)
    assert condition_of(peer.transfer(2), Detach) == "amqp:link:transfer-limit-exceeded"
    event = one(peer.heard, LinkDetached)
    assert (event.link, event.closed, event.needs_answer) == (link, False, False)
    assert len(only(peer.heard, DeliveryReceived)) == 2
    assert peer.transfer(3) == []  # in flight


def test_a_transfer_before_our_reply_detaches_the_link() -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 0, False, source=Source(), target=Target("t"), initial_delivery_count=0))
    assert condition_of(peer.transfer(0), Detach) == "amqp:link:transfer-limit-exceeded"


def test_a_peer_that_never_stops_sending_on_a_detached_link_loses_the_session() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(1)
    for number in range(3000):
        peer.transfer(number)
    event = one(peer.heard, SessionEnded)
    assert event.error is not None
    assert event.error.condition == "amqp:session:errant-link"


def test_a_sender_cannot_make_credit_by_setting_its_delivery_count_back() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(2)
    peer.transfer(0)
    peer.transfer(1)
    peer.send(Flow(0, 100, 2, 100, 0, 0, 2))
    assert link.credit == 0
    assert condition_of(peer.transfer(2), Detach) == "amqp:link:transfer-limit-exceeded"


def test_a_receiver_cannot_have_seen_more_than_was_sent() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(1)
    peer.send(Flow(0, 100, 0, 100, 0, 1000, 5))
    assert link.credit == 5


def test_credit_granted_before_our_attach_counts_from_its_initial_delivery_count() -> None:
    pipe = Pipe()
    pipe.client.open()
    receiver = pipe.client.begin().attach_receiver("link", source=Source("t"), target=Target())
    receiver.grant(5)
    pipe.run()
    link = one(pipe.at_server, LinkAttached).link
    assert isinstance(link, SenderLink)
    assert one(pipe.at_server, LinkFlow).delivery_count is None
    link.reply(source=Source("t"), target=Target(), initial_delivery_count=77)
    assert link.credit == 5
    for number in range(5):
        link.send(b"%d" % number, b"")
    pipe.run()
    assert len(only(pipe.at_client, DeliveryReceived)) == 5
    assert receiver.delivery_count == 82
    assert receiver.credit == 0


def test_drain_gives_back_what_is_left_of_the_credit() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=0)
    receiver.grant(5, drain=True)
    assert one(pipe.hear_client(), LinkFlow).drain
    sender.send(b"a", b"")
    sender.drained()
    heard = pipe.hear_server()
    assert [type(event) for event in heard] == [DeliveryReceived, LinkFlow]
    flow = one(heard, LinkFlow)
    assert (flow.drain, flow.delivery_count, flow.credit_limit) == (True, 5, None)
    assert (sender.credit, receiver.credit) == (0, 0)
    assert sender.delivery_count == receiver.delivery_count == 5
    receiver.grant(1)
    pipe.forget()
    sender.flow()
    assert not one(pipe.hear_server(), LinkFlow).drain
    sender.send(b"b", b"")


@pytest.mark.parametrize("sends", [True, False])
def test_an_echo_without_properties_is_answered_by_the_engine(sends: bool) -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=9)
    (sender if sends else receiver).flow(echo=True)
    pipe.run()
    asked, asking = (pipe.at_server, pipe.at_client) if sends else (pipe.at_client, pipe.at_server)
    assert one(asked, LinkFlow).echo
    assert not one(asking, LinkFlow).echo


def test_an_echo_with_properties_is_answered_by_the_owner() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=0)
    receiver.grant(0, echo=True, properties={ECHO: 12})
    event = one(pipe.hear_client(), LinkFlow)
    assert (event.echo, event.properties) == (True, {ECHO: 12})
    assert pipe.hear_server() == []
    sender.flow(properties=event.properties)
    answer = one(pipe.hear_server(), LinkFlow)
    assert (answer.echo, answer.properties) == (False, {ECHO: 12})


def test_an_echo_before_our_reply_is_answered_behind_it() -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 0, True, source=Source("t"), target=Target()))
    assert peer.send(Flow(0, 1, 0, 1, 0, None, 5, echo=True)) == []
    link = one(peer.heard, LinkAttached).link
    link.reply(source=Source("t"), target=Target())
    assert [type(answer) for answer in peer.read()] == [Attach, Flow]


def test_available_is_passed_through() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    sender.flow(available=42)
    assert one(pipe.hear_server(), LinkFlow).available == 42


def test_flow_needs_an_attached_link_and_a_legal_number() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    with pytest.raises(LimitError):
        receiver.grant(1 << 32)
    with pytest.raises(LimitError):
        receiver.grant(-1)
    receiver.detach(False)
    for command in (sender.flow, sender.drained, receiver.flow, lambda: receiver.grant(1)):
        pipe.run()
        with pytest.raises(StateError):
            command()
