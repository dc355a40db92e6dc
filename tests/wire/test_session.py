"""AMQP sessions: begin and end, handles, windows and disposition ranges."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Attach,
    Begin,
    Connection,
    ConnectionState,
    DeliveryReceived,
    Detach,
    Disposition,
    DispositionReceived,
    End,
    Flow,
    LimitError,
    LinkAttached,
    LinkDetached,
    LinkState,
    Performative,
    Received,
    Rejected,
    Role,
    SessionBegun,
    SessionEnded,
    SessionState,
    Source,
    StateError,
    Symbol,
    Target,
    Transfer,
)
from tests.support.engines import (
    Pipe,
    RawPeer,
    closed_window,
    condition_of,
    frame,
    is_closed_with,
    joined,
    one,
    only,
    only_transfers,
)

STOPPED = AmqpError(Symbol("amqp:internal-error"), "stopped")


def ended_with(peer: RawPeer, answers: list[Performative], condition: str) -> bool:
    """Whether the engine ended the session, and not the connection, for this reason, and notified its owner."""
    event = one(peer.heard, SessionEnded)
    return (
        peer.engine.state is ConnectionState.OPENED
        and condition_of(answers, End) == condition
        and event.error is not None
        and event.error.condition == condition
        and event.session.state is SessionState.END_SENT
    )


# --- begin and end ----------------------------------------------------------------------------------------------------


def test_a_session_begun_by_either_end_is_answered() -> None:
    pipe = Pipe()
    pipe.client.open()
    pipe.run()
    ours, theirs = pipe.client.begin(), pipe.server.begin()
    pipe.run()
    assert ours.state is theirs.state is SessionState.MAPPED
    assert len(only(pipe.at_client, SessionBegun)) == len(only(pipe.at_server, SessionBegun)) == 2


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("error", [None, STOPPED])
def test_end_carries_its_error_and_takes_its_links_along(by_client: bool, error: AmqpError | None) -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    (pipe.client if by_client else pipe.server).sessions[0].end(error)
    pipe.run()
    ours, theirs = (pipe.at_client, pipe.at_server) if by_client else (pipe.at_server, pipe.at_client)
    assert one(theirs, SessionEnded).error == error
    assert one(ours, SessionEnded).error is None
    assert sender.state is receiver.state is LinkState.DETACHED
    assert one(pipe.at_client, SessionEnded).session.links == [sender]
    assert pipe.client.sessions == pipe.server.sessions == []
    assert not only(pipe.at_client + pipe.at_server, LinkDetached)


def test_ends_that_cross_end_the_session_once() -> None:
    pipe = Pipe()
    pipe.link_to_server()
    pipe.client.sessions[0].end()
    pipe.server.sessions[0].end()
    pipe.run()
    assert len(only(pipe.at_client, SessionEnded)) == len(only(pipe.at_server, SessionEnded)) == 1
    assert pipe.client.state is pipe.server.state is ConnectionState.OPENED


def test_a_pipelined_end_is_answered() -> None:
    pipe = Pipe()
    pipe.client.open()
    session = pipe.client.begin()
    session.attach_sender("link", source=Source(), target=Target("t"))
    session.end()
    pipe.run()
    assert session.state is SessionState.ENDED
    assert pipe.client.sessions == pipe.server.sessions == []


def test_other_sessions_live_on() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    pipe.client.begin().end()
    pipe.forget()
    sender.send(b"t", b"body")
    assert one(pipe.hear_server(), DeliveryReceived).payload == b"body"


def test_commands_on_an_ended_session_are_local_errors() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    (session,) = pipe.client.sessions
    session.end()
    for _ in range(2):
        with pytest.raises(StateError):
            session.end()
        with pytest.raises(StateError):
            session.attach_receiver("x")
        with pytest.raises(StateError):
            sender.send(b"t", b"")
        pipe.run()


def test_frames_behind_our_end_are_ignored() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.engine.sessions[0].end()
    peer.read()
    assert peer.transfer(0) == []
    assert peer.send(Flow(0, 1, 0, 1, handle=9)) == []
    peer.send(End())
    assert one(peer.heard, SessionEnded).error is None
    assert [type(answer) for answer in peer.send(Begin(None, 0, 1, 1))] == [Begin]


# --- handles ----------------------------------------------------------------------------------------------------------


def test_links_are_limited_by_the_handle_max_of_either_end() -> None:
    for limits in ({"client": {"handle_max": 1}}, {"server": {"handle_max": 1}}):
        pipe = joined(**limits)  # type: ignore[arg-type]
        pipe.link_to_server("a")
        sender, receiver = pipe.link_to_server("b")
        with pytest.raises(LimitError):
            pipe.client.sessions[0].attach_sender("c", source=Source(), target=Target())
        sender.detach(False)
        pipe.run()
        assert not receiver.is_attached
        again, _ = pipe.link_to_server("c")
        assert again.handle == 1


def test_a_handle_over_our_limit_is_a_framing_error() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", handle_max=3))
    peer.begin()
    answers = peer.send(Attach("a", 4, False))
    assert is_closed_with(peer, answers, "amqp:connection:framing-error")


def test_a_peer_that_takes_fewer_links_than_it_attaches_is_stopped() -> None:
    peer = RawPeer()
    peer.open()
    peer.send(Begin(None, 0, 1, 1, handle_max=0))
    peer.send(Attach("a", 0, False))
    assert ended_with(peer, peer.send(Attach("b", 1, False)), "amqp:resource-limit-exceeded")


def test_a_handle_in_use_ends_the_session() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(1)
    assert ended_with(peer, peer.send(Attach("other", 0, False)), "amqp:session:handle-in-use")


@pytest.mark.parametrize(
    "fault", [Transfer(5, 0, b"t"), Flow(0, 1, 0, 1, handle=5), Detach(5), Detach(5, closed=True)], ids=repr
)
def test_an_unattached_handle_ends_the_session(fault: Transfer | Flow | Detach) -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(1)
    assert ended_with(peer, peer.send(fault), "amqp:session:unattached-handle")


def test_a_transfer_from_the_receiving_end_ends_the_session() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_receiver(1)
    assert ended_with(peer, peer.transfer(0), "amqp:illegal-state")


def test_a_link_name_that_no_answer_could_carry_ends_the_session() -> None:
    peer = RawPeer(max_frame_size=512)
    peer.begin()
    assert ended_with(peer, peer.send(Attach("n" * 129, 0, False)), "amqp:invalid-field")


# --- windows ----------------------------------------------------------------------------------------------------------


def test_our_window_is_topped_up_before_it_closes() -> None:
    pipe = joined(server={"incoming_window": 4})
    sender, _ = pipe.link_to_server(credit=1000)
    for number in range(500):
        sender.send(b"%d" % number, b"body")
    assert [event.tag for event in only(pipe.hear_server(), DeliveryReceived)] == [b"%d" % n for n in range(500)]


def test_a_window_of_one_frame_moves_a_large_message() -> None:
    pipe = joined(server={"incoming_window": 1, "max_frame_size": 512})
    sender, _ = pipe.link_to_server()
    body = bytes(range(256)) * 100
    sender.send(b"t", body)
    assert one(pipe.hear_server(), DeliveryReceived).payload == body


def test_a_transfer_into_a_closed_window_ends_the_session() -> None:
    peer = RawPeer(Connection(Role.SERVER, container_id="e", incoming_window=2))
    peer.begin()
    peer.attach_as_sender(10)
    # Half of the window is used up before the engine tops it up; here the peer does not wait for that.
    session = peer.engine.sessions[0]
    answers = peer.transfer(0)
    assert answers == []
    session._replenish_below = 0
    peer.transfer(1)
    assert ended_with(peer, peer.transfer(2), "amqp:session:window-violation")


def test_transfers_wait_for_the_window_of_the_peer_in_order() -> None:
    peer = RawPeer()
    peer.begin(incoming_window=2)
    link = peer.attach_as_receiver(0)
    peer.send(Flow(0, 2, 0, 1, 0, 0, 10))
    peer.read()
    for number in range(5):
        link.send(b"%d" % number, b"body")
    assert [t.delivery_tag for t in only_transfers(peer.read())] == [b"0", b"1"]
    assert [t.delivery_tag for t in only_transfers(peer.send(Flow(1, 2, 0, 1)))] == [b"2"]
    assert [t.delivery_tag for t in only_transfers(peer.send(Flow(3, 9, 0, 1)))] == [b"3", b"4"]
    assert link.credit == 5


def test_a_settlement_passes_a_closed_window_when_its_delivery_has_left() -> None:
    """2.5.6: windows count transfers only; else who frees the room by settling could never say so."""
    peer, link, ids = closed_window()
    link.settle(ids[:1])
    (settlement,) = peer.read()
    assert isinstance(settlement, Disposition)
    assert (settlement.first, settlement.settled) == (ids[0], True)


def test_frames_of_another_link_pass_a_closed_window() -> None:
    peer, _, _ = closed_window()
    other = peer.engine.sessions[0].attach_sender("other", source=Source(), target=Target())
    assert [type(answer) for answer in peer.read()] == [Attach]
    peer.send(Attach("other", 7, True, source=Source(), target=Target()))
    other.flow(properties={Symbol("p"): 1})
    (flow,) = peer.read()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.properties) == (other.handle, {Symbol("p"): 1})


def test_a_window_that_its_owner_closes_takes_what_was_offered_and_opens_again() -> None:
    pipe = joined(server={"incoming_window": 4})
    sender, _ = pipe.link_to_server(credit=1000)
    session = pipe.server.sessions[0]
    session.set_incoming_window(0)
    ids = [sender.send(b"%d" % number, b"body") for number in range(10)]
    assert len(only(pipe.hear_server(), DeliveryReceived)) == 4
    assert sender.session.is_queueing
    sender.settle(ids[:4])  # dispositions pass
    assert len(one(pipe.hear_server(), DispositionReceived).deliveries) == 4
    sender.session._write_window()  # 2.5.6: its next-outgoing-id sets our next-incoming-id
    pipe.hear_server()
    session.set_incoming_window(3)
    assert len(only(pipe.hear_server(), DeliveryReceived)) == 6
    assert not sender.session.is_queueing


def test_what_was_in_flight_on_a_link_we_detach_is_no_fault_where_the_window_was_closed_since() -> None:
    pipe = joined(server={"incoming_window": 4})
    sender, receiver = pipe.link_to_server(credit=1000)
    pipe.server.sessions[0].set_incoming_window(0)
    receiver.detach(False, STOPPED)
    for number in range(4):
        sender.send(b"%d" % number, b"body")
    pipe.run()
    assert not only(pipe.at_server, SessionEnded)
    assert one(pipe.at_client, LinkDetached).error == STOPPED
    assert pipe.client.sessions[0].state is SessionState.MAPPED


def test_settle_and_flow_do_not_overtake_waiting_transfers() -> None:
    peer, link, ids = closed_window()
    link.settle(ids)
    link.flow(properties={Symbol("p"): 1})
    assert peer.read() == []
    answers = peer.send(Flow(1, 100, 0, 1))
    assert [type(answer) for answer in answers] == [Transfer, Transfer, Disposition, Flow]
    flow = next(answer for answer in answers if isinstance(answer, Flow))
    assert (flow.delivery_count, flow.next_outgoing_id) == (3, 3)


def test_a_flood_of_echo_requests_is_answered_once_while_frames_wait() -> None:
    peer, _, _ = closed_window()
    for _ in range(1000):
        assert peer.send(Flow(1, 0, 0, 1, 0, 0, 10, echo=True)) == []
    answers = peer.send(Flow(1, 100, 0, 1))
    assert [type(answer) for answer in answers] == [Transfer, Transfer, Flow]


def test_attaches_and_detaches_without_end_do_not_wait_behind_a_closed_window() -> None:
    peer, link, _ = closed_window()
    for number in range(100):
        peer.send(Attach(f"a{number}", 1, True, source=Source("t"), target=Target()))
        peer.send(Detach(1, True))
        one(peer.heard, LinkDetached).link.detach(True)
        assert [type(answer) for answer in peer.read()] == [Attach, Detach]
        peer.heard.clear()
    assert peer.engine.sessions[0].links == [link]


def test_questions_without_end_behind_a_closed_window_end_the_session() -> None:
    peer, link, _ = closed_window()
    for _ in range(10_000):
        peer.heard.clear()
        peer.send(Flow(1, 0, 0, 1, 0, 0, 10, echo=True, properties={Symbol("p"): 1}))
        if only(peer.heard, SessionEnded):
            break
        link.flow(properties={Symbol("p"): 1})
    event = one(peer.heard, SessionEnded)
    assert event.error is not None
    assert event.error.condition == "amqp:resource-limit-exceeded"


def test_the_end_of_a_session_drops_what_waits() -> None:
    peer, link, _ = closed_window()
    link.session.end()
    assert [type(answer) for answer in peer.read()] == [End]


def test_the_next_transfer_expected_is_the_one_the_peer_names() -> None:  # 2.5.6
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.transfer(0)
    (flow,) = peer.send(Flow(0, 1, 0xFFFFFFFF, 1, echo=True))
    assert isinstance(flow, Flow)
    assert flow.next_incoming_id == 0xFFFFFFFF
    peer.transfer(1)
    (flow,) = peer.send(Flow(0, 1, 0, 1, echo=True))
    assert isinstance(flow, Flow)
    assert flow.next_incoming_id == 0


def test_a_transfer_counts_from_the_number_the_peer_named() -> None:  # 2.5.6
    peer = RawPeer(Connection(Role.SERVER, container_id="e", incoming_window=2))
    peer.begin()
    peer.attach_as_sender(10)
    peer.send(Flow(0, 1, 40, 1))
    peer.transfer(0)
    (flow,) = only_flows(peer.transfer(1))
    assert flow.next_incoming_id == 42


def only_flows(answers: list[Performative]) -> list[Flow]:
    return [answer for answer in answers if isinstance(answer, Flow)]


def test_a_session_flow_with_echo_is_answered() -> None:
    peer = RawPeer()
    peer.begin()
    (answer,) = peer.send(Flow(0, 1, 0, 1, echo=True))
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.incoming_window, answer.echo) == (None, 2048, False)


# --- dispositions -----------------------------------------------------------------------------------------------------


def test_an_outcome_is_reported_once_however_often_and_for_whatever_range_it_comes() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    for number in range(3):
        link.send(b"%d" % number, b"body")
    for _ in range(1000):  # 2**32 steps each would run into the time-out of the test
        peer.send(Disposition(True, 0, 0xFFFFFFFF, False, ACCEPTED))
        peer.send(Disposition(True, 0, 0xFFFFFFFF, False, RELEASED))
    (reported,) = only(peer.heard, DispositionReceived)
    assert reported.deliveries == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert reported.state == ACCEPTED


def test_a_disposition_that_decides_nothing_is_not_reported() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    link.send(b"1", b"body")
    for state in (None, Received(0, 1)):
        peer.send(Disposition(True, 0, 0x80000000, False, state))
    assert only(peer.heard, DispositionReceived) == []
    peer.send(Disposition(True, 0, 0, True))
    assert one(peer.heard, DispositionReceived).deliveries == [(0, b"1")]


def test_a_range_over_two_links_is_split_and_unknown_numbers_are_skipped() -> None:
    pipe = Pipe()
    first, _ = pipe.link_to_server("a")
    second, _ = pipe.link_to_server("b")
    ids = [link.send(b"%d" % number, b"") for number, link in enumerate((first, first, second, first, second))]
    pipe.forget()
    peer = pipe.client
    first.settle([ids[1]])
    peer.receive_data(frame(Disposition(True, ids[0], ids[-1] + 50, True, ACCEPTED)), 0.0)
    reported = only(peer.events(), DispositionReceived)
    assert [(event.link, event.deliveries) for event in reported] == [
        (first, [(0, b"0"), (3, b"3")]),
        (second, [(2, b"2"), (4, b"4")]),
    ]
    peer.receive_data(frame(Disposition(True, 0, 100, True, ACCEPTED)), 0.0)
    assert only(peer.events(), DispositionReceived) == []


def test_ranges_that_are_sent_hold_only_numbers_that_were_named() -> None:
    peer = RawPeer()
    peer.begin()
    first = peer.attach_as_sender(100, "a", 0)
    second = peer.attach_as_sender(100, "b", 1)
    for number in range(10):
        peer.send(Transfer(1 if number == 4 else 0, number, b"%d" % number), b"")
    first.dispose([0, 1, 2, 4, 5, 7, 8, 99, 9], ACCEPTED, False)
    second.dispose([4], RELEASED, True)
    sent = [answer for answer in peer.read() if isinstance(answer, Disposition)]
    assert [(d.first, d.first if d.last is None else d.last, d.settled) for d in sent] == [
        (0, 2, False),
        (5, 5, False),
        (7, 9, False),
        (4, 4, True),
    ]
    second.dispose([4], RELEASED, True)
    assert peer.read() == []


def test_numbers_wrap_around() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server(credit=10)
    sender.session.next_delivery_id = 0xFFFFFFFE
    for number in range(4):
        sender.send(b"%d" % number, b"")
    received = only(pipe.hear_server(), DeliveryReceived)
    assert [event.delivery_id for event in received] == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    receiver.dispose([event.delivery_id for event in received], ACCEPTED, False)
    reported = only(pipe.hear_client(), DispositionReceived)
    assert [tag for event in reported for _, tag in event.deliveries] == [b"0", b"1", b"2", b"3"]
    pipe.client.receive_data(frame(Disposition(True, 0xFFFFFFFF, 0, True, ACCEPTED)), 0.0)
    assert one(pipe.client.events(), DispositionReceived).deliveries == [(0xFFFFFFFF, b"1"), (0, b"2")]


def test_a_delivery_number_that_is_still_unsettled_ends_the_session() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.transfer(3)
    assert ended_with(peer, peer.send(Transfer(0, 3, b"other"), b""), "amqp:invalid-field")


def test_the_number_of_a_delivery_in_parts_is_checked_too() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.transfer(3)
    peer.send(Transfer(0, 3, b"other", more=True), b"one ")
    assert ended_with(peer, peer.send(Transfer(0), b"two"), "amqp:invalid-field")


def test_a_state_over_the_frame_size_of_the_peer_is_a_local_error_and_changes_nothing() -> None:
    peer = RawPeer(max_frame_size=512)
    peer.begin()
    link = peer.attach_as_sender(10)
    peer.transfer(0)
    with pytest.raises(LimitError):
        link.dispose([0], Rejected(AmqpError(Symbol("x"), "y" * 600)), True)
    link.dispose([0], ACCEPTED, True)
    assert [type(answer) for answer in peer.read()] == [Disposition]


def test_the_peer_of_a_remote_session_is_attached_under_both_handles() -> None:
    pipe = Pipe()
    pipe.client.open()
    pipe.run()
    session = pipe.server.begin()
    pipe.run()
    link = session.attach_sender("down", source=Source("t"), target=Target())
    pipe.run()
    other = one(pipe.at_client, LinkAttached).link
    other.reply(source=Source("t"), target=Target())
    pipe.run()
    assert link.is_attached
    assert other.is_attached
