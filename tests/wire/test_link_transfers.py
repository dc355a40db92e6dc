"""Deliveries: single and in parts, settle modes, aborts and limits."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    DeliveryReceived,
    DeliveryState,
    Detach,
    Disposition,
    DispositionReceived,
    End,
    LimitError,
    LinkDetached,
    Modified,
    Received,
    Rejected,
    Symbol,
    Transfer,
)
from tests.support.engines import Pipe, RawPeer, condition_of, joined, one, only, read_frames


def test_a_delivery_arrives_with_all_it_says() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    sender.send(b"t" * 32, b"body", resume=True, state=Received(2, 30), message_format=7)
    event = one(pipe.hear_server(), DeliveryReceived)
    assert (event.link, event.delivery_id, event.tag, event.payload) == (receiver, 0, b"t" * 32, b"body")
    assert (event.settled, event.resume, event.aborted) == (False, True, False)
    assert (event.state, event.message_format) == (Received(2, 30), 7)


def test_a_tag_over_32_bytes_is_a_local_error() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    with pytest.raises(LimitError):
        sender.send(b"t" * 33, b"")
    assert (sender.credit, sender.session.next_delivery_id) == (100, 0)


@pytest.mark.parametrize(
    "transfer",
    [Transfer(0, 0, None), Transfer(0, 0, b"t" * 33), Transfer(0, None, b"t")],
    ids=["no tag", "33 bytes", "no id"],
)
def test_a_first_frame_without_a_legal_id_and_tag_detaches_the_link(transfer: Transfer) -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert condition_of(peer.send(transfer, b"body"), Detach) == "amqp:invalid-field"
    assert not one(peer.heard, LinkDetached).needs_answer


@pytest.mark.parametrize("again", [0, 1 << 31], ids=["unsettled already", "too far ahead of it"])
def test_a_delivery_id_that_cannot_be_reported_from_an_unsettled_one_ends_the_session(again: int) -> None:  # 2.8.10
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.send(Transfer(0, 0, b"a"))
    assert condition_of(peer.send(Transfer(0, again, b"b")), End) == "amqp:invalid-field"


def test_delivery_ids_may_skip_and_go_back_while_they_can_be_reported_from_each_other() -> None:  # 2.8.10
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(10)
    for delivery_id in (0, (1 << 31) - 1, 1):
        assert peer.send(Transfer(0, delivery_id, b"%d" % delivery_id)) == []
    link.dispose([0, (1 << 31) - 1, 1], ACCEPTED, True)
    peer.send(Disposition(False, 0, 1, True))  # of what is settled: nothing changes
    frames = peer.send(Transfer(0, (1 << 32) - 1, b"next"))
    assert not any(isinstance(frame, End) for frame in frames)
    assert [event.tag for event in peer.heard if isinstance(event, DeliveryReceived)][-1] == b"next"


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_an_empty_tag_is_a_tag(settled: bool, more: bool) -> None:  # 2.8.7
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert peer.send(Transfer(0, 0, b"", 0, settled, more), b"bo") == []
    if more:
        assert peer.send(Transfer(0), b"dy") == []
    event = one(peer.heard, DeliveryReceived)
    assert (event.tag, event.settled, event.payload) == (b"", settled, b"body" if more else b"bo")


def test_the_shortest_transfer_of_all_is_read() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert peer.send(Transfer(0, 0, b"")) == []  # an empty tag, nothing behind it, and no payload
    event = one(peer.heard, DeliveryReceived)
    assert (event.tag, event.payload) == (b"", b"")


def test_an_empty_tag_is_sent_each_time() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    for number in range(3):
        sender.send(b"", b"%d" % number, settled=True)
    events = only(pipe.hear_server(), DeliveryReceived)
    assert [(event.tag, event.payload, event.settled) for event in events] == [
        (b"", b"0", True),
        (b"", b"1", True),
        (b"", b"2", True),
    ]


@pytest.mark.parametrize("more", [False, True])
def test_a_transfer_that_asks_for_mode_second_on_a_link_of_mode_first_detaches_it(more: bool) -> None:  # 2.7.5
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(10, rcv_settle_mode=0)
    answers = peer.transfer(0, rcv_settle_mode=1, more=more)
    assert condition_of(answers, Detach) == "amqp:invalid-field"
    assert one(peer.heard, LinkDetached).link is link
    assert not only(peer.heard, DeliveryReceived)


def test_the_settle_mode_of_a_settled_transfer_is_ignored() -> None:  # 2.7.5
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10, rcv_settle_mode=0)
    assert peer.transfer(0, rcv_settle_mode=1, settled=True) == []
    event = one(peer.heard, DeliveryReceived)
    assert (event.settled, event.receiver_settles) == (True, False)


@pytest.mark.parametrize(
    ("link_mode", "mode", "settles"), [(1, None, False), (1, 1, False), (1, 0, True), (0, 0, False), (0, None, False)]
)
@pytest.mark.parametrize("parts", [1, 2])
def test_mode_first_on_a_link_of_mode_second_says_that_the_receiver_settles(
    link_mode: int, mode: int | None, settles: bool, parts: int
) -> None:  # 2.7.5
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10, rcv_settle_mode=link_mode)
    peer.transfer(0, rcv_settle_mode=mode, more=parts == 2)
    if parts == 2:
        peer.send(Transfer(0), b"rest")
    assert one(peer.heard, DeliveryReceived).receiver_settles is settles


def test_a_number_that_is_no_settle_mode_detaches_the_link() -> None:  # 2.8.3
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert condition_of(peer.transfer(0, rcv_settle_mode=2), Detach) == "amqp:invalid-field"


def test_a_message_format_that_changes_within_a_delivery_detaches_the_link() -> None:  # 2.7.5
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert peer.transfer(0, more=True) == []
    answers = peer.send(Transfer(0, message_format=1), b"rest")
    assert condition_of(answers, Detach) == "amqp:invalid-field"
    assert not only(peer.heard, DeliveryReceived)


@pytest.mark.parametrize("again", [None, 7])
def test_a_message_format_may_be_repeated_or_left_out_on_later_frames(again: int | None) -> None:  # 2.7.5
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    peer.send(Transfer(0, 0, b"t", 7, more=True), b"a")
    peer.send(Transfer(0, message_format=again), b"b")
    event = one(peer.heard, DeliveryReceived)
    assert (event.message_format, event.payload) == (7, b"ab")


# --- settlement -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True)])
def test_three_steps_settle_a_delivery_at_both_ends(outcome: DeliveryState) -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    number = sender.send(b"t", b"body")
    event = one(pipe.hear_server(), DeliveryReceived)
    receiver.dispose([event.delivery_id], outcome, False)
    reported = one(pipe.hear_client(), DispositionReceived)
    assert (reported.link, reported.deliveries, reported.state, reported.settled) == (
        sender,
        [(number, b"t")],
        outcome,
        False,
    )
    assert sender.session.sent_unsettled
    sender.settle([number], outcome)
    settled = one(pipe.hear_server(), DispositionReceived)
    assert (settled.link, settled.deliveries, settled.state) == (receiver, [(0, b"t")], outcome)
    assert settled.settled
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled


def test_a_receiver_that_settles_first_needs_two_steps() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    number = sender.send(b"t", b"body")
    pipe.forget()
    receiver.dispose([number], ACCEPTED, True)
    reported = one(pipe.hear_client(), DispositionReceived)
    assert (reported.deliveries, reported.settled) == ([(number, b"t")], True)
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled
    sender.settle([number])
    assert pipe.hear_server() == []


def test_a_pre_settled_delivery_is_not_kept_anywhere() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    number = sender.send(b"t", b"body", settled=True)
    assert one(pipe.hear_server(), DeliveryReceived).settled
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled
    receiver.dispose([number], ACCEPTED, True)
    assert pipe.hear_client() == []


def test_a_terminal_state_is_resumed_without_payload() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    sender.send(b"t", b"", settled=True, state=ACCEPTED, resume=True)
    event = one(pipe.hear_server(), DeliveryReceived)
    assert (event.payload, event.settled, event.resume, event.state) == (b"", True, True, Accepted())


# --- several frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("size", [0, 1, 439, 440, 441, 448, 500, 512, 5000, 300_000])
def test_a_message_of_any_size_crosses_frames_of_512_bytes(by_client: bool, size: int) -> None:
    pipe = joined(both={"max_frame_size": 512})
    sender, _ = pipe.link_to_server() if by_client else pipe.link_to_client()
    body = bytes(number * 7 % 251 for number in range(size))
    sender.send(b"t", body)
    sender.send(b"u", b"next", settled=True)
    data = (pipe.client if by_client else pipe.server).data_to_send()
    sizes = [len(payload) for _, _, payload in read_frames(data)]
    assert sum(sizes) == size + 4
    (pipe.server if by_client else pipe.client).receive_data(data, 0.0)
    first, second = only(pipe.hear_server() if by_client else pipe.hear_client(), DeliveryReceived)
    assert (first.tag, first.payload, first.settled) == (b"t", body, False)
    assert (second.tag, second.payload, second.settled) == (b"u", b"next", True)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=12),
    frame_size=st.integers(512, 900),
    window=st.integers(1, 5),
    resumed=st.booleans(),
)
def test_messages_keep_their_order_and_bytes_under_any_frame_size_and_window(
    sizes: list[int], frame_size: int, window: int, resumed: bool
) -> None:
    pipe = joined(server={"max_frame_size": frame_size, "incoming_window": window})
    links = [pipe.link_to_server(name) for name in ("a", "b")]
    bodies = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    for number, body in enumerate(bodies):
        links[number % 2][0].send(b"%d" % number, body, resume=resumed, state=Received(0, 0) if resumed else None)
    heard = only(pipe.hear_server(), DeliveryReceived)
    assert [(event.tag, event.payload) for event in heard] == [(b"%d" % n, body) for n, body in enumerate(bodies)]
    assert [event.link for event in heard] == [links[number % 2][1] for number in range(len(sizes))]


def test_deliveries_of_two_links_may_be_interleaved() -> None:
    peer = RawPeer()
    peer.begin()
    first = peer.attach_as_sender(5, "a", 0)
    second = peer.attach_as_sender(5, "b", 1)
    peer.send(Transfer(0, 0, b"x", more=True), b"one ")
    peer.send(Transfer(1, 1, b"y", more=True), b"uno ")
    peer.send(Transfer(0), b"two")
    peer.send(Transfer(1, 1, b"y"), b"due")
    heard = only(peer.heard, DeliveryReceived)
    assert [(event.link, event.payload) for event in heard] == [(first, b"one two"), (second, b"uno due")]


def test_settled_and_state_on_any_frame_hold_for_the_delivery() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(5)
    peer.send(Transfer(0, 0, b"x", 3, more=True, resume=True), b"one ")
    peer.send(Transfer(0, settled=True, more=True, state=ACCEPTED), b"two ")
    peer.send(Transfer(0), b"three")
    event = one(peer.heard, DeliveryReceived)
    assert (event.payload, event.settled, event.state) == (b"one two three", True, ACCEPTED)
    assert (event.resume, event.message_format) == (True, 3)
    assert not event.link.session.received_unsettled


@pytest.mark.parametrize("frames", [0, 1, 3])
def test_an_aborted_delivery_leaves_nothing_but_a_used_credit(frames: int) -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(5)
    for _ in range(frames):
        peer.send(Transfer(0, 0, b"x", more=True), b"part")
    peer.send(Transfer(0, 0, b"x", more=True, aborted=True), b"part")
    event = one(peer.heard, DeliveryReceived)
    assert (event.tag, event.payload, event.settled, event.aborted) == (b"x", b"", True, True)
    assert (link.credit, len(link.session.received_unsettled)) == (4, 0)
    peer.transfer(1)
    assert only(peer.heard, DeliveryReceived)[1].payload == b"body"


def test_our_own_abort_settles_the_delivery() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    sender.send(b"t", b"", resume=True, aborted=True)
    event = one(pipe.hear_server(), DeliveryReceived)
    assert (event.aborted, event.settled, event.resume) == (True, True, True)
    assert not sender.session.sent_unsettled


@pytest.mark.parametrize("other", [Transfer(0, 1, b"x"), Transfer(0, 0, b"y")], ids=["id", "tag"])
def test_a_new_delivery_inside_another_detaches_the_link(other: Transfer) -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(5)
    peer.send(Transfer(0, 0, b"x", more=True), b"part")
    assert condition_of(peer.send(other, b""), Detach) == "amqp:invalid-field"
    assert not only(peer.heard, DeliveryReceived)


@pytest.mark.parametrize("parts", [1, 11])
def test_a_message_over_the_limit_of_the_link_detaches_it(parts: int) -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(5, max_message_size=1000)
    answers = []
    for part in range(parts):
        answers += peer.send(Transfer(0, 0, b"x", more=part + 1 < parts), b"p" * (1100 // parts))
    assert condition_of(answers, Detach) == "amqp:link:message-size-exceeded"
    assert one(peer.heard, LinkDetached).link is link
    assert not only(peer.heard, DeliveryReceived)
    assert link._partial is None


def test_a_message_as_large_as_the_limit_passes() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(5, max_message_size=1000)
    peer.send(Transfer(0, 0, b"x", more=True), b"p" * 999)
    peer.send(Transfer(0), b"p")
    assert len(one(peer.heard, DeliveryReceived).payload) == 1000


def test_a_message_over_the_limit_of_the_peer_is_a_local_error() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_client(max_message_size=10)
    with pytest.raises(LimitError):
        sender.send(b"t", b"p" * 11)
    assert sender.credit == 100
    sender.send(b"t", b"p" * 10)
    assert len(one(pipe.hear_client(), DeliveryReceived).payload) == 10


def test_a_state_that_no_frame_of_the_peer_holds_is_a_local_error() -> None:
    pipe = joined(both={"max_frame_size": 512})
    sender, _ = pipe.link_to_server()
    with pytest.raises(LimitError):
        sender.send(b"t", b"", resume=True, state=Rejected(AmqpError(Symbol("x"), "y" * 600)))
    assert sender.credit == 100
    sender.send(b"t", b"body")
    assert one(pipe.hear_server(), DeliveryReceived).delivery_id == 0


def test_many_tiny_frames_hold_no_more_memory_than_their_bytes() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(5)
    peer.send(Transfer(0, 0, b"x", more=True), b"")
    tracemalloc.start()
    for _ in range(5_000):
        peer.send(Transfer(0, more=True), b"p")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
