"""Large deliveries that are sent while they come."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.fuzz.streams import established, feed, legal_frame
from oncewire.wire import (
    ACCEPTED,
    CreditError,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    Detach,
    Disposition,
    Event,
    Flow,
    LimitError,
    Performative,
    Received,
    ReceiverLink,
    Role,
    StateError,
    Transfer,
)
from tests.support.engines import Pipe, RawPeer, frame, joined, one, only, read_frames
from tests.wire.parts import ABOVE, PARTS, body_of, kinds


def frames_of(pipe: Pipe) -> list[tuple[Performative, bytes]]:
    """What the client writes."""
    return [(performative, payload) for _, performative, payload in read_frames(pipe.client.data_to_send())]


def test_a_delivery_leaves_before_its_last_bytes_are_there() -> None:
    pipe = joined(both={"max_frame_size": 512})
    sender, _ = pipe.link_to_server()
    sender.begin(b"t", b"first", state=Received(0, 0), resume=True, message_format=3)
    ((first, payload),) = frames_of(pipe)
    assert isinstance(first, Transfer)
    assert (first.delivery_id, first.delivery_tag, first.message_format, first.more) == (0, b"t", 3, True)
    assert (first.resume, first.state, first.settled, payload) == (True, Received(0, 0), False, b"first")
    sender.send_part(b"x" * 1000)
    sender.send_part(b"")
    parts = frames_of(pipe)
    assert [each for each, _ in parts] == [Transfer(0, more=True)] * 3
    assert sum(len(payload) for _, payload in parts) == 1000
    sender.finish()
    ((last, payload),) = frames_of(pipe)
    assert isinstance(last, Transfer)
    assert (last.more, last.aborted, payload) == (False, False, b"")
    assert (sender.credit, sender.has_begun) == (99, False)


def test_a_delivery_in_parts_is_one_delivery_for_a_receiver_that_puts_it_together() -> None:
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    number = sender.begin(b"t", b"")
    sender.send_part(b"one ")
    sender.finish(b"two")
    sender.send(b"u", b"next")
    first, second = only(pipe.hear_server(), DeliveryReceived)
    assert (first.delivery_id, first.tag, first.payload, first.settled) == (number, b"t", b"one two", False)
    assert second.payload == b"next"


def test_an_aborted_delivery_is_none_and_counts_as_settled() -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    sender.begin(b"t", b"one ")
    sender.send_part(b"two")
    sender.abort()
    event = one(pipe.hear_server(), DeliveryReceived)
    assert (event.aborted, event.tag) == (True, b"t")
    assert not sender.session.sent_unsettled
    sender.send(b"u", b"next")
    assert one(pipe.hear_server(), DeliveryReceived).payload == b"next"
    assert (sender.credit, receiver.credit) == (98, 98)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_delivery_in_parts_may_be_sent_settled(aborted: bool) -> None:
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    receiver.stream_above = ABOVE
    sender.begin(b"t", b"one ", settled=True)
    if aborted:
        sender.abort()
    else:
        sender.finish(b"two")
    event = one(pipe.hear_server(), DeliveryReceived)
    assert (event.settled, event.aborted, event.payload) == (True, aborted, b"" if aborted else b"one two")
    assert not sender.session.sent_unsettled


def test_an_abort_may_have_a_payload_which_a_receiver_ignores() -> None:  # 2.7.5
    pipe = Pipe()
    sender, receiver = pipe.link_to_server()
    receiver.stream_above = ABOVE
    sender.begin(b"t", b"one")
    sender.abort(b"spoilt")
    transfers = read_frames(pipe.client.data_to_send())
    assert [payload for _, _, payload in transfers] == [b"one", b"spoilt"]
    sender.begin(b"u", b"a" * 20)
    sender.abort(b"spoilt")
    heard = pipe.hear_server()
    assert kinds(heard) == ["DeliveryBegun", "DeliveryAborted"]
    assert body_of(heard) == b"a" * 20


def test_nothing_else_is_sent_on_a_link_while_a_delivery_has_begun() -> None:  # 2.6.14
    pipe = Pipe()
    sender, _ = pipe.link_to_server()
    with pytest.raises(StateError, match="none has begun"):
        sender.send_part(b"x")
    with pytest.raises(StateError, match="none has begun"):
        sender.finish()
    with pytest.raises(StateError, match="none has begun"):
        sender.abort()
    sender.begin(b"t", b"one")
    moved, following = sender.moved, sender.session.next_delivery_id
    for payload in (b"", b"x", b"x" * (2 << 20)):
        with pytest.raises(StateError, match="2\\.6\\.14"):
            sender.send(b"u", payload)
    with pytest.raises(StateError, match="one has begun already"):
        sender.begin(b"u", b"x")
    assert (sender.moved, sender.session.next_delivery_id) == (moved, following)
    sender.finish()
    sender.send(b"u", b"x")
    assert [event.payload for event in only(pipe.hear_server(), DeliveryReceived)] == [b"one", b"x"]


def test_a_delivery_needs_credit_a_tag_and_a_size_that_the_peer_takes() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(1)
    assert link.remote_attach is not None
    link.remote_attach.max_message_size = 10
    with pytest.raises(LimitError):
        link.begin(b"t" * 33, b"")
    with pytest.raises(LimitError):
        link.begin(b"t", b"x" * 11)
    assert (link.credit, link.has_begun, link.session.next_delivery_id) == (1, False, 0)
    link.begin(b"t", b"x" * 6)
    with pytest.raises(LimitError):
        link.send_part(b"x" * 5)
    link.abort()
    with pytest.raises(CreditError):
        link.begin(b"u", b"")
    assert [frame.aborted for frame in peer.read() if isinstance(frame, Transfer)] == [False, True]


def test_parts_of_several_links_are_written_in_the_order_of_their_commands() -> None:
    pipe = Pipe()
    first, _ = pipe.link_to_server("a")
    second, _ = pipe.link_to_server("b")
    third, _ = pipe.link_to_server("c")
    first.begin(b"x", b"1")
    second.begin(b"y", b"2")
    first.send_part(b"3")
    third.send(b"z", b"4")
    second.finish(b"5")
    first.finish(b"6")
    assert [payload for _, payload in frames_of(pipe)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_what_waits_for_the_session_window_is_known_and_goes_out_when_it_opens() -> None:
    peer = RawPeer(max_frame_size=512)
    peer.begin()
    link = peer.attach_as_receiver(10)
    peer.send(Flow(0, 1, 0, 1 << 20))
    link.begin(b"t", b"a" * 400)
    assert link.unsent_bytes == 0
    link.send_part(b"b" * 700)
    link.send_part(b"c" * 50)
    assert link.unsent_bytes == 750
    assert len(peer.read()) == 1
    peer.send(Flow(1, 1, 0, 1 << 20))
    assert 200 < link.unsent_bytes < 300
    link.finish(b"d")
    answers = peer.send(Flow(2, 100, 0, 1 << 20))
    assert [frame.more for frame in answers if isinstance(frame, Transfer)] == [True, True, False]
    assert link.unsent_bytes == 0


def test_an_abort_drops_what_waits_for_the_session_window() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    other = peer.attach_as_receiver(10, "other", 1)
    peer.send(Flow(0, 1, 0, 1 << 20))
    link.begin(b"t", b"a")
    link.send_part(b"b" * 700)
    other.send(b"o", b"whole")
    link.send_part(b"c" * 50)
    peer.read()
    link.abort()
    assert link.unsent_bytes == 0
    answers = peer.send(Flow(1, 100, 0, 1 << 20))
    found = [(frame.handle, frame.aborted) for frame in answers if isinstance(frame, Transfer)]
    assert found == [(other.handle, False), (link.handle, True)]


def test_an_abort_of_what_never_left_names_its_delivery() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    peer.send(Flow(0, 0, 0, 1 << 20))
    number = link.begin(b"t", b"a")
    link.send_part(b"b")
    link.abort()
    (answer,) = peer.send(Flow(0, 100, 0, 1 << 20))
    assert isinstance(answer, Transfer)
    assert (answer.delivery_id, answer.delivery_tag, answer.aborted) == (number, b"t", True)


def test_a_settlement_does_not_overtake_the_last_part_behind_a_later_delivery_of_another_link() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    other = peer.attach_as_receiver(10, "other", 1)
    number = link.begin(b"t", b"a")
    peer.send(Flow(1, 0, 0, 1 << 20))
    later = other.send(b"o", b"whole")
    link.finish(b"end")
    peer.send(Disposition(True, number, None, False, ACCEPTED))
    link.settle([number])
    other.settle([later])
    peer.read()
    answers = peer.send(Flow(1, 100, 0, 1 << 20))
    order = [(type(each).__name__, getattr(each, "handle", None), getattr(each, "first", None)) for each in answers]
    assert order == [
        ("Transfer", other.handle, None),
        ("Transfer", link.handle, None),
        ("Disposition", None, number),
        ("Disposition", None, later),
    ]


def test_a_detach_in_the_middle_ends_the_delivery_and_drops_what_waits_for_the_window() -> None:
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(10)
    peer.send(Flow(0, 1, 0, 1 << 20))
    link.begin(b"t", b"a")
    link.send_part(b"b")
    peer.read()
    link.detach(False)
    with pytest.raises(StateError, match="DETACH_SENT"):
        link.send_part(b"x")
    with pytest.raises(StateError, match="DETACH_SENT"):
        link.finish()
    with pytest.raises(StateError, match="DETACH_SENT"):
        link.abort()
    assert [type(each) for each in peer.read()] == [Detach]
    assert peer.send(Flow(1, 100, 0, 1 << 20)) == []


@settings(deadline=None)
@given(
    commands=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["begin", "part", "finish", "abort", "send"]), st.integers(0, 1500)
        ),
        max_size=40,
    ),
    above=st.sampled_from([None, 0, 100, 1000]),
    frame_size=st.integers(512, 900),
    window=st.integers(1, 5),
)
def test_what_is_sent_in_parts_arrives_as_it_was_sent_under_any_frame_size_and_window(
    commands: list[tuple[int, str, int]], above: int | None, frame_size: int, window: int
) -> None:
    pipe = joined(server={"max_frame_size": frame_size, "incoming_window": window})
    links = [pipe.link_to_server(name) for name in ("a", "b", "c")]
    for _, receiver in links:
        receiver.stream_above = above
    expected: list[list[tuple[bytes, bytes | None]]] = [[] for _ in links]
    open_bodies: list[bytes | None] = [None] * len(links)
    for number, (which, command, size) in enumerate(commands):
        sender, tag, payload = links[which][0], b"%d" % number, bytes([number % 256]) * size
        body = open_bodies[which]
        if body is None and command == "send":
            sender.send(tag, payload)
            expected[which].append((tag, payload))
        elif body is None:
            sender.begin(tag, payload)
            open_bodies[which] = payload
            expected[which].append((tag, None))
        elif command == "abort":
            sender.abort()
            open_bodies[which] = None
        elif command == "finish":
            sender.finish(payload)
            expected[which][-1] = (expected[which][-1][0], body + payload)
            open_bodies[which] = None
        else:
            sender.send_part(payload)
            open_bodies[which] = body + payload
    heard = pipe.hear_server()
    for which, (_, receiver) in enumerate(links):
        assert arrived(heard, receiver) == [each for each in expected[which] if each[1] is not None]


def arrived(heard: list[Event], link: ReceiverLink) -> list[tuple[bytes, bytes]]:
    """Tag and payload of the deliveries that are complete, as an owner puts them together."""
    found: list[tuple[bytes, bytes]] = []
    tag, body = b"", b""
    for event in heard:
        if isinstance(event, DeliveryReceived) and event.link is link and not event.aborted:
            found.append((event.tag, event.payload))
        elif isinstance(event, PARTS) and event.link is link:
            if isinstance(event, DeliveryBegun):
                tag, body = event.tag, event.payload
            elif isinstance(event, DeliveryPart):
                body += event.payload
            elif isinstance(event, DeliveryEnded):
                found.append((tag, body + event.payload))
    return found


def _overheard(take: Callable[[Event], None], heard: list[Event], event: Event) -> None:
    heard.append(event)
    take(event)


def test_the_fuzzed_streams_reach_these_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `wire` of `oncewire chaos fuzz` says nothing of them."""
    wanted = {"DeliveryReceived", *(kind.__name__ for kind in PARTS)}
    seen: set[str] = set()
    for number in range(300):
        if seen == wanted:
            break
        rng = random.Random(f"parts {number}")
        owner = established(Role.SERVER, rng)
        heard: list[Event] = []
        monkeypatch.setattr(owner, "take", partial(_overheard, owner.take, heard))
        feed(owner, b"".join(frame(*legal_frame(rng)) for _ in range(30)), rng)
        seen.update(kinds(heard))
    assert seen == wanted
