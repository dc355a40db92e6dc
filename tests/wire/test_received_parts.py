"""Large deliveries that are handed on as they come."""

from __future__ import annotations

import tracemalloc

import pytest

from oncewire.wire import (
    RELEASED,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    Detach,
    Disposition,
    DispositionReceived,
    End,
    LinkDetached,
    SessionEnded,
    Transfer,
)
from tests.support.engines import condition_of, joined, one, only
from tests.wire.parts import ABOVE, PARTS, body_of, kinds, streaming


def test_a_delivery_is_handed_on_while_its_last_frame_has_not_come() -> None:
    peer, link = streaming()
    peer.send(Transfer(0, 7, b"t", 3, more=True, resume=True, rcv_settle_mode=0), b"0123456789")
    assert kinds(peer.heard) == []
    peer.send(Transfer(0, more=True), b"x")
    assert one(peer.heard, DeliveryBegun) == DeliveryBegun(link, 7, b"t", b"0123456789x", True, 3, True)
    peer.send(Transfer(0, 7, b"t", more=True), b"part")
    assert one(peer.heard, DeliveryPart) == DeliveryPart(link, 7, b"part")
    peer.send(Transfer(0), b"end")
    assert one(peer.heard, DeliveryEnded) == DeliveryEnded(link, 7, b"end", False)
    assert kinds(peer.heard) == ["DeliveryBegun", "DeliveryPart", "DeliveryEnded"]


@pytest.mark.parametrize("above", [None, 100])
def test_a_delivery_that_does_not_pass_the_limit_comes_whole(above: int | None) -> None:
    peer, _ = streaming(above)
    peer.transfer(0, b"a" * 60, more=True)
    peer.send(Transfer(0), b"b" * 60)
    assert kinds(peer.heard) == ["DeliveryReceived"]
    assert len(one(peer.heard, DeliveryReceived).payload) == 120


def test_a_delivery_that_passes_the_limit_with_its_last_frame_comes_whole() -> None:
    peer, _ = streaming()
    peer.transfer(0, b"a" * 10, more=True)
    peer.send(Transfer(0), b"b" * 1000)
    peer.transfer(1, b"c" * 1000)
    assert kinds(peer.heard) == ["DeliveryReceived", "DeliveryReceived"]


@pytest.mark.parametrize("settled_by", [0, 1])
def test_a_settled_delivery_comes_whole(settled_by: int) -> None:
    peer, _ = streaming()
    peer.transfer(0, b"a" * 5, more=True, settled=settled_by == 0)
    peer.send(Transfer(0, more=True, settled=settled_by == 1), b"b" * 50)
    peer.send(Transfer(0), b"c")
    event = one(peer.heard, DeliveryReceived)
    assert (event.settled, len(event.payload)) == (True, 56)
    assert kinds(peer.heard) == ["DeliveryReceived"]


def test_an_empty_frame_in_the_middle_is_no_part() -> None:
    peer, _ = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    peer.send(Transfer(0, more=True))
    peer.send(Transfer(0))
    assert kinds(peer.heard) == ["DeliveryBegun", "DeliveryEnded"]


def test_an_abort_of_what_has_begun_leaves_nothing_but_a_used_credit() -> None:
    peer, link = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    peer.send(Transfer(0, 0, b"tag-0", aborted=True), b"ignored")
    assert one(peer.heard, DeliveryAborted) == DeliveryAborted(link, 0)
    assert kinds(peer.heard) == ["DeliveryBegun", "DeliveryAborted"]
    assert (link.credit, len(link.session.received_unsettled), link.incoming) == (9, 0, None)
    peer.transfer(1)
    assert one(peer.heard, DeliveryReceived).payload == b"body"


def test_an_abort_before_it_has_begun_is_one_event_as_ever() -> None:
    peer, _ = streaming()
    peer.transfer(0, b"a" * 5, more=True)
    peer.send(Transfer(0, aborted=True))
    assert kinds(peer.heard) == ["DeliveryReceived"]
    assert one(peer.heard, DeliveryReceived).aborted


def test_a_last_frame_that_settles_takes_the_delivery_out_of_the_table() -> None:
    peer, link = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    assert len(link.session.received_unsettled) == 1
    peer.send(Transfer(0, settled=True), b"end")
    assert one(peer.heard, DeliveryEnded).settled
    assert len(link.session.received_unsettled) == 0


@pytest.mark.parametrize("settled", [False, True])
def test_an_outcome_in_the_middle_reaches_the_sender_and_the_rest_still_comes(settled: bool) -> None:
    pipe = joined(both={"max_frame_size": 512})
    sender, receiver = pipe.link_to_server()
    receiver.stream_above = ABOVE
    number = sender.begin(b"t", b"a" * 600)
    heard = pipe.hear_server()
    begun = one(heard, DeliveryBegun)
    receiver.dispose([begun.delivery_id], RELEASED, settled)
    reported = one(pipe.hear_client(), DispositionReceived)
    assert (reported.deliveries, reported.state, reported.settled) == ([(number, b"t")], RELEASED, settled)
    sender.finish(b"end")
    heard += pipe.hear_server()
    assert kinds(heard) == ["DeliveryBegun", "DeliveryPart", "DeliveryEnded"]
    assert body_of(heard) == b"a" * 600 + b"end"
    sender.settle([number])
    assert len(only(pipe.hear_server(), DispositionReceived)) == (not settled)
    assert not sender.session.sent_unsettled
    assert not receiver.session.received_unsettled


