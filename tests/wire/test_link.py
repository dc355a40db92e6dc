"""Links: attach, reply, refusal, detach and theft."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    Attach,
    Connection,
    DeliveryReceived,
    Described,
    Detach,
    Flow,
    LimitError,
    Link,
    LinkAttached,
    LinkDetached,
    LinkState,
    Modified,
    Received,
    ReceiverLink,
    Rejected,
    Role,
    SenderLink,
    Source,
    StateError,
    Symbol,
    Target,
    TerminusExpiryPolicy,
    ULong,
)
from tests.support.engines import Pipe, RawPeer, condition_of, joined, one, only

EXPIRED = AmqpError(Symbol("oncewire:session-expired"), "nobody knows these deliveries", {Symbol("count"): 3})
UNSETTLED = {
    b"a": None,
    b"b": ACCEPTED,
    b"c": Received(1, 20),
    b"d": Rejected(AmqpError(Symbol("x:y"), "no")),
    b"e" * 32: Modified(delivery_failed=True, undeliverable_here=True, message_annotations={Symbol("k"): 1}),
    b"f": Described(ULong(0x34), [b"txn"]),
}


def begun() -> Pipe:
    pipe = Pipe()
    pipe.client.open()
    pipe.client.begin()
    pipe.forget()
    return pipe


# --- attach -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [True, False])
def test_every_field_of_attach_passes_through_both_ways(sends: bool) -> None:
    source = Source(
        "orders.*",
        2,
        TerminusExpiryPolicy.NEVER,
        600,
        filter={Symbol("sel"): Described(ULong(0x0000468C00000004), "a > 1")},
        default_outcome=Modified(delivery_failed=True),
        outcomes=(Symbol("amqp:accepted:list"),),
        capabilities=(Symbol("topic"),),
    )
    target = Target("t", 1, TerminusExpiryPolicy.LINK_DETACH, 5, capabilities=(Symbol("c"),))
    pipe = begun()
    session = pipe.client.sessions[0]
    attach: Callable[..., Link] = session.attach_sender if sends else session.attach_receiver
    ours = attach(
        "link",
        source=source,
        target=target,
        snd_settle_mode=2,
        rcv_settle_mode=0,
        unsettled=dict(UNSETTLED),
        incomplete_unsettled=True,
        max_message_size=7777,
        offered_capabilities=["o"],
        desired_capabilities=["topic-exactly-once"],
        properties={Symbol("p"): [1, "x"]},
    )
    theirs = one(pipe.hear_server(), LinkAttached).link
    assert theirs.is_sender is not sends
    assert theirs.remote_attach == ours.local_attach
    assert theirs.remote_attach is not None
    assert theirs.remote_attach.unsettled == UNSETTLED
    theirs.reply(
        source=Source("other"),
        target=target,
        unsettled={},
        max_message_size=5,
        offered_capabilities=["topic-exactly-once"],
        properties={Symbol("x-opt-topic-resume"): "new"},
    )
    assert one(pipe.hear_client(), LinkAttached).link is ours
    reply = ours.remote_attach
    assert reply is not None
    assert reply == theirs.local_attach
    assert (reply.unsettled, reply.snd_settle_mode, reply.rcv_settle_mode) == ({}, 2, 0)
    assert reply.source == Source("other")
    assert ours.is_attached
    assert theirs.is_attached


@pytest.mark.parametrize("sends", [True, False])
def test_a_map_with_a_tag_over_32_bytes_is_refused_and_the_owner_never_sees_the_attach(sends: bool) -> None:
    """2.8.7: in an attach a tag is as long as in a transfer."""
    pipe = begun()
    session = pipe.client.sessions[0]
    attach: Callable[..., Link] = session.attach_sender if sends else session.attach_receiver
    ours = attach("link", source=Source("s"), target=Target("t"), unsettled={b"ok": None, b"t" * 33: None})
    heard = pipe.hear_server()
    assert not any(isinstance(event, LinkAttached) for event in heard)
    detached = one(pipe.hear_client(), LinkDetached)
    assert detached.link is ours
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == "amqp:invalid-field"
    assert session.attach_sender("next", source=Source("s"), target=Target("t")).state is LinkState.ATTACH_SENT


def test_a_reply_whose_map_has_a_tag_over_32_bytes_suspends_the_link() -> None:
    pipe = begun()
    ours = pipe.client.sessions[0].attach_sender("link", source=Source("s"), target=Target("t"), unsettled={})
    theirs = one(pipe.hear_server(), LinkAttached).link
    theirs.reply(source=Source("s"), target=Target("t"), unsettled={b"t" * 33: None})
    detached = one(pipe.hear_client(), LinkDetached)
    assert (detached.link, detached.closed) == (ours, False)
    assert detached.error is not None
    assert detached.error.condition == "amqp:invalid-field"


def test_no_map_and_an_empty_map_are_reported_apart() -> None:
    pipe = begun()
    session = pipe.client.sessions[0]
    session.attach_sender("without", source=Source(), target=Target())
    session.attach_sender("empty", source=Source(), target=Target(), unsettled={})
    maps = [event.link.remote_attach.unsettled for event in only(pipe.hear_server(), LinkAttached)]  # type: ignore[union-attr]
    assert maps == [None, {}]


def test_a_name_is_used_once_per_direction() -> None:
    pipe = Pipe()
    pipe.link_to_server("same")
    pipe.link_to_client("same")
    with pytest.raises(StateError):
        pipe.client.sessions[0].attach_sender("same")
    assert len(pipe.client.sessions[0].links) == 2


def test_attaches_of_both_ends_for_one_link_meet() -> None:
    pipe = begun()
    sender = pipe.client.sessions[0].attach_sender("link", source=Source(), target=Target("t"))
    receiver = pipe.server.sessions[0].attach_receiver("link", source=Source(), target=Target("t"))
    receiver.grant(1)
    pipe.run()
    assert sender.is_attached
    assert receiver.is_attached
    assert sender.credit == 1


def test_a_refusal_is_an_attach_without_termini_and_a_closing_detach() -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 3, False, source=Source(), target=Target("t"), unsettled={b"t": None}))
    link = one(peer.heard, LinkAttached).link
    link.refuse(EXPIRED)
    attach, detach = peer.read()
    assert isinstance(attach, Attach)
    assert (attach.name, attach.source, attach.target, attach.unsettled) == ("link", None, None, None)
    assert isinstance(detach, Detach)
    assert (detach.closed, detach.error) == (True, EXPIRED)
    with pytest.raises(StateError):
        link.refuse(EXPIRED)
    peer.heard.clear()
    peer.send(Detach(3, closed=True))
    assert one(peer.heard, LinkDetached).error is None


def test_a_refused_client_hears_the_reason_and_answers_by_itself() -> None:
    pipe = begun()
    pipe.client.sessions[0].attach_sender("link", source=Source(), target=Target("t"), unsettled={b"t": None})
    one(pipe.hear_server(), LinkAttached).link.refuse(EXPIRED)
    event = one(pipe.hear_client(), LinkDetached)
    assert (event.closed, event.error, event.needs_answer) == (True, EXPIRED, False)
    assert one(pipe.hear_server(), LinkDetached).error is None
    assert pipe.client.sessions[0].links == pipe.server.sessions[0].links == []


def test_a_reply_comes_once_and_only_to_an_attach_of_the_peer() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    for link in (sender, receiver):
        with pytest.raises(StateError):
            link.reply(source=Source(), target=Target())
        with pytest.raises(StateError):
            link.refuse(EXPIRED)


def test_a_map_over_the_frame_size_of_the_peer_is_a_local_error_and_changes_nothing() -> None:
    pipe = joined(client={"max_frame_size": 1024})
    pipe.client.open()
    pipe.client.begin().attach_receiver("link", source=Source("t"), target=Target())
    link = one(pipe.hear_server(), LinkAttached).link
    with pytest.raises(LimitError):
        link.reply(source=Source("t"), target=Target(), unsettled={b"%032d" % n: None for n in range(100)})
    link.reply(source=Source("t"), target=Target(), unsettled={})
    pipe.run()
    assert link.is_attached


def test_an_attach_that_cannot_be_sent_leaves_nothing_behind() -> None:
    pipe = joined(server={"max_frame_size": 1024})
    pipe.client.open()
    session = pipe.client.begin()
    pipe.forget()
    with pytest.raises(LimitError):
        session.attach_sender("link", unsettled={b"%032d" % n: None for n in range(100)})
    assert session.links == []
    assert session.attach_sender("link", unsettled={}).handle == 0


def test_nothing_is_sent_before_our_reply_even_with_credit() -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 0, True, source=Source("t"), target=Target()))
    peer.send(Flow(0, 1, 0, 1, 0, None, 5))
    link = one(peer.heard, LinkAttached).link
    assert isinstance(link, SenderLink)
    assert link.credit == 5
    with pytest.raises(StateError):
        link.send(b"t", b"")


# --- detach -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize(
    ("closed", "error", "needs_answer"),
    [(False, None, False), (False, EXPIRED, False), (True, EXPIRED, False), (True, None, True)],
)
def test_a_detach_is_answered_by_the_engine_unless_it_closes_the_link_in_good_order(
    sends: bool, closed: bool, error: AmqpError | None, needs_answer: bool
) -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    ours, theirs = (sender, receiver) if sends else (receiver, sender)
    ours.detach(closed, error)
    pipe.run()
    at_ours, at_theirs = (pipe.at_client, pipe.at_server) if sends else (pipe.at_server, pipe.at_client)
    event = one(at_theirs, LinkDetached)
    assert (event.link, event.closed, event.error, event.needs_answer) == (theirs, closed, error, needs_answer)
    if needs_answer:
        assert not at_ours
        assert theirs.state is LinkState.DETACH_RECEIVED
        theirs.detach(True)
        pipe.run()
    answer = one(at_ours, LinkDetached)
    assert (answer.link, answer.closed, answer.error, answer.needs_answer) == (ours, closed, None, False)
    assert ours.state is theirs.state is LinkState.DETACHED
    assert pipe.client.sessions[0].links == pipe.server.sessions[0].links == []


def test_a_close_can_be_answered_with_an_error() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    sender.detach(True)
    pipe.run()
    stolen = AmqpError(Symbol("amqp:link:stolen"))
    receiver.detach(True, stolen)
    assert one(pipe.hear_client(), LinkDetached).error == stolen


def test_detaches_that_cross_are_reported_once() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    sender.detach(True)
    receiver.detach(True)
    pipe.run()
    assert not one(pipe.at_client, LinkDetached).needs_answer
    assert not one(pipe.at_server, LinkDetached).needs_answer
    assert pipe.client.sessions[0].links == pipe.server.sessions[0].links == []


def test_a_detached_link_is_attached_again_in_the_same_session() -> None:
    pipe = Pipe()
    for number in range(5):
        sender, receiver = pipe.link_to_server(credit=7)
        assert (sender.handle, receiver.handle, sender.credit) == (0, 0, 7)
        sender.send(b"%d" % number, b"body")
        assert one(pipe.hear_server(), DeliveryReceived).link is receiver
        sender.detach(False)
        pipe.forget()
        with pytest.raises(StateError):
            sender.send(b"x", b"")


def test_a_link_cannot_be_attached_again_before_the_detach_is_answered() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    sender.detach(True)
    pipe.run()
    with pytest.raises(StateError):
        pipe.client.sessions[0].attach_sender("link")
    receiver.detach(True)
    pipe.run()
    pipe.client.sessions[0].attach_sender("link")


def test_a_pipelined_attach_and_detach_are_answered() -> None:
    pipe = begun()
    sender = pipe.client.sessions[0].attach_sender("link", source=Source(), target=Target("t"))
    sender.detach(False)
    assert [type(event) for event in pipe.hear_server()] == [LinkAttached, LinkDetached]
    assert one(pipe.hear_client(), LinkDetached).link is sender
    assert pipe.client.sessions[0].links == pipe.server.sessions[0].links == []


@pytest.mark.parametrize("closed", [False, True])
def test_a_peer_that_gives_up_before_our_reply_gets_an_attach_and_a_detach(closed: bool) -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 0, False, source=Source(), target=Target("t")))
    answers = peer.send(Detach(0, closed=closed))
    event = one(peer.heard, LinkDetached)
    assert event.needs_answer is closed
    with pytest.raises(StateError):
        event.link.reply(source=Source(), target=Target())
    if closed:
        assert answers == []
        event.link.detach(True)
        answers = peer.read()
    attach, detach = answers
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target) == (None, None)
    assert isinstance(detach, Detach)
    assert detach.closed is closed
    assert peer.engine.sessions[0].links == []


def test_deliveries_of_a_detached_link_are_no_longer_disposed_of() -> None:
    pipe = Pipe()
    gone, _ = pipe.link_to_server("gone")
    stays, receiver = pipe.link_to_server("stays")
    gone.send(b"a", b"")
    stays.send(b"b", b"")
    pipe.forget()
    gone.detach(False)
    pipe.forget()
    receiver.dispose([0, 1], ACCEPTED, False)
    pipe.run()
    assert list(gone.session.sent_unsettled) == [1]
    assert list(receiver.session.received_unsettled) == [1]


# --- theft ------------------------------------------------------------------------------------------------------------


def test_a_second_attach_of_a_name_steals_the_link() -> None:
    peer = RawPeer()
    peer.begin()
    old = peer.attach_as_sender(10)
    answers = peer.send(Attach("link", 1, False, source=Source(), target=Target("t"), unsettled={}))
    assert condition_of(answers, Detach) == "amqp:link:stolen"
    detached, attached = peer.heard
    assert isinstance(detached, LinkDetached)
    assert (detached.link, detached.closed, detached.needs_answer) == (old, False, False)
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:stolen"
    assert isinstance(attached, LinkAttached)
    new = attached.link
    assert isinstance(new, ReceiverLink)
    assert new is not old
    peer.heard.clear()
    assert peer.transfer(0) == []  # in flight on the old handle
    peer.send(Detach(0))
    assert not peer.heard
    new.reply(source=Source(), target=Target("t"))
    new.grant(1)
    peer.read()
    assert new.is_attached
    assert peer.engine.sessions[0].links == [new]


def test_a_link_stolen_before_its_reply_is_closed() -> None:
    peer = RawPeer()
    peer.begin()
    peer.send(Attach("link", 0, True, source=Source("t"), target=Target()))
    old = one(peer.heard, LinkAttached).link
    attach, detach = peer.send(Attach("link", 1, True, source=Source("t"), target=Target()))
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target) == (None, None)
    assert isinstance(detach, Detach)
    assert detach.closed
    assert only(peer.heard, LinkDetached)[0].link is old
    new = only(peer.heard, LinkAttached)[1].link
    assert isinstance(new, SenderLink)
    new.reply(source=Source("t"), target=Target())
    (reply,) = peer.read()
    assert isinstance(reply, Attach)
    assert reply.handle == new.handle


def test_a_link_is_stolen_many_times_without_a_trace() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", handle_max=3))
    peer.begin()
    for number in range(100):
        peer.send(Attach("link", number % 2, False, source=Source(), target=Target("t")))
        if number:
            peer.send(Detach((number - 1) % 2, closed=True))
    assert len(only(peer.heard, LinkAttached)) == 100
    assert len(only(peer.heard, LinkDetached)) == 99
    assert len(peer.engine.sessions[0].links) == 1