def test_what_the_sender_settles_in_the_middle_is_settled() -> None:
    peer, link = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    peer.send(Disposition(False, 0, None, True))
    assert one(peer.heard, DispositionReceived).settled
    peer.send(Transfer(0), b"end")
    assert kinds(peer.heard)[-1] == "DeliveryEnded"
    assert len(link.session.received_unsettled) == 0


def test_deliveries_of_several_links_are_handed_on_side_by_side() -> None:  # 2.6.14
    peer, first = streaming()
    second = peer.attach_as_sender(5, "b", 1)
    second.stream_above = ABOVE
    third = peer.attach_as_sender(5, "c", 2)
    peer.send(Transfer(0, 0, b"x", more=True), b"one " * 5)
    peer.send(Transfer(1, 1, b"x", more=True), b"uno " * 5)
    peer.send(Transfer(2, 2, b"x"), b"whole")
    peer.send(Transfer(1), b"due")
    peer.send(Transfer(0), b"two")
    of_first = [event for event in peer.heard if isinstance(event, PARTS) and event.link is first]
    of_second = [event for event in peer.heard if isinstance(event, PARTS) and event.link is second]
    assert (body_of(of_first), body_of(of_second)) == (b"one " * 5 + b"two", b"uno " * 5 + b"due")
    assert one(peer.heard, DeliveryReceived).link is third
    assert kinds(peer.heard)[-2:] == ["DeliveryEnded", "DeliveryEnded"]


def test_what_is_handed_on_is_not_kept_and_its_size_is_known() -> None:
    peer, link = streaming(2_000_000, max_message_size=1 << 40)
    tracemalloc.start()
    try:
        for _ in range(100):
            peer.send(Transfer(0, 0, b"t", more=True), bytes(1_000_000))
            peer.heard.clear()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert held < 2 << 20
    assert (link.incoming, link.session.partial_bytes) == ((0, 100_000_000), 0)


def test_what_has_come_before_it_has_begun_counts_as_partial() -> None:
    peer, link = streaming(100)
    peer.transfer(0, b"a" * 60, more=True)
    assert link.session.partial_bytes == 60
    peer.send(Transfer(0, more=True), b"a" * 60)
    assert (link.session.partial_bytes, link.session.streamed, link.incoming) == (0, 1, (0, 120))
    peer.send(Transfer(0), b"end")
    assert (link.session.partial_bytes, link.session.streamed, link.incoming) == (0, 0, None)


def test_the_largest_message_of_a_link_is_a_limit_of_what_is_handed_on_too() -> None:
    peer, _ = streaming(max_message_size=100)
    peer.transfer(0, b"a" * 60, more=True)
    answers = peer.send(Transfer(0, more=True), b"a" * 60)
    assert condition_of(answers, Detach) == "amqp:link:message-size-exceeded"
    assert kinds(peer.heard) == ["DeliveryBegun"]
    assert one(peer.heard, LinkDetached).error is not None


@pytest.mark.parametrize("settled", [False, True])
def test_what_must_be_put_together_has_a_limit_of_its_own(settled: bool) -> None:
    peer, link = streaming(ABOVE if settled else None)
    link.most_kept, link.why_kept = 100, "this is why"
    peer.transfer(0, b"a" * 60, more=True, settled=settled)
    (answer,) = peer.send(Transfer(0, more=True), b"a" * 60)
    assert condition_of([answer], Detach) == "amqp:link:message-size-exceeded"
    assert isinstance(answer, Detach)
    assert "100 bytes is not stored whole: this is why" in str(answer.error)
    assert link.session.partial_bytes == 0


def test_what_is_handed_on_may_be_larger_than_what_is_put_together() -> None:
    peer, link = streaming()
    link.most_kept = 100
    peer.transfer(0, b"a" * 60, more=True)
    peer.send(Transfer(0, more=True), b"a" * 600)
    peer.send(Transfer(0), b"a")
    assert len(body_of(peer.heard)) == 661


def test_an_id_that_is_in_use_ends_the_session_when_the_delivery_begins() -> None:  # 2.8.10
    peer, _ = streaming()
    peer.transfer(0, b"a")
    peer.send(Transfer(0, 0, b"again", more=True), b"a" * 9)
    answers = peer.send(Transfer(0, more=True), b"a" * 9)
    assert condition_of(answers, End) == "amqp:invalid-field"
    assert kinds(peer.heard) == ["DeliveryReceived"]


@pytest.mark.parametrize("ends", ["detach", "end", "our detach"])
def test_an_end_in_the_middle_is_the_last_that_is_heard(ends: str) -> None:
    peer, link = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    if ends == "our detach":
        link.detach(False)
        peer.send(Transfer(0, more=True), b"late")
        peer.send(Transfer(0), b"late")
        assert not only(peer.heard, SessionEnded)
    peer.send(Detach(0, False) if ends != "end" else End())
    assert kinds(peer.heard) == ["DeliveryBegun"]
    assert len(only(peer.heard, SessionEnded if ends == "end" else LinkDetached)) == 1
    assert (link.incoming, link.session.streamed, len(link.session.received_unsettled)) == (None, 0, 0)


def test_another_delivery_in_the_middle_detaches_the_link() -> None:  # 2.6.14
    peer, _ = streaming()
    peer.transfer(0, b"a" * 50, more=True)
    assert condition_of(peer.transfer(1), Detach) == "amqp:invalid-field"
    assert kinds(peer.heard) == ["DeliveryBegun"]
